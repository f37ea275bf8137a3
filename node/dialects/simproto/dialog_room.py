"""Shares scarce dialogs between callers and feeds with notes to send.

Notes leave a part of all dialogs free for calls. Callers go first, then feeds in turn.
"""

from collections.abc import Callable
from typing import Final, Protocol

from parley._node.dialects.simproto.core import SimProtoCore

# One dialog in so many is kept for calls.
KEPT_PART: Final = 4


class Pumped(Protocol):
    """A feed that waits for a dialog."""

    def pump(self) -> None:
        """Send what may go now."""


class DialogRoom:
    """The dialogs of one connection that may begin now."""

    __slots__ = ("_callers", "_core", "_feeds", "_most_notes", "_notes")

    def __init__(self, core: SimProtoCore) -> None:
        self._core = core
        self._callers: dict[Callable[[], None], None] = {}
        self._feeds: dict[Pumped, None] = {}
        dialogs = core.limits.requests
        self._most_notes = max(1, dialogs - dialogs // KEPT_PART)
        self._notes = 0  # on their way

    # Callers.

    def wait(self, wake: Callable[[], None]) -> None:
        """Have `wake` called once, when a dialog is free; another caller may take it first."""
        self._callers[wake] = None
        self._core.on_free = self._freed

    def leave(self, wake: Callable[[], None]) -> None:
        """Wait no longer, or do not use the dialog that it was woken for."""
        if self._callers.pop(wake, wake) is wake:
            self._freed()  # the next one's turn

    def end(self) -> None:
        """The connection is over: wake all callers."""
        callers, self._callers = self._callers, {}
        for wake in callers:
            wake()

    # Feeds.

    def take(self, feed: Pumped) -> bool:
        """Take a dialog for a note; False if none is free: `feed` is pumped when its turn
        comes."""
        if self._notes < self._most_notes and self._core.free_dialogs > 0:
            self._notes += 1
            return True
        self.queue(feed)
        return False

    def give_back(self) -> None:
        """The dialog of a note is over, or did not begin."""
        self._notes -= 1

    @property
    def others_wait(self) -> bool:
        """Whether a feed that could go on should wait for its turn."""
        return bool(self._feeds or self._callers)

    def queue(self, feed: Pumped) -> None:
        """Pump `feed` when its turn comes."""
        self._feeds[feed] = None
        self._core.on_free = self._freed

    def forget(self, feed: Pumped) -> None:
        """`feed` has nothing more to send."""
        self._feeds.pop(feed, None)

    # Inside.

    def _freed(self) -> None:
        """A response came."""
        if self._callers:
            wake = next(iter(self._callers))
            del self._callers[wake]
            wake()
        elif self._feeds:
            feed = next(iter(self._feeds))
            del self._feeds[feed]
            feed.pump()  # which queues itself again if it has more
        if not self._callers and not self._feeds:
            self._core.on_free = None
