"""Which events a peer was handed and has not settled: what it may acknowledge, and what it gets
again.

`Store.ack` asks for no consumer, so a stream acknowledges only what was handed out on it. Both
tables are bounded; what they forget comes again once it was idle, as after any crash.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeAlias

from parley._node.protocol.memory_budget import HANDED_WEIGHT, MemoryBudget
from parley._node.remote_bus.bus_limits import HANDED

# The stream, the group and the consumer, as the store knows them.
Place: TypeAlias = tuple[str, str, str]

_MOST: Final = HANDED


class Leftovers:
    """Events handed out on streams that have ended, until their consumer asks for its own."""

    __slots__ = ("_count", "_most", "_places")

    def __init__(self, most: int = _MOST) -> None:
        self._places: dict[Place, dict[str, None]] = {}  # the oldest first, and of each its ids
        self._count = 0
        self._most = most

    def __len__(self) -> int:
        return self._count

    def add(self, place: Place, id: str) -> None:
        """The stream on which it was handed out has ended."""
        ids = self._places.setdefault(place, {})
        self._count += id not in ids
        ids[id] = None
        if self._count > self._most:
            self.take(next(iter(self._places)), 1)

    def take(self, place: Place, count: int) -> list[str]:
        """Up to `count` ids of this consumer, which are then forgotten."""
        ids = self._places.get(place, {})
        found = list(islice(ids, count))
        for id in found:
            del ids[id]
        self._count -= len(found)
        if not ids:
            self._places.pop(place, None)
        return found


class Unsettled:
    """Events handed out on one stream and not settled yet; charged to `account`."""

    __slots__ = ("_account", "_consumers", "_most")

    def __init__(self, account: MemoryBudget, most: int = _MOST) -> None:
        self._account = account
        self._consumers: dict[tuple[str, str, str], str] = {}  # the oldest first
        self._most = most

    def __len__(self) -> int:
        return len(self._consumers)

    def add(self, place: Place, ids: Sequence[str]) -> None:
        """They are being handed out to the consumer."""
        stream, group, consumer = place
        consumers, before = self._consumers, len(self._consumers)
        for id in ids:
            consumers[stream, group, id] = consumer
        while len(consumers) > self._most:
            del consumers[next(iter(consumers))]
        self._account.charge(HANDED_WEIGHT * (len(consumers) - before))

    def known(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Those of `ids` that were handed out here."""
        return [id for id in ids if (stream, group, id) in self._consumers]

    def settle(self, stream: str, group: str, ids: Sequence[str]) -> None:
        """They are done, or given back."""
        for id in ids:
            if self._consumers.pop((stream, group, id), None) is not None:
                self._account.release(HANDED_WEIGHT)

    def leave(self, leftovers: Leftovers) -> None:
        """The stream has ended."""
        for (stream, group, id), consumer in self._consumers.items():
            leftovers.add((stream, group, consumer), id)
        self._account.release(HANDED_WEIGHT * len(self._consumers))
        self._consumers.clear()
