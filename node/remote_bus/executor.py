"""Does what a peer asks of a store, and makes the answer.

Authorisation comes before, sending after. A peer learns details of what it sent itself, and of
nothing else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from parley._lbm.codec import CONTAINER_WEIGHT, ITEM_WEIGHT
from parley._node.bus.body import decode_body, encode_body
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusBusyError
from parley._node.bus.model import Counters, NewEvent, Trim
from parley._node.bus.schemas import Schemas
from parley._node.bus.store import Store
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.event_types import is_stream_name, is_word
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget
from parley._node.remote_bus import bus_requests as wire
from parley._node.remote_bus.answers import (
    Answer,
    Row,
    consumer_row,
    delivery_row,
    pending_row,
    stored_row,
    that_fit,
)
from parley._node.remote_bus.bus_limits import ANSWER_HEAD, LARGEST_COUNT
from parley._node.remote_bus.fetcher import DeliveryBatch, EventFetcher
from parley._node.remote_bus.unsettled import Leftovers, Unsettled
from parley._node.transport.loop import Loop


def _decoded_weight(body: str) -> int:
    """About how many bytes an event's data takes in memory, at most."""
    items, containers = body.count(",") + body.count(":"), body.count("[") + body.count("{")
    return EVENT_WEIGHT + 2 * len(body) + ITEM_WEIGHT * items + CONTAINER_WEIGHT * containers


@dataclass(frozen=True, slots=True)
class Offer:
    """A bus as one peer's streams see it: its consumers are called `prefix` and what it says.
    `counters` are those of the bus: what peers do is counted with what the node does itself."""

    store: Store
    config: BusConfig
    schemas: Schemas
    counters: Counters
    prefix: str


