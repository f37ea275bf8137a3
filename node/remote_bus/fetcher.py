"""Events for a peer: as many as an answer has room for, and what becomes of the others.

Nothing that was taken from the store is lost or delayed because of its size: what does not fit
into an answer is kept for the next Read, and what fits into none is handed back to the group, and
at last to the dead letters.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from parley._node.bus.errors import BusError
from parley._node.bus.model import Delivery, StoredEvent
from parley._node.bus.names import DEAD
from parley._node.bus.store import Store
from parley._node.protocol.memory_budget import ROW_WEIGHT, MemoryBudget
from parley._node.remote_bus import bus_limits as limits
from parley._node.remote_bus.answers import delivery_row, row_cost
from parley._node.remote_bus.unsettled import Place
from parley._node.transport.loop import Loop, Timer

# Events that are asked for as long as nothing is known of their size.
_FIRST = 16
# Seconds that giving back takes at most when the stream is over.
_PATIENCE = 5.0


@dataclass(slots=True)
class DeliveryBatch:
    """Events to answer with: `deliveries` are the peer's once they are sent; no answer has room
    for those that are `too_large`."""

    place: Place
    deliveries: list[Delivery] = field(default_factory=list)
    too_large: list[Delivery] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [delivery.event.id for delivery in self.deliveries]


class _Kept(NamedTuple):
    """What waits for the next Read until `deadline`, when `timer` gives it back; its bytes."""

    deliveries: list[Delivery]
    size: int
    deadline: float
    timer: Timer


class EventFetcher:
    """The events of one stream's answers, each with at most `largest` bytes of rows; what is kept
    for the next is charged to `account`."""

    __slots__ = ("_account", "_kept", "_largest", "_loop", "_row", "_store", "_wanted", "size")

    def __init__(self, store: Store, loop: Loop, largest: int, account: MemoryBudget) -> None:
        self._account = account
        self._store = store
        self._loop = loop
        self._largest = largest
        self._wanted = min(largest, limits.ANSWER_SIZE)
        self._row = self._wanted // _FIRST  # the longest row of the last answer
        self._kept: dict[Place, _Kept] = {}
        self.size = 0  # of all that is kept

    async def read(self, batch: DeliveryBatch, count: int, wait: float) -> None:
        """Fill a batch as `Store.read`; what was kept comes first."""
        kept = self._take_kept(batch.place)
        if kept is None:
            found = await self._store.read(*batch.place, self._count(count), wait)
            deadline = self._loop.now() + limits.KEPT_FOR
        else:
            found, deadline = kept.deliveries, kept.deadline
        # Nothing waits from here on until all of them are accounted for.
        rest = [*self._fill(batch, found[:count]), *found[count:]]
        if rest and not self._keep(batch.place, rest, deadline):
            await self._give_back(batch.place, rest)
        await self._set_aside(batch)

    async def own(self, batch: DeliveryBatch, count: int, left: Sequence[str]) -> None:
        """Fill a batch as `Store.own`, with what the consumer's last process left: `left` are the
        ids that this node remembers of it."""
        stream, group, consumer = batch.place
        await self._redeliver(batch, await self._store.own(*batch.place, self._count(count)))
        due = 0
        for id in left:
            due += await self._store.nack(stream, group, consumer, id, 0.0, "the connection ended")
        if due:
            idle = limits.LONGEST_TIME_MS / 1000
            await self._redeliver(batch, await self._store.claim(*batch.place, due, idle))

    async def claim(self, batch: DeliveryBatch, count: int, idle: float) -> None:
        """Fill a batch as `Store.claim`."""
        found = await self._store.claim(*batch.place, self._count(count), idle)
        await self._redeliver(batch, found)

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> tuple[list[StoredEvent], StoredEvent | None]:
        """As `Store.history`: the events that fit; if none does, the one that is too large."""
        found = await self._store.history(stream, after, until, self._count(count), wait)
        fit: list[StoredEvent] = []
        room = self._wanted
        for event in found:
            cost = row_cost([*event])
            if cost > self._largest or (fit and cost > room):
                return fit, (event if not fit else None)
            fit.append(event)
            room -= cost
        return fit, None

    async def give_back(self, batch: DeliveryBatch) -> None:
        """Give back a batch that could not be sent; it is empty then."""
        deliveries, batch.deliveries, batch.too_large = (
            [*batch.deliveries, *batch.too_large],
            [],
            [],
        )
        await self._give_back(batch.place, deliveries)

    async def aclose(self) -> None:
        """The stream is over: give back what is kept."""
        for place in list(self._kept):
            kept = self._take_kept(place)
            if kept is not None:
                await self._give_back(place, kept.deliveries)

    # Inside.

    def _count(self, count: int) -> int:
        """How many to ask for, going by the size of the last ones."""
        return max(1, min(count, self._wanted // self._row))

    def _fill(self, batch: DeliveryBatch, found: list[Delivery]) -> list[Delivery]:
        """Take what fits, in order; returns the rest."""
        room, longest = self._wanted - sum(map(_cost, batch.deliveries)), 1
        for at, delivery in enumerate(found):
            cost = _cost(delivery)
            if cost > self._largest:
                batch.too_large.append(delivery)
                continue
            longest = max(longest, cost)
            if batch.deliveries and cost > room:
                self._row = longest
                return found[at:]
            batch.deliveries.append(delivery)
            room -= cost
        if batch.deliveries:
            self._row = longest
        return []

    async def _redeliver(self, batch: DeliveryBatch, found: list[Delivery]) -> None:
        rest = self._fill(batch, found)
        await self._give_back(batch.place, rest)
        await self._set_aside(batch)

    async def _set_aside(self, batch: DeliveryBatch) -> None:
        """Hand on what no answer has room for: to others, and after some attempts to the dead
        letters."""
        stream, group, consumer = batch.place
        for delivery in batch.too_large:
            error = f"of {_cost(delivery):,} bytes; answers to this node take {self._largest:,}"
            id, attempt = delivery.event.id, delivery.attempt
            if attempt >= limits.TOO_LARGE_ATTEMPTS and not stream.endswith(f".{DEAD}"):
                await self._store.bury(stream, group, consumer, id, error)
            else:
                delay = limits.TOO_LARGE_DELAY
                await self._store.nack(stream, group, consumer, id, delay, error)

    def _keep(self, place: Place, deliveries: list[Delivery], deadline: float) -> bool:
        """Keep them for the next Read, if there is room."""
        size = sum(map(_cost, deliveries))
        weight = size + ROW_WEIGHT * len(deliveries)
        if self.size + size > limits.KEPT_SIZE or not self._account.has_room(weight):
            return False
        before = self._take_kept(place)
        if before is not None:
            deliveries, deadline = [*before.deliveries, *deliveries], before.deadline
            size += before.size
        timer = self._loop.at(deadline, lambda: self._expire(place))
        self._kept[place] = _Kept(deliveries, size, deadline, timer)
        self.size += size
        self._account.charge(size + ROW_WEIGHT * len(deliveries))
        return True

    def _take_kept(self, place: Place) -> _Kept | None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            kept.timer.cancel()
            self.size -= kept.size
            self._account.release(kept.size + ROW_WEIGHT * len(kept.deliveries))
        return kept

    def _expire(self, place: Place) -> None:
        kept = self._take_kept(place)
        if kept is not None:
            self._loop.spawn(self._give_back, place, kept.deliveries)

    async def _give_back(self, place: Place, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        ids = [delivery.event.id for delivery in deliveries]
        with suppress(BusError), anyio.move_on_after(_PATIENCE, shield=True):
            for start in range(0, len(ids), limits.LARGEST_COUNT):
                await self._store.release(*place, ids[start : start + limits.LARGEST_COUNT])


def _cost(delivery: Delivery) -> int:
    return row_cost(delivery_row(delivery))
