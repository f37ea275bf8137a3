"""Does what a peer asked of a store, and says what came of it.

One rule: each request has one answer, and whatever the store raises is a code of it; a peer
learns details of what it sent itself, and of nothing else. Authorisation is before, sending after.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lbm.decoder import CONTAINER_WEIGHT, ITEM_WEIGHT
from node.bus.body import decode_body, encode_body
from node.bus.config import BusConfig
from node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
)
from node.bus.model import NewEvent, Trim
from node.bus.schemas import Schemas
from node.bus.store import Store
from node.logs import one_line
from node.protocol.account import EVENT_WEIGHT, Account
from node.protocol.codes import ResultCode
from node.remote_bus import requests as wire
from node.remote_bus.answers import (
    Answer,
    Row,
    consumer_row,
    delivery_row,
    pending_row,
    that_fit,
)
from node.remote_bus.fetching import Batch, Fetching
from node.remote_bus.handed import Handed, Left
from node.remote_bus.limits import ANSWER_HEAD, LARGEST_COUNT, LONGEST_ERROR
from node.transport.loop import Loop

# What a store's errors are on the wire; the first that fits.
CODES: Final[tuple[tuple[type[BusError], ResultCode], ...]] = (
    (InvalidEventError, ResultCode.INVALID_EVENT),
    (BusUnavailableError, ResultCode.DEADLINE_EXCEEDED),
    (BusClosedError, ResultCode.DEADLINE_EXCEEDED),
    (BusBusyError, ResultCode.OVERLOADED),
    (BusRefusedError, ResultCode.NOT_AUTHORISED),
    (BusFullError, ResultCode.STORE_FULL),
    (BusDamagedError, ResultCode.STORE_DAMAGED),
)


def refused(error: BusError) -> Answer:
    """The answer that says so; only what is wrong with an event is told in words."""
    for kind, code in CODES:
        if isinstance(error, kind):
            told = code is ResultCode.INVALID_EVENT
            return Answer(code, one_line(str(error))[:LONGEST_ERROR] if told else "")
    return Answer(ResultCode.HANDLER_FAILED)


def _decoded_weight(body: str) -> int:
    """What an event's data takes in memory, about and at most: its texts, items, containers."""
    items, containers = body.count(",") + body.count(":"), body.count("[") + body.count("{")
    return EVENT_WEIGHT + 2 * len(body) + ITEM_WEIGHT * items + CONTAINER_WEIGHT * containers