class RequestExecutor:
    """The requests of one stream. What is kept for the peer is charged to `account`."""

    def __init__(self, offer: Offer, loop: Loop, largest: int, account: MemoryBudget) -> None:
        """`largest` is the longest payload of an answer, in bytes."""
        self._offer = offer
        self._store = offer.store
        self._prefix = offer.prefix
        self._counters = offer.counters
        self._rows = largest - ANSWER_HEAD
        self._account = account
        self.unsettled = Unsettled(account)
        self.fetcher = EventFetcher(offer.store, loop, self._rows, account)
        # What each request that hands out no events does; all of it raises what the store raises.
        self.acts: dict[type[wire.Request], Callable[[Any], Awaitable[Answer]]] = {
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
        """An empty batch, for `fetch`."""
        return DeliveryBatch((request.name, request.group, self._prefix + request.consumer))

    async def fetch(
        self,
        request: wire.Read | wire.Own | wire.Claim,
        batch: DeliveryBatch,
        leftovers: Leftovers,
    ) -> Answer:
        """Hand out events: what is in `batch` when it returns, raises or is cancelled is either
        sent or given back by the caller. Raises what the store raises."""
        if isinstance(request, wire.Read):
            await self.fetcher.read(batch, request.number, request.wait)
        elif isinstance(request, wire.Own):
            left = leftovers.take(batch.place, request.number)
            await self.fetcher.own(batch, request.number, left)
        else:
            await self.fetcher.claim(batch, request.number, request.idle)
        if batch.too_large and not batch.deliveries:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE)
        return Answer(rows=[delivery_row(delivery) for delivery in batch.deliveries])

    def count_delivered(self, batch: DeliveryBatch) -> None:
        """Count events that were handed to the peer."""
        self._counters.delivered += len(batch.deliveries)
        self._counters.retried += sum(one.attempt > 1 for one in batch.deliveries)

    # Publishing.

    async def _publish(self, asked: wire.Publish) -> Answer:
        weight = 0
        for given in asked.events:
            weight += _decoded_weight(given.body)
        if not self._account.has_room(weight):
            raise BusBusyError(f"there is no room for {weight:,} bytes of events")
        self._account.charge(weight)
        try:
            published = await self._store.publish(
                list(map(self._new_event, asked.events)), durable=asked.durable
            )
        finally:
            self._account.release(weight)
        self._counters.published += sum(not one.duplicate for one in published)
        return Answer(rows=list(map(list, published)))

    def _new_event(self, given: wire.Given) -> NewEvent:
        data = decode_body(given.body)
        # Written anew: what is stored is as our own would be, and NaN is refused.
        body = encode_body(data, self._offer.config.max_event_bytes)
        if self._offer.schemas:
            self._offer.schemas.check_published(given.name, data)
        return NewEvent(given.name, data, body, given.key, given.version)

    # Consuming.

    async def _join(self, asked: wire.Join) -> Answer:
        consumer = self._prefix + asked.consumer
        await self._store.join(asked.name, asked.group, consumer, asked.after)
        return Answer()

    async def _touch(self, asked: wire.Touch) -> Answer:
        consumer = self._prefix + asked.consumer
        await self._store.touch(asked.name, asked.group, consumer, asked.ids)
        return Answer()

    async def _ack(self, asked: wire.Ack) -> Answer:
        name, group, ids = asked
        ours = self.unsettled.known(name, group, ids)
        count = await self._store.ack(name, group, ours) if ours else 0
        self._counters.acknowledged += count
        self.unsettled.settle(name, group, ours)
        return Answer(number=count)

    async def _nack(self, asked: wire.Nack) -> Answer:
        name, group, consumer, id, delay, error = asked
        done = await self._store.nack(name, group, self._prefix + consumer, id, delay, error)
        if done:
            self._counters.failed += 1
            self.unsettled.settle(name, group, [id])
        return Answer(number=int(done))

    async def _release(self, asked: wire.Release) -> Answer:
        name, group, consumer, ids = asked
        await self._store.release(name, group, self._prefix + consumer, ids)
        self.unsettled.settle(name, group, ids)
        return Answer()

    async def _bury(self, asked: wire.Bury) -> Answer:
        name, group, consumer, id, error = asked
        dead = await self._store.bury(name, group, self._prefix + consumer, id, error)
        if dead is not None:
            self._counters.failed += 1
            self._counters.dead_lettered += 1
            self.unsettled.settle(name, group, [id])
        return Answer(ids=[] if dead is None else [dead])

    # Looking.

    async def _streams(self, asked: wire.ListStreams) -> Answer:
        rows = [[*one] for one in await self._store.streams() if is_stream_name(one.name)]
        return self._page(rows, asked.after_name)

    async def _groups(self, asked: wire.ListGroups) -> Answer:
        found = await self._store.groups(asked.stream)
        return self._page([[*one] for one in found if is_word(one.name)], asked.after_name, by=1)

    async def _consumers(self, asked: wire.ListConsumers) -> Answer:
        found = await self._store.consumers(asked.stream, asked.group)
        rows = [consumer_row(one) for one in found if is_word(one.name)]
        return self._page(rows, asked.after_name)

    async def _pending(self, asked: wire.ListPending) -> Answer:
        found = await self._store.pending(*asked)
        rows, more = that_fit([pending_row(one) for one in found], self._rows)
        return Answer(rows=rows, more=more)

    async def _history(self, asked: wire.ReadHistory) -> Answer:
        stream, count, after, until, wait = asked
        found, too_large = await self.fetcher.history(stream, after, until, count, wait)
        if too_large is not None:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE, ids=[too_large.id])
        return Answer(rows=list(map(stored_row, found)))

    def _page(self, rows: list[Row], after: str, by: int = 0) -> Answer:
        """The rows with a name, at index `by`, that comes after `after`."""
        left = [row for row in rows if row[by] > after] if after else rows
        fit, more = that_fit(left[:LARGEST_COUNT], self._rows)
        return Answer(rows=fit, more=more or len(left) > LARGEST_COUNT)

    # Keeping order.

    async def _rewind(self, asked: wire.Rewind) -> Answer:
        await self._store.rewind(*asked)
        return Answer()

    async def _redeliver(self, asked: wire.Redeliver) -> Answer:
        return Answer(ids=await self._store.redeliver(*asked))

    async def _trim(self, asked: wire.TrimStream) -> Answer:
        stream, max_length, before, max_bytes, approximate = asked
        bounds = Trim(max_length, before, max_bytes, approximate)
        return Answer(number=await self._store.trim(stream, bounds))

    async def _drop(self, asked: wire.Drop) -> Answer:
        return Answer(number=await self._store.drop(*asked))

    async def _remove_consumers(self, asked: wire.RemoveConsumers) -> Answer:
        names = await self._store.remove_consumers(*asked)
        rows, more = that_fit([[name] for name in names if is_word(name)], self._rows)
        return Answer(rows=rows, more=more)

    async def _remove_group(self, asked: wire.RemoveGroup) -> Answer:
        return Answer(number=int(await self._store.remove_group(*asked)))
