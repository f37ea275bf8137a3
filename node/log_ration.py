"""How many lines of one kind the log takes: some at once, and from then on so many a second.

One rule: what a stranger can cause without end is rationed, and how much was left out is
said with the next line. Writes nothing itself.
"""


class LogRation:
    """`burst` lines at once, `per_second` for each second; `silent` were left out since the
    last that had room."""

    __slots__ = ("_burst", "_left", "_per_second", "_since", "silent")

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._since = 0.0
        self._left = float(burst)
        self.silent = 0

    def has_room(self, now: float) -> bool:
        """Whether a line may be written, which is counted; or left out, which is too.

        `now` is seconds of a clock that never goes back, the same for all calls.
        """
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            self.silent += 1
            return False
        self._left -= 1
        return True

    def told(self) -> int:
        """How many were left out; they are told now."""
        silent, self.silent = self.silent, 0
        return silent
