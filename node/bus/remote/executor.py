"""Executes a peer's requests on a store, and builds the answers.

The requests are already authorised. A peer sees error details only about data that it sent itself.

No event is lost or delayed because of its size. Events that do not fit into an answer are kept for
the next Read. An event that fits into no answer returns to the group, and finally becomes a dead
letter. Because `Store.ack` has no consumer argument, a stream can acknowledge only events that were
delivered on it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import anyio

from parley._lbm.codec import CONTAINER_WEIGHT, ITEM_WEIGHT
from parley._node.bus.config import BusConfig
from parley._node.bus.data import Schemas, decode_body, encode_body
from parley._node.bus.errors import BusBusyError, BusError
from parley._node.bus.identifiers import DEAD
from parley._node.bus.model import Counters, Delivery, NewEvent, StoredEvent, Trim
from parley._node.bus.remote import limits
from parley._node.bus.remote import messages as wire
from parley._node.bus.remote.limits import ANSWER_HEAD, HANDED, LARGEST_COUNT
from parley._node.bus.remote.messages import (
    Answer,
    Row,
    consumer_row,
    delivery_row,
    pending_row,
    row_cost,
    stored_row,
    take_fitting,
)
from parley._node.bus.store import Store
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.event_types import is_stream_name, is_word
from parley._node.protocol.memory_budget import (
    EVENT_WEIGHT,
    HANDED_WEIGHT,
    ROW_WEIGHT,
    MemoryBudget,
)
from parley._node.transport.loop import Loop, Timer

# The stream, group and consumer, with the names that the store uses.
ConsumerKey: TypeAlias = tuple[str, str, str]

_MOST: Final = HANDED


class OrphanedDeliveries:
    """Unsettled events of streams that have ended, until their consumer requests its own events.

    Their number is limited. Forgotten events are redelivered after their idle time.
    """

    __slots__ = ("_count", "_ids", "_most")

    def __init__(self, most: int = _MOST) -> None:
        self._ids: dict[ConsumerKey, dict[str, None]] = {}  # The oldest first, each with its IDs.
        self._count = 0
        self._most = most

    def __len__(self) -> int:
        return self._count

    def add(self, consumer_key: ConsumerKey, id: str) -> None:
        ids = self._ids.setdefault(consumer_key, {})
        self._count += id not in ids
        ids[id] = None
        if self._count > self._most:
            self.take(next(iter(self._ids)), 1)

    def take(self, consumer_key: ConsumerKey, count: int) -> list[str]:
        """Remove and return up to `count` IDs of a consumer."""
        ids = self._ids.get(consumer_key, {})
        found = list(islice(ids, count))
        for id in found:
            del ids[id]
        self._count -= len(found)
        if not ids:
            self._ids.pop(consumer_key, None)
        return found


class Unsettled:
    """Events delivered on one stream and not settled, charged to `account`.

    Their number is limited as in OrphanedDeliveries.
    """

    __slots__ = ("_account", "_consumers", "_most")

    def __init__(self, account: MemoryBudget, most: int = _MOST) -> None:
        self._account = account
        self._consumers: dict[tuple[str, str, str], str] = {}  # The oldest first.
        self._most = most

    def __len__(self) -> int:
        return len(self._consumers)

    def add(self, consumer_key: ConsumerKey, ids: Sequence[str]) -> None:
        stream, group, consumer = consumer_key
        consumers, before = self._consumers, len(self._consumers)
        for id in ids:
            consumers[stream, group, id] = consumer
        while len(consumers) > self._most:
            del consumers[next(iter(consumers))]
        self._account.charge(HANDED_WEIGHT * (len(consumers) - before))

    def known(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Return the IDs that were delivered here."""
        return [id for id in ids if (stream, group, id) in self._consumers]

    def settle(self, stream: str, group: str, ids: Sequence[str]) -> None:
        for id in ids:
            if self._consumers.pop((stream, group, id), None) is not None:
                self._account.release(HANDED_WEIGHT)

    def leave(self, leftovers: OrphanedDeliveries) -> None:
        """Move all events to `leftovers`, because the stream has ended."""
        for (stream, group, id), consumer in self._consumers.items():
            leftovers.add((stream, group, consumer), id)
        self._account.release(HANDED_WEIGHT * len(self._consumers))
        self._consumers.clear()


# The number of events requested while their size is unknown.
_FIRST = 16
# The maximum time to release events when the stream has ended, in seconds.
_PATIENCE = 5.0


@dataclass(slots=True)
class DeliveryBatch:
    """The events of an answer. `too_large` ones fit into no answer."""

    consumer_key: ConsumerKey
    deliveries: list[Delivery] = field(default_factory=list)
    too_large: list[Delivery] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [delivery.event.id for delivery in self.deliveries]


