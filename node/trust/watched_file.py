"""A file of node ids that is looked at now and then, since other processes change it: of known
peers, or of accounts.
"""

import logging
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from parley._node.errors import KnownPeersError
from parley._node.trust.known_peers import KnownPeers

logger = logging.getLogger("parley.trust")

T = TypeVar("T")

# Seconds between two looks at the files.
LOOK: Final = 1.0
# A file that changed is asked again when it has been still from one look to the next: somebody may
# be writing it. Strangers who are recorded one after the other must not put that off.
MOST_LOOKS: Final = 5
# Seconds for which a file that cannot be read refuses nobody who was let in.
UNREADABLE: Final = 30.0


class WatchedFile:
    """A file that decides who is let in, as it was when it was looked at."""

    __slots__ = ("failing_since", "is_still", "known_peers", "looks", "reviewed", "seen")

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers
        # Nobody knows in which state it was when the first of its peers was let in.
        self.seen: Hashable = self
        self.reviewed: Hashable = self
        self.is_still = False  # from one look to the next
        self.looks = 0  # since it was still
        self.failing_since: float | None = None

    def stamp(self) -> Hashable:
        """The state it is in; takes the time of a disk."""
        try:
            return self.known_peers.stamp()
        except KnownPeersError as error:
            return str(error)

    def is_due(self, stamp: Hashable) -> bool:
        """Whether those whom it let in are to be asked about, now that it is in this state."""
        self.is_still, self.seen = stamp == self.seen, stamp
        if stamp == self.reviewed:
            self.looks, self.failing_since = 0, None
            return False
        self.looks = 0 if self.is_still else self.looks + 1
        return self.is_still or self.looks >= MOST_LOOKS

    def is_waited_for(self, trouble: KnownPeersError | None, now: float) -> bool:
        """Whether it could not be read, and not for so long that this counts."""
        if trouble is None:
            self.failing_since = None
            return False
        if self.failing_since is None:
            self.failing_since = now
            logger.warning(
                "%s: those whom it let in stay for %g s more",
                trouble,
                UNREADABLE,
                extra={"event": "trust.file-unreadable"},
            )
        return now - self.failing_since < UNREADABLE


async def in_thread(threads: CapacityLimiter, function: Callable[[], T]) -> T | None:
    """What `function` returns; None if it takes longer than any file may."""
    with move_on_after(UNREADABLE):
        return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=threads)
    return None