class Performing:
    """The requests of one stream, whose peer's consumers are called `prefix` and what it says."""

    def __init__(
        self,
        store: Store,
        config: BusConfig,
        schemas: Schemas,
        loop: Loop,
        prefix: str,
        largest: int,
        left: Left,
        account: Account,
    ) -> None:
        """`largest` is the longest payload of an answer; what is kept is charged to `account`."""
        self._store = store
        self._config = config
        self._schemas = schemas
        self._prefix = prefix
        self._rows = largest - ANSWER_HEAD
        self._left = left
        self._account = account
        self.handed = Handed(account)
        self.fetching = Fetching(store, loop, self._rows, account)
        self._acts: dict[type[wire.Request], Callable[[Any], Awaitable[Answer]]] = {
            wire.Publish: self._publish,
            wire.Join: self._join,
            wire.Touch: self._touch,
            wire.Ack: self._ack,
            wire.Nack: self._nack,
            wire.Release: self._release,
            wire.Bury: self._bury,
            wire.Streams: self._streams,
            wire.Groups: self._groups,
            wire.Consumers: self._consumers,
            wire.Pending: self._pending,
            wire.History: self._history,
            wire.Rewind: self._rewind,
            wire.Redeliver: self._redeliver,
            wire.TrimStream: self._trim,
            wire.Drop: self._drop,
            wire.RemoveConsumers: self._remove_consumers,
            wire.RemoveGroup: self._remove_group,
        }

    async def perform(self, request: wire.Request) -> Answer:
        """Do what was asked, unless it hands out events; raises what the store raises."""
        return await self._acts[type(request)](request)

    def batch(self, request: wire.Read | wire.Own | wire.Claim) -> Batch:
        """An empty one, for `fetch`."""
        return Batch((request.name, request.group, self._prefix + request.consumer))

    async def fetch(self, request: wire.Read | wire.Own | wire.Claim, batch: Batch) -> Answer:
        """Hand out events: what is in `batch` when it returns, raises or is cancelled is either
        sent or given back by the caller."""
        if isinstance(request, wire.Read):
            await self.fetching.read(batch, request.number, request.wait)
        elif isinstance(request, wire.Own):
            left = self._left.take(batch.place, request.number)
            await self.fetching.own(batch, request.number, left)
        else:
            await self.fetching.claim(batch, request.number, request.idle)
        if batch.too_large and not batch.deliveries:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE)
        return Answer(rows=[delivery_row(delivery) for delivery in batch.deliveries])

    # Publishing.

    async def _publish(self, asked: wire.Publish) -> Answer:
        weight = sum(_decoded_weight(given.body) for given in asked.events)
        if not self._account.has_room(weight):
            raise BusBusyError("what is published finds no room")
        self._account.charge(weight)
        try:
            published = await self._store.publish(
                [self._new_event(given) for given in asked.events], durable=asked.durable
            )
        finally:
            self._account.release(weight)
        return Answer(rows=[[*one] for one in published])

    def _new_event(self, given: wire.Given) -> NewEvent:
        data = decode_body(given.body)
        # Written anew: what is stored is as our own would be, and NaN is refused.
        body = encode_body(data, self._config.max_event_bytes)
        self._schemas.check_published(given.name, data)
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
        ours = self.handed.known(name, group, ids)
        count = await self._store.ack(name, group, ours) if ours else 0
        self.handed.settle(name, group, ours)
        return Answer(number=count)

    async def _nack(self, asked: wire.Nack) -> Answer:
        name, group, consumer, id, delay, error = asked
        done = await self._store.nack(name, group, self._prefix + consumer, id, delay, error)
        if done:
            self.handed.settle(name, group, [id])
        return Answer(number=int(done))

    async def _release(self, asked: wire.Release) -> Answer:
        name, group, consumer, ids = asked
        await self._store.release(name, group, self._prefix + consumer, ids)
        self.handed.settle(name, group, ids)
        return Answer()

    async def _bury(self, asked: wire.Bury) -> Answer:
        name, group, consumer, id, error = asked
        dead = await self._store.bury(name, group, self._prefix + consumer, id, error)
        if dead is not None:
            self.handed.settle(name, group, [id])
        return Answer(ids=[] if dead is None else [dead])

    # Looking.

    async def _streams(self, asked: wire.Streams) -> Answer:
        return self._page([[*one] for one in await self._store.streams()], asked.after_name)

    async def _groups(self, asked: wire.Groups) -> Answer:
        found = await self._store.groups(asked.stream)
        return self._page([[*one] for one in found], asked.after_name, by=1)

    async def _consumers(self, asked: wire.Consumers) -> Answer:
        found = await self._store.consumers(asked.stream, asked.group)
        return self._page([consumer_row(one) for one in found], asked.after_name)

    async def _pending(self, asked: wire.Pending) -> Answer:
        found = await self._store.pending(*asked)
        rows, more = that_fit([pending_row(one) for one in found], self._rows)
        return Answer(rows=rows, more=more)

    async def _history(self, asked: wire.History) -> Answer:
        stream, count, after, until, wait = asked
        found, too_large = await self.fetching.history(stream, after, until, count, wait)
        if too_large is not None:
            return Answer(ResultCode.PAYLOAD_TOO_LARGE, ids=[too_large.id])
        return Answer(rows=[[*one] for one in found])

    def _page(self, rows: list[Row], after: str, by: int = 0) -> Answer:
        """The rows whose name, which stands at `by`, comes after `after`."""
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
        rows, more = that_fit([[name] for name in names], self._rows)
        return Answer(rows=rows, more=more)

    async def _remove_group(self, asked: wire.RemoveGroup) -> Answer:
        return Answer(number=int(await self._store.remove_group(*asked)))