class _Kept(NamedTuple):
    """Deliveries that are kept for the next Read, with their size.

    At `deadline`, `timer` releases them.
    """

    deliveries: list[Delivery]
    size: int
    deadline: float
    timer: Timer


class EventFetcher:
    """Fetches the events for the answers of one stream, each with at most `largest` bytes of rows.

    Kept events are charged to `account`.
    """

    __slots__ = ("_account", "_kept", "_largest", "_loop", "_row", "_store", "_wanted", "size")

    def __init__(self, store: Store, loop: Loop, largest: int, account: MemoryBudget) -> None:
        self._account = account
        self._store = store
        self._loop = loop
        self._largest = largest
        self._wanted = min(largest, limits.ANSWER_SIZE)
        self._row = self._wanted // _FIRST  # The longest row of the last answer.
        self._kept: dict[ConsumerKey, _Kept] = {}
        self.size = 0  # The total size of kept events.

    async def read(self, batch: DeliveryBatch, count: int, wait: float) -> None:
        """Fill a batch with `Store.read`, kept events first."""
        kept = self._take_kept(batch.consumer_key)
        if kept is None:
            found = await self._store.read(*batch.consumer_key, self._count(count), wait)
            deadline = self._loop.now() + limits.KEPT_FOR
        else:
            found, deadline = kept.deliveries, kept.deadline
        # From here on nothing waits until all events are accounted for.
        rest = [*self._fill(batch, found[:count]), *found[count:]]
        if rest and not self._keep(batch.consumer_key, rest, deadline):
            await self._give_back(batch.consumer_key, rest)
        await self._return_too_large(batch)

    async def recover_pending(self, batch: DeliveryBatch, count: int, left: Sequence[str]) -> None:
        """Fill a batch with `Store.recover_pending`: the events of the consumer's last process.

        `left` are their IDs that this node remembers.
        """
        stream, group, consumer = batch.consumer_key
        await self._redeliver(
            batch, await self._store.recover_pending(*batch.consumer_key, self._count(count))
        )
        due = 0
        for id in left:
            due += await self._store.nack(stream, group, consumer, id, 0.0, "the connection ended")
        if due:
            idle = limits.LONGEST_TIME_MS / 1000
            await self._redeliver(batch, await self._store.claim(*batch.consumer_key, due, idle))

    async def claim(self, batch: DeliveryBatch, count: int, idle: float) -> None:
        found = await self._store.claim(*batch.consumer_key, self._count(count), idle)
        await self._redeliver(batch, found)

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> tuple[list[StoredEvent], StoredEvent | None]:
        """Return the events of `Store.history` that fit, or the first one if it is too large."""
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
        """Release and remove the events of a batch that could not be sent."""
        deliveries, batch.deliveries, batch.too_large = (
            [*batch.deliveries, *batch.too_large],
            [],
            [],
        )
        await self._give_back(batch.consumer_key, deliveries)

    async def aclose(self) -> None:
        """Release kept events, because the stream has ended."""
        for consumer_key in list(self._kept):
            kept = self._take_kept(consumer_key)
            if kept is not None:
                await self._give_back(consumer_key, kept.deliveries)

    # Internal.

    def _count(self, count: int) -> int:
        """Return how many events to request, by the size of the last ones."""
        return max(1, min(count, self._wanted // self._row))

    def _fill(self, batch: DeliveryBatch, found: list[Delivery]) -> list[Delivery]:
        """Add events that fit to the batch, in order; return the others."""
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
        await self._give_back(batch.consumer_key, rest)
        await self._return_too_large(batch)

    async def _return_too_large(self, batch: DeliveryBatch) -> None:
        """Return events that fit into no answer to the group, or bury them after some attempts."""
        stream, group, consumer = batch.consumer_key
        for delivery in batch.too_large:
            error = f"of {_cost(delivery):,} bytes; answers to this node take {self._largest:,}"
            id, attempt = delivery.event.id, delivery.attempt
            if attempt >= limits.TOO_LARGE_ATTEMPTS and not stream.endswith(f".{DEAD}"):
                await self._store.bury(stream, group, consumer, id, error)
            else:
                delay = limits.TOO_LARGE_DELAY
                await self._store.nack(stream, group, consumer, id, delay, error)

    def _keep(self, consumer_key: ConsumerKey, deliveries: list[Delivery], deadline: float) -> bool:
        """Keep events for the next Read; return whether there is space for them."""
        size = sum(map(_cost, deliveries))
        weight = size + ROW_WEIGHT * len(deliveries)
        if self.size + size > limits.KEPT_SIZE or not self._account.has_room(weight):
            return False
        before = self._take_kept(consumer_key)
        if before is not None:
            deliveries, deadline = [*before.deliveries, *deliveries], before.deadline
            size += before.size
        timer = self._loop.call_at(deadline, lambda: self._expire(consumer_key))
        self._kept[consumer_key] = _Kept(deliveries, size, deadline, timer)
        self.size += size
        self._account.charge(size + ROW_WEIGHT * len(deliveries))
        return True

    def _take_kept(self, consumer_key: ConsumerKey) -> _Kept | None:
        kept = self._kept.pop(consumer_key, None)
        if kept is not None:
            kept.timer.cancel()
            self.size -= kept.size
            self._account.release(kept.size + ROW_WEIGHT * len(kept.deliveries))
        return kept

    def _expire(self, consumer_key: ConsumerKey) -> None:
        kept = self._take_kept(consumer_key)
        if kept is not None:
            self._loop.spawn(self._give_back, consumer_key, kept.deliveries)

    async def _give_back(self, consumer_key: ConsumerKey, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        ids = [delivery.event.id for delivery in deliveries]
        with suppress(BusError), anyio.move_on_after(_PATIENCE, shield=True):
            for start in range(0, len(ids), limits.LARGEST_COUNT):
                await self._store.release(*consumer_key, ids[start : start + limits.LARGEST_COUNT])


def _cost(delivery: Delivery) -> int:
    return row_cost(delivery_row(delivery))


def _decoded_weight(body: str) -> int:
    """Return about the maximum memory that an event's decoded data needs, in bytes."""
    items, containers = body.count(",") + body.count(":"), body.count("[") + body.count("{")
    return EVENT_WEIGHT + 2 * len(body) + ITEM_WEIGHT * items + CONTAINER_WEIGHT * containers


@dataclass(frozen=True, slots=True)
class Offer:
    """A bus for the streams of one peer.

    `prefix` begins the names of the peer's consumers. `counters` are the bus's own.
    """

    store: Store
    config: BusConfig
    schemas: Schemas
    counters: Counters
    prefix: str


class RequestExecutor:
    """Executes the requests of one stream. Memory used for the peer is charged to `account`."""

    def __init__(self, offer: Offer, loop: Loop, largest: int, account: MemoryBudget) -> None:
        """`largest` is the maximum payload of an answer, in bytes."""
        self._offer = offer
        self._store = offer.store
        self._prefix = offer.prefix
        self._counters = offer.counters
        self._rows = largest - ANSWER_HEAD
        self._account = account
        self.unsettled = Unsettled(account)
        self.fetcher = EventFetcher(offer.store, loop, self._rows, account)
        # The method for each request that delivers no events. All of them raise the store's errors.
        self.operations: dict[type[wire.Request], Callable[[Any], Awaitable[Answer]]] = {
            wire.Publish: self._publish,
            wire.Join: self._join,
            wire.Touch: self._touch,
            wire.Ack: self._ack,
            wire.Nack: self._nack,
            wire.Release: self._release,
            wire.Bury: self._bury,
            wire.ListStreams: self._streams,
            wire.ListGroups: self._groups,
            wire.ListConsumers: self._consumers,
            wire.ListPending: self._pending,
            wire.ReadHistory: self._history,
            wire.Rewind: self._rewind,
            wire.Redeliver: self._redeliver,
            wire.TrimStream: self._trim,
            wire.Drop: self._drop,
            wire.RemoveConsumers: self._remove_consumers,
            wire.RemoveGroup: self._remove_group,
        }

    def batch(self, request: wire.Read | wire.Own | wire.Claim) -> DeliveryBatch:
        return DeliveryBatch((request.name, request.group, self._prefix + request.consumer))

    async def fetch(
        self,
        request: wire.Read | wire.Own | wire.Claim,
        batch: DeliveryBatch,
        leftovers: OrphanedDeliveries,
    ) -> Answer:
        """Fill a batch for a request and return the answer. Raises the store's errors.

        The caller must send or release the contents of `batch`, even after an error or a
        cancellation.
        """
        if isinstance(request, wire.Read):
            await self.fetcher.read(batch, request.number, request.wait)
        elif isinstance(request, wire.Own):
            left = leftovers.take(batch.consumer_key, request.number)
            await self.fetcher.recover_pending(batch, request.number, left)
        else:
            await self.fetcher.claim(batch, request.number, request.idle)
        if batch.too_large and not batch.deliveries:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE)
        return Answer(rows=[delivery_row(delivery) for delivery in batch.deliveries])

    def count_delivered(self, batch: DeliveryBatch) -> None:
        self._counters.delivered += len(batch.deliveries)
        self._counters.retried += sum(one.attempt > 1 for one in batch.deliveries)

    # Publishing.

    async def _publish(self, request: wire.Publish) -> Answer:
        weight = 0
        for given in request.events:
            weight += _decoded_weight(given.body)
        if not self._account.try_charge(weight):
            raise BusBusyError(f"there is no room for {weight:,} bytes of events")
        try:
            published = await self._store.publish(
                list(map(self._new_event, request.events)), durable=request.durable
            )
        finally:
            self._account.release(weight)
        for one in published:
            self._counters.published += not one.duplicate
        return Answer(rows=list(map(list, published)))

    def _new_event(self, given: wire.EventRow) -> NewEvent:
        data = decode_body(given.body)
        # Encode the data again, so that it is stored like local data and NaN is rejected.
        body = encode_body(data, self._offer.config.max_event_bytes)
        if not self._offer.schemas.is_empty:
            self._offer.schemas.check_published(given.name, data)
        return NewEvent(given.name, data, body, given.key, given.version)

    # Consuming.

    async def _join(self, request: wire.Join) -> Answer:
        consumer = self._prefix + request.consumer
        await self._store.join(request.name, request.group, consumer, request.after)
        return Answer()

    async def _touch(self, request: wire.Touch) -> Answer:
        consumer = self._prefix + request.consumer
        await self._store.touch(request.name, request.group, consumer, request.ids)
        return Answer()

    async def _ack(self, request: wire.Ack) -> Answer:
        name, group, ids = request
        known = self.unsettled.known(name, group, ids)
        count = await self._store.ack(name, group, known) if known else 0
        self._counters.acknowledged += count
        self.unsettled.settle(name, group, known)
        return Answer(number=count)

    async def _nack(self, request: wire.Nack) -> Answer:
        name, group, consumer, id, delay, error = request
        done = await self._store.nack(name, group, self._prefix + consumer, id, delay, error)
        if done:
            self._counters.failed += 1
            self.unsettled.settle(name, group, [id])
        return Answer(number=int(done))

    async def _release(self, request: wire.Release) -> Answer:
        name, group, consumer, ids = request
        await self._store.release(name, group, self._prefix + consumer, ids)
        self.unsettled.settle(name, group, ids)
        return Answer()

    async def _bury(self, request: wire.Bury) -> Answer:
        name, group, consumer, id, error = request
        dead = await self._store.bury(name, group, self._prefix + consumer, id, error)
        if dead is not None:
            self._counters.failed += 1
            self._counters.dead_lettered += 1
            self.unsettled.settle(name, group, [id])
        return Answer(ids=[] if dead is None else [dead])

    # Inspection.

    async def _streams(self, request: wire.ListStreams) -> Answer:
        rows = [[*one] for one in await self._store.streams() if is_stream_name(one.name)]
        return self._page(rows, request.after_name)

    async def _groups(self, request: wire.ListGroups) -> Answer:
        found = await self._store.groups(request.stream)
        return self._page([[*one] for one in found if is_word(one.name)], request.after_name, by=1)

    async def _consumers(self, request: wire.ListConsumers) -> Answer:
        found = await self._store.consumers(request.stream, request.group)
        rows = [consumer_row(one) for one in found if is_word(one.name)]
        return self._page(rows, request.after_name)

    async def _pending(self, request: wire.ListPending) -> Answer:
        found = await self._store.pending(*request)
        rows, more = take_fitting([pending_row(one) for one in found], self._rows)
        return Answer(rows=rows, more=more)

    async def _history(self, request: wire.ReadHistory) -> Answer:
        stream, count, after, until, wait = request
        found, too_large = await self.fetcher.history(stream, after, until, count, wait)
        if too_large is not None:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE, ids=[too_large.id])
        return Answer(rows=list(map(stored_row, found)))

    def _page(self, rows: list[Row], after: str, by: int = 0) -> Answer:
        """Return the rows whose name, at index `by`, comes after `after`."""
        left = [row for row in rows if row[by] > after] if after else rows
        fit, more = take_fitting(left[:LARGEST_COUNT], self._rows)
        return Answer(rows=fit, more=more or len(left) > LARGEST_COUNT)

    # Maintenance.

    async def _rewind(self, request: wire.Rewind) -> Answer:
        await self._store.rewind(*request)
        return Answer()

    async def _redeliver(self, request: wire.Redeliver) -> Answer:
        return Answer(ids=await self._store.redeliver(*request))

    async def _trim(self, request: wire.TrimStream) -> Answer:
        stream, max_length, before, max_bytes, approximate = request
        bounds = Trim(max_length, before, max_bytes, approximate)
        return Answer(number=await self._store.trim(stream, bounds))

    async def _drop(self, request: wire.Drop) -> Answer:
        return Answer(number=await self._store.drop(*request))

    async def _remove_consumers(self, request: wire.RemoveConsumers) -> Answer:
        names = await self._store.remove_consumers(*request)
        rows, more = take_fitting([[name] for name in names if is_word(name)], self._rows)
        return Answer(rows=rows, more=more)

    async def _remove_group(self, request: wire.RemoveGroup) -> Answer:
        return Answer(number=int(await self._store.remove_group(*request)))
