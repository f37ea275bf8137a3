"""What is logged of connections that ended or never began: a line each, but no flood.

One rule: whoever was never let in may not fill the log; how many lines were left out is
said with the next one. Knows no levels but its two.
"""

import logging
from typing import Final

from node.logs import LogRation, one_line
from node.protocol.codes import CloseCode, code_name
from node.protocol.reports import ConnectionEnded

logger = logging.getLogger("parley.peer")

# Lines about strangers: at once, and from then on for each second.
BURST: Final = 100
PER_SECOND: Final = 10


class Endings:
    """The log of one node's endings."""

    __slots__ = ("_strangers",)

    def __init__(self) -> None:
        self._strangers = LogRation(BURST, PER_SECOND)

    def ended(self, who: object, ended: ConnectionEnded, now: float, *, stranger: bool) -> None:
        """Log an ending; `stranger` says that the handshake was never completed.

        `now` is seconds of a clock that never goes back, the same for all calls.
        """
        if stranger and not self._strangers.has_room(now):
            return
        self._break_silence()
        quiet = ended.code in (CloseCode.NORMAL, CloseCode.GOING_AWAY)
        level = logging.INFO if quiet else logging.WARNING
        if logger.isEnabledFor(level):
            text = one_line(ended.text or ended.reason)
            logger.log(level, "%s ended: %s (%s)", who, code_name(ended.code), text)

    def turned_away(self, name: str, reason: str, now: float) -> None:
        """Log that a connection from `name` was closed before anything was said on it."""
        if self._strangers.has_room(now):
            self._break_silence()
            logger.warning("turned away a connection from %s: %s", name, reason)

    def _break_silence(self) -> None:
        if self._strangers.silent:
            logger.warning("%d endings of strangers were not logged", self._strangers.told())
