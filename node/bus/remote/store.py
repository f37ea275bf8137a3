"""`RemoteStore`: the bus that another node offers, as a `Store`.

Each method is one request, or several if the IDs don't fit into one. After reconnecting, a new
`RemoteStore` continues as the same consumer.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from parley._node.bus.batcher import Batcher, Bounds, Cost
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError, InvalidEventError
from parley._node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    NewEvent,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
    Trim,
)
from parley._node.bus.remote import limits
from parley._node.bus.remote import messages as wire
from parley._node.bus.remote.channel import BusChannel, LateAnswer, rows_of, unreadable
from parley._node.bus.store import Store
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import ResultCode
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream_table import StreamTable
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner


class ClientBuses:
    """Buses of another node, opened over one connection or link and closed with it.

    `make` creates their stores. `over` waits for the end of the connection and returns its reason.
    """

    __slots__ = ("_loop", "_make", "_open", "_over")

    def __init__(
        self, loop: Backend, make: Callable[[BusConfig], Store], over: Callable[[], Awaitable[str]]
    ) -> None:
        self._loop = loop
        self._make = make
        self._over = over
        self._open: dict[Bus, Runner] = {}

    def open(self, config: BusConfig | None) -> Bus:
        """Open another bus, like `Peer.bus`."""
        for one, runner in list(self._open.items()):
            if one.is_closed:
                runner.cancel()
                del self._open[one]
        config = config or BusConfig()
        bus = Bus(self._make(config), config, loop=lambda: self._loop)
        self._open[bus] = self._loop.spawn(self._close_at_end, bus)
        bus.begin()
        return bus

    async def aclose(self, because: str = "") -> None:
        for bus in list(self._open):
            await bus.aclose(because=because)

    async def _close_at_end(self, bus: Bus) -> None:
        await bus.aclose(because=await self._over())


logger = logging.getLogger("parley.bus")

# The most publish requests in progress: the next one is sent while the first is answered.
PUBLISHING: Final = 2


class RemoteStore:
    """The bus at the other end of a connection, on one `bus` stream that is reopened after a reset.

    Section 16 sets its limits: at most 1,000 events in a `publish`, which must fit into one payload
    of the connection, and consumer names of at most 203 characters.
    """

    def __init__(self, live: LiveConnection, streams: StreamTable, config: BusConfig) -> None:
        self._live = live
        self._channel = BusChannel(live, streams, config.timeout)
        self._batcher: Batcher[wire.Publish, list[Published]]
        self._loop: Backend
        self._too_large = RateLimitedLogger(10, 1.0)

    def __repr__(self) -> str:
        return f"<RemoteStore of {self._live.remote!r}>"

    async def open(self, loop: Backend) -> None:
        """Open the stream.

        Raises:
            BusClosedError: the connection is closed.
            BusBusyError: the connection has the maximum number of streams.
        """
        self._loop = loop
        size = min(self._live.limits.max_payload, limits.ANSWER_SIZE)
        bounds = Bounds(limits.LARGEST_COUNT, size, PUBLISHING)
        self._batcher = Batcher(self._publish, _cost, loop, bounds)
        self._channel.open()

    async def aclose(self) -> None:
        """Finish the stream, so that waiting requests raise BusClosedError."""
        await self._channel.aclose()

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        if not events:
            return []
        if len(events) > limits.LARGEST_COUNT:
            raise InvalidEventError(
                f"cannot publish {len(events):,} events in one call: a node accepts "
                f"{limits.LARGEST_COUNT:,}"
            )
        if self._channel.closed:
            raise BusClosedError("the bus is closed")
        given = [wire.EventRow(one.name, one.body, one.key, one.version) for one in events]
        return await self._batcher.submit(wire.Publish(given, durable))

    async def _publish(self, several: Sequence[wire.Publish]) -> list[list[Published]]:
        """Publish several requests as one: all are stored, or none."""
        alone = len(several) == 1
        events = several[0].events if alone else [event for one in several for event in one.events]
        answer = await self._channel.request(wire.Publish(events, several[0].durable))
        published = rows_of(answer, wire.read_published)
        if len(published) != len(events):
            raise unreadable()
        if alone:
            return [published]
        each = iter(published)
        return [[next(each) for _ in one.events] for one in several]

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        await self._channel.request(wire.Join(stream, group, consumer, after))

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        request = wire.Read(stream, group, consumer, _few(count), _short(wait))
        return await self._deliveries(request, request.wait)

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        return await self._deliveries(wire.Own(stream, group, consumer, _few(count)))

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        return await self._deliveries(wire.Claim(stream, group, consumer, _few(count), idle))

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        for some in self._channel.portions(ids, stream, group, consumer):
            await self._channel.request(wire.Touch(stream, group, consumer, some))

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        portions = self._channel.portions(ids, stream, group)
        return sum([await self._channel.count(wire.Ack(stream, group, some)) for some in portions])

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        error = error[: limits.LONGEST_ERROR]
        return bool(await self._channel.count(wire.Nack(stream, group, consumer, id, delay, error)))

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        for some in self._channel.portions(ids, stream, group, consumer):
            await self._channel.request(wire.Release(stream, group, consumer, some))

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        error = error[: limits.LONGEST_ERROR]
        answer = await self._channel.request(wire.Bury(stream, group, consumer, id, error))
        return next(iter(answer.ids or ()), None)

    # Inspection.

    async def streams(self) -> list[StreamInfo]:
        return await self._channel.pages(wire.ListStreams, wire.read_stream, lambda one: one.name)

    async def groups(self, stream: str) -> list[GroupInfo]:
        return await self._channel.pages(
            lambda after: wire.ListGroups(stream, after), wire.read_group, lambda one: one.name
        )

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        return await self._channel.pages(
            lambda after: wire.ListConsumers(stream, group, after),
            wire.read_consumer,
            lambda one: one.name,
        )

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        answer = await self._channel.request(wire.ListPending(stream, group, _few(count), after))
        return rows_of(answer, wire.read_pending)

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        request = wire.ReadHistory(stream, _few(count), after, until, _short(wait))
        answer = await self._channel.request(request, request.wait)
        if answer.code == ResultCode.PAYLOAD_TOO_LARGE:
            id = next(iter(answer.ids or ()), "?")
            raise InvalidEventError(
                f"cannot read event {id!r}: it is larger than the connection's max_payload"
            )
        return rows_of(answer, wire.read_stored)

    # Maintenance.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        await self._channel.request(wire.Rewind(stream, group, after))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for some in self._channel.portions(ids, stream, group):
            found += (await self._channel.request(wire.Redeliver(stream, group, some))).ids or []
        return found

    async def trim(self, stream: str, bounds: Trim) -> int:
        return await self._channel.count(wire.TrimStream(stream, *bounds))

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        portions = self._channel.portions(ids, stream)
        return sum([await self._channel.count(wire.Drop(stream, some)) for some in portions])

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        answer = await self._channel.request(wire.RemoveConsumers(stream, group, idle))
        return rows_of(answer, wire.read_name)

    async def remove_group(self, stream: str, group: str) -> bool:
        return bool(await self._channel.count(wire.RemoveGroup(stream, group)))

    # Internal.

    async def _deliveries(
        self, request: wire.Read | wire.Own | wire.Claim, wait: float = 0.0
    ) -> list[Delivery]:
        late = LateAnswer(self._loop.waiter())
        try:
            answer = await self._channel.request(request, wait, late)
        except anyio.get_cancelled_exc_class():
            await late.give_back(self._channel, request)
            raise
        if answer.code == ResultCode.PAYLOAD_TOO_LARGE:
            if self._too_large.allows(self._loop.now()):
                logger.warning(
                    "an event of %s is too large for the connection and may become a dead letter; "
                    "raise max_payload on both nodes",
                    request.name,
                    extra={"event": "bus.event-too-large", "stream": request.name},
                )
            return []
        return rows_of(answer, wire.read_delivery)


def _cost(request: wire.Publish) -> Cost:
    events = request.events
    size = sum(wire.row_cost([event.name, event.body, event.key]) for event in events)
    return Cost(len(events), size, request.durable)


def _few(count: int) -> int:
    return max(1, min(count, limits.LARGEST_COUNT))


def _short(wait: float) -> float:
    return max(0.0, min(wait, limits.LONGEST_WAIT_MS / 1000))


def connection_buses(live: LiveConnection, streams: StreamTable) -> ClientBuses:
    async def over() -> str:
        await live.closed()
        return f"the connection ended: {live.closed_error()}"

    return ClientBuses(live.backend, lambda config: RemoteStore(live, streams, config), over)
