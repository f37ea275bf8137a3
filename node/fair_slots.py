"""`FairSlots`: a limit shared fairly between peers."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

H = TypeVar("H", bound=Hashable)

# Seconds after which an idle slot can be taken over by a peer that holds no more slots.
IDLE: Final = 10.0


class FairSlots(Generic[H]):
    """The slots of a shared limit, each with the identity of the peer that holds it: a node ID, or
    the key of a remote address before the peer has authenticated.

    `idle_since` returns the time since which a holder has been idle, or None if it must not be
    evicted. After `idle` seconds, an idle holder can be evicted for a peer that has the same number
    of slots.
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
        """Occupy a slot until `remove`."""
        self._owners[holder] = owner
        self._counts[owner] += 1

    def remove(self, holder: H) -> None:
        """Free the slot of a holder, if it has one."""
        if holder in self._owners:
            owner = self._owners.pop(holder)
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]

    def evict_for(self, owner: Hashable, now: float) -> H | None:
        """Remove and return the holder to evict so that `owner` can get a slot, or None.

        The caller closes the evicted holder. It is the longest idle holder of the identity with the
        most slots. If that identity has at least two slots more than `owner`, it loses one
        immediately; otherwise only a holder that has been idle for `idle` seconds. An identity
        never loses a slot to one that has more slots.
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
