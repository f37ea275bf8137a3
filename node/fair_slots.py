"""`FairSlots`: a limit that several peers share, divided fairly between them."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

H = TypeVar("H", bound=Hashable)

# Seconds after which an idle holder makes way for a peer that holds no more than its own peer does.
IDLE: Final = 10.0


class FairSlots(Generic[H]):
    """The holders of a shared limit, each with the identity of the peer that it works for: a node
    id, or the key of a remote address before the peer has authenticated.

    `idle_since` returns the time since which a holder waits for its peer, or None if it may not be
    evicted now. `idle` is the time in seconds after which an idle holder can be evicted for a peer
    that has the same number of slots.
    """

    __slots__ = ("_counts", "_idle", "_idle_since", "_owners")

    def __init__(self, idle_since: Callable[[H], float | None], idle: float = IDLE) -> None:
        self._idle_since = idle_since
        self._idle = idle
        self._owners: dict[H, Hashable] = {}
        self._counts: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def count(self, owner: Hashable) -> int:
        """Return the number of slots that an identity holds."""
        return self._counts[owner]

    def add(self, holder: H, owner: Hashable) -> None:
        """Count a holder until `remove`."""
        self._owners[holder] = owner
        self._counts[owner] += 1

    def remove(self, holder: H) -> None:
        """Stop counting a holder; does nothing if it was removed before."""
        if holder in self._owners:
            owner = self._owners.pop(holder)
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]

    def evict_for(self, owner: Hashable, now: float) -> H | None:
        """Remove the holder that makes way for one more of `owner` and return it for the caller to
        close; None if no holder can be evicted.

        It is the longest idle holder of the identity with the most slots. An identity that has at
        least two slots more than `owner` loses one immediately, any other only a holder that has
        been idle for `idle` seconds. An identity never loses a slot to one that has more slots.
        """
        mine = self._counts[owner]
        best, best_rank = None, (0, 0.0)
        for holder, other in self._owners.items():
            ahead = self._counts[other] - mine
            since = self._idle_since(holder) if ahead >= 0 else None
            if since is None or (ahead < 2 and now - since < self._idle):
                continue
            rank = (-ahead, since)
            if best is None or rank < best_rank:
                best, best_rank = holder, rank
        if best is not None:
            self.remove(best)
        return best
