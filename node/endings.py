"""What is logged of connections that ended: a line each, but no flood of them.

One rule: whoever was never let in may not fill the log; how many endings were left out
is said with the next line. Knows no levels but its two.
"""

import logging
from typing import Final

from node.protocol.codes import CloseCode, code_name
from node.protocol.reports import ConnectionEnded

logger = logging.getLogger("parley.peer")

# Lines about strangers: at once, and from then on for each second.
BURST: Final = 100
PER_SECOND: Final = 10


class Endings:
    """The log of one node's endings."""

    __slots__ = ("_left", "_silent", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._left = float(BURST)
        self._silent = 0

    def ended(self, who: object, ended: ConnectionEnded, now: float, *, stranger: bool) -> None:
        """Log an ending; `stranger` says that the handshake was never completed.

        `now` is seconds of a clock that never goes back, the same for all calls.
        """
        if stranger and not self._has_room(now):
            self._silent += 1
            return
        if self._silent:
            logger.warning("%d endings of strangers were not logged", self._silent)
            self._silent = 0
        quiet = ended.code in (CloseCode.NORMAL, CloseCode.GOING_AWAY)
        log = logger.info if quiet else logger.warning
        log("%s ended: %s (%s)", who, code_name(ended.code), ended.text or ended.reason)

    def _has_room(self, now: float) -> bool:
        self._left = min(BURST, self._left + (now - self._since) * PER_SECOND)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
