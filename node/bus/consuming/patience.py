"""What is done when a store gives no answer, or has no room: wait, each time for longer, and try
again.

One rule: only what may pass is waited for (`PASSING`), and the log hears of it once in a while.
Knows nothing of what is asked.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from crypto.randomness import random_bytes
from node.backoff import Pauses
from node.bus.errors import BusBusyError, BusError, BusFullError, BusUnavailableError
from node.errors import ParleyError
from node.logs import LogRation, one_line
from node.transport.loop import Loop
from node.transport.waiting import pause

logger = logging.getLogger("parley.bus")

T = TypeVar("T")

# What may be over in a moment, or in an hour.
PASSING: Final = (BusUnavailableError, BusBusyError, BusFullError)
PAUSES: Final = Pauses(first=0.1, longest=10.0)
# Lines on one consumer's troubles: at once, and from then on for each second.
LINES: Final = 2
LINES_PER_SECOND: Final = 1 / 60


def fraction() -> float:
    """By chance, 0 to 1."""
    return random_bytes(1)[0] / 255


def as_bus_error(error: Exception) -> BusError:
    """What ends a consumer; a store's mistake is logged where it is met."""
    if isinstance(error, BusError):
        return error
    if isinstance(error, ParleyError):  # a setting is wrong
        return BusError(str(error))
    logger.error("a store failed", exc_info=error)
    wrapped = BusError("the store failed; the log has where")
    wrapped.__cause__ = error
    return wrapped


class Patience:
    """One consumer's; `what` is named in the log."""

    __slots__ = ("_lines", "_loop", "_pauses", "_what", "failures")

    def __init__(self, loop: Loop, what: str, pauses: Pauses = PAUSES) -> None:
        self._loop = loop
        self._what = what
        self._pauses = pauses
        self._lines = LogRation(LINES, LINES_PER_SECOND)
        self.failures = 0  # in a row

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` answers, as often as that takes.

        Raises:
            BusError: what no waiting helps against.
        """
        while True:
            try:
                answer = await ask()
            except PASSING as error:
                await self.wait(error)
            else:
                self.failures = 0
                return answer

    async def wait(self, error: BusError) -> None:
        """It failed once more: say so, and wait."""
        self.failures += 1
        self.tell(error)
        await pause(self._loop, self._pauses.after(self.failures, fraction()))

    def tell(self, error: BusError) -> None:
        """Log an error, if there is room for it."""
        if self._lines.has_room(self._loop.now()):
            left_out = self._lines.told()
            more = f" ({left_out} such lines were not logged)" if left_out else ""
            logger.warning("%s: %s%s", self._what, one_line(str(error)), more)
