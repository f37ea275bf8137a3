"""How many lines of one kind the log takes: some at once, and from then on so many a second.

One rule: what a stranger can cause without end is rationed, and how much was left out is
said with the next line. Writes nothing itself.
"""

from node.allowance import Allowance, Rate


class LogRation:
    """`burst` lines at once, `per_second` for each second; `silent` were left out since the
    last that had room."""

    __slots__ = ("_allowance", "silent")

    def __init__(self, burst: int, per_second: float) -> None:
        self._allowance = Allowance(Rate(burst, 1 / per_second))
        self.silent = 0

    def has_room(self, now: float) -> bool:
        """Whether a line may be written, which is counted; or left out, which is too.

        `now` is seconds of a clock that never goes back, the same for all calls.
        """
        if self._allowance.take(now):
            return True
        self.silent += 1
        return False

    def told(self) -> int:
        """How many were left out; they are told now."""
        silent, self.silent = self.silent, 0
        return silent
