"""`WatchedFile`: notices that a file which decides on peers has changed, or cannot be read.

Files are read in threads, because a disk may be slow.
"""

import logging
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from parley._node.errors import ParleyError

logger = logging.getLogger("parley.trust")

T = TypeVar("T")

# Seconds between two looks at watched files.
LOOK: Final = 1.0
# A changed file is used once two successive checks find it unchanged, because it may be incomplete.
# After this many checks it is used anyway.
MOST_LOOKS: Final = 5
# Seconds for which peers stay accepted while their file is unreadable.
UNREADABLE: Final = 30.0


class Watchable(Protocol):
    """A file of known peers or of key statements."""

    def stamp(self) -> Hashable:
        """Return a value that identifies the file's state.

        Raises:
            ParleyError: the state cannot be found.
        """


W = TypeVar("W", bound=Watchable)


class WatchedFile(Generic[W]):
    """Watches a file for changes."""

    __slots__ = ("failing_since", "file", "is_still", "looks", "reviewed", "seen")

    def __init__(self, file: W) -> None:
        self.file = file
        # Unknown: the state when the first of its peers was accepted.
        self.seen: Hashable = self
        self.reviewed: Hashable = self
        self.is_still = False  # from one look to the next
        self.looks = 0  # since it was still
        self.failing_since: float | None = None

    def stamp(self) -> Hashable:
        """Return the file's state; may block on the disk."""
        try:
            return self.file.stamp()
        except ParleyError as error:
            return str(error)

    def is_due(self, stamp: Hashable) -> bool:
        """Return whether its peers must be rechecked, given its current state."""
        self.is_still, self.seen = stamp == self.seen, stamp
        if stamp == self.reviewed:
            self.looks, self.failing_since = 0, None
            return False
        self.looks = 0 if self.is_still else self.looks + 1
        return self.is_still or self.looks >= MOST_LOOKS

    def is_tolerated(self, error: ParleyError | None, now: float) -> bool:
        """Return whether to ignore a read error for now, because it began less than `UNREADABLE`
        seconds ago.
        """
        if error is None:
            self.failing_since = None
            return False
        if self.failing_since is None:
            self.failing_since = now
            logger.warning(
                "%s; its peers stay accepted for %g s",
                error,
                UNREADABLE,
                extra={"event": "trust.file-unreadable"},
            )
        return now - self.failing_since < UNREADABLE


async def in_thread(threads: CapacityLimiter, function: Callable[[], T]) -> T | None:
    """Run `function` in a thread; return None if it exceeds `UNREADABLE` seconds."""
    with move_on_after(UNREADABLE):
        return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=threads)
    return None
