"""How many lines of one kind the log takes: some at once, and from then on so many a second.

One rule: what a peer can cause without end is rationed, and how much was left out is said
with the next line. Whose lines share a ration is the caller's to say.
"""

import logging
from typing import Final

from node.allowance import Allowance, Rate

# Of what requests cause, of one kind: lines at once, and from then on for each second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0


class LogRation:
    """`burst` lines at once, `per_second` for each second; `silent` were left out since the
    last that had room."""

    __slots__ = ("_allowance", "silent")

    def __init__(self, burst: int = LINES, per_second: float = LINES_PER_SECOND) -> None:
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

    def log(
        self,
        logger: logging.Logger,
        level: int,
        now: float,
        message: str,
        *words: object,
        exc_info: bool = False,
    ) -> None:
        """Log a line if there is room; with the exception that is being handled, if wanted."""
        if logger.isEnabledFor(level) and self.has_room(now):
            silent = self.told()
            more = f" ({silent} more such lines were not logged)" if silent else ""
            logger.log(level, message + more, *words, exc_info=exc_info)

    def told(self) -> int:
        """How many were left out; they are told now."""
        silent, self.silent = self.silent, 0
        return silent
