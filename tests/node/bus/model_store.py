"""A store in memory: a reference model of node/bus/store.py in simple Python.

Lists are searched from the beginning, and each method does what its docstring in the protocol
specifies. There is no retention (which stores apply approximately) and no disk. When it is closed
and reopened, it has the same contents, like a process that restarts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from parley._node.bus.config import BusConfig
from parley._node.bus.data import decode_body, encode_body
from parley._node.bus.dead_letters import dead_data
from parley._node.bus.errors import BusClosedError, InvalidEventError
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL, EventId, dead_name, parse_id
from parley._node.bus.model import (
    ConsumerInfo,
    Delivery,
    Failure,
    GroupInfo,
    NewEvent,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
    Trim,
)
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Waiter

# A history is its first entry and the last ones.
LONGEST_HISTORY = 32
NOT_ACKNOWLEDGED = "not acknowledged"
LARGEST_DEAD_LETTER = 2**24
START = EventId(0, 0)

Found = TypeVar("Found")


@dataclass
class Pending:
    """A delivered event: pending with a consumer (`due` is None), or due at a time."""

    consumer: str
    attempt: int
    since: float  # The time of delivery or of the last touch.
    process: int  # The opening of the store in which it was delivered.
    due: float | None = None
    history: list[Failure] = field(default_factory=list)

    def is_held_by(self, consumer: str) -> bool:
        return self.due is None and self.consumer == consumer

    def failed(self, at: float, error: str) -> None:
        self.history.append(Failure(self.attempt, self.consumer, at, error))
        if len(self.history) > LONGEST_HISTORY:
            del self.history[1]


@dataclass
class Group:
    last: EventId
    pending: dict[EventId, Pending] = field(default_factory=dict)
    seen: dict[str, float] = field(
        default_factory=dict
    )  # Consumers, and the time of their last request.
    redelivered: int = 0
    dead_lettered: int = 0


@dataclass
class Stream:
    events: dict[EventId, StoredEvent] = field(default_factory=dict)  # In the order of IDs.
    groups: dict[str, Group] = field(default_factory=dict)
    keys: dict[str, tuple[str, float]] = field(default_factory=dict)  # The ID and time of each key.
    last: EventId = START  # The last ID ever published.

    def take_away(self, ids: list[EventId]) -> int:
        for id in ids:
            del self.events[id]
            for group in self.groups.values():
                group.pending.pop(id, None)
        return len(ids)

    def position(self, after: str) -> EventId:
        return self.last if after == AFTER_ALL else parse_id(after)


class ModelStore:
    """A `Store` in memory; `config.clock` is its clock."""

    def __init__(self, config: BusConfig) -> None:
        self._config = config
        self.table: dict[str, Stream] = {}
        self._last = START
        # The position of each consumer, in case its group vanishes; forgotten when the process
        # ends.
        self._places: dict[tuple[str, str, str], EventId] = {}
        self._loop: Backend | None = None
        self._process = 0
        self._waiters: set[Waiter] = set()

    async def open(self, loop: Backend) -> None:
        self._loop = loop
        self._process += 1

    async def aclose(self) -> None:
        self._loop = None
        self._places.clear()
        self._wake()

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        self._check_open()
        return [self._publish(event) for event in events]

    def _publish(self, event: NewEvent) -> Published:
        stream = self.table.setdefault(event.name, Stream())
        now = self._config.clock()
        if event.key is not None:
            for key, (_, at) in list(stream.keys.items()):
                if now - at >= self._config.idempotency_window:
                    del stream.keys[key]
            if event.key in stream.keys:
                return Published(stream.keys[event.key][0], duplicate=True)
        self._last = max(
            EventId(int(now * 1000), 0), EventId(self._last.milliseconds, self._last.number + 1)
        )
        id = stream.last = self._last
        stream.events[id] = StoredEvent(str(id), event.name, event.body, event.key, event.version)
        if event.key is not None:
            stream.keys[event.key] = (str(id), id.milliseconds / 1000)
            if len(stream.keys) > self._config.idempotency_keys:
                del stream.keys[next(iter(stream.keys))]
        self._wake()
        return Published(str(id))

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        self._check_open()
        found = self._make(stream, group, after)
        found.seen[consumer] = self._config.clock()
        self._places.setdefault((stream, group, consumer), found.last)

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        return await self._until(lambda: self._read(stream, group, consumer, count), wait)

    def _read(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        place = self._places.get((stream, group, consumer))
        found = self._make(stream, group, BEFORE_ALL if place is None else str(place))
        now = found.seen[consumer] = self._config.clock()
        events = self.table[stream].events
        deliveries = []
        for id in [id for id in events if id > found.last][:count]:
            found.pending[id] = Pending(consumer, 1, now, self._process)
            found.last = id
            deliveries.append(Delivery(events[id], 1))
        self._places[stream, group, consumer] = found.last
        return deliveries

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        self._check_open()
        return self._redeliver(
            stream,
            group,
            consumer,
            count,
            lambda one: one.is_held_by(consumer) and one.process < self._process,
        )

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        self._check_open()
        now = self._config.clock()

        def is_wanted(one: Pending) -> bool:
            if one.due is not None:
                return one.due <= now
            return now - one.since >= idle

        return self._redeliver(stream, group, consumer, count, is_wanted)

    def _redeliver(
        self,
        stream: str,
        group: str,
        consumer: str,
        count: int,
        is_wanted: Callable[[Pending], bool],
    ) -> list[Delivery]:
        found = self._find(stream, group)
        if found is None:
            return []
        now = found.seen[consumer] = self._config.clock()
        wanted = [id for id, one in sorted(found.pending.items(), key=_id) if is_wanted(one)]
        deliveries = []
        for id in wanted[:count]:
            one = found.pending[id]
            if one.due is None:
                one.failed(now, NOT_ACKNOWLEDGED)
            found.pending[id] = Pending(
                consumer, one.attempt + 1, now, self._process, None, one.history
            )
            if one.attempt + 1 > 1:
                found.redelivered += 1
            deliveries.append(Delivery(self.table[stream].events[id], one.attempt + 1))
        return deliveries

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        self._check_open()
        found = self._find(stream, group)
        if found is not None:
            found.seen[consumer] = self._config.clock()
        for id in ids:
            held = self._require_target(stream, group, consumer, id)
            if held is not None:
                held.since = self._config.clock()

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        self._check_open()
        found = self._find(stream, group)
        if found is None:
            return 0
        return sum(found.pending.pop(parse_id(id), None) is not None for id in ids)

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        self._check_open()
        held = self._require_target(stream, group, consumer, id)
        if held is None:
            return False
        held.failed(self._config.clock(), error)
        held.due = self._config.clock() + delay
        self._wake()
        return True

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        self._check_open()
        for id in ids:
            held = self._require_target(stream, group, consumer, id)
            if held is not None:
                held.attempt -= 1
                held.due = self._config.clock()
        self._wake()

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        self._check_open()
        held = self._require_target(stream, group, consumer, id)
        if held is None:
            return None
        held.failed(self._config.clock(), error)
        event = self.table[stream].events[parse_id(id)]
        try:
            data = decode_body(event.body)
        except InvalidEventError:
            data = None
        dead = dead_data(event, group, held.history, data)
        body = encode_body(dead, LARGEST_DEAD_LETTER)
        letter = self._publish(NewEvent(dead_name(stream), dead, body))
        found = self.table[stream].groups[group]
        found.dead_lettered += 1
        del found.pending[parse_id(id)]
        return letter.id

    # Inspection.

    async def streams(self) -> list[StreamInfo]:
        self._check_open()
        found = []
        for name, stream in sorted(self.table.items()):
            size = sum(len(event.body.encode()) for event in stream.events.values())
            ids = [str(id) for id in stream.events]
            ends = (ids[0], ids[-1]) if ids else (None, None)
            found.append(StreamInfo(name, len(ids), size, *ends))
        return found

    async def groups(self, stream: str) -> list[GroupInfo]:
        self._check_open()
        if stream not in self.table:
            return []
        here = self.table[stream]
        return [
            GroupInfo(
                stream=stream,
                name=name,
                lag=sum(id > group.last for id in here.events),
                pending=len(group.pending),
                redelivered=group.redelivered,
                dead_lettered=group.dead_lettered,
                consumers=len(group.seen),
                last_id=str(group.last),
            )
            for name, group in sorted(here.groups.items())
        ]

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        self._check_open()
        found = self._find(stream, group)
        if found is None:
            return []
        now = self._config.clock()
        return [
            ConsumerInfo(
                name, sum(one.is_held_by(name) for one in found.pending.values()), now - seen
            )
            for name, seen in sorted(found.seen.items())
        ]

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        self._check_open()
        found = self._find(stream, group)
        if found is None:
            return []
        now = self._config.clock()
        return [
            PendingInfo(
                str(id),
                one.consumer if one.due is None else "",
                one.attempt,
                now - one.since,
                None if one.due is None else max(0.0, one.due - now),
            )
            for id, one in sorted(found.pending.items(), key=_id)
            if id > parse_id(after)
        ][:count]

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        first = self.table.get(stream, Stream()).position(after)

        def look() -> list[StoredEvent]:
            return [
                event
                for id, event in self.table.get(stream, Stream()).events.items()
                if id > first and (until is None or id <= parse_id(until))
            ][:count]

        return await self._until(look, wait)

    # Maintenance.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        self._check_open()
        found = self._make(stream, group, after)
        found.last = self.table[stream].position(after)
        self._wake()

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        self._check_open()
        found = self._find(stream, group)
        if found is None:
            return []
        here = [id for id in ids if parse_id(id) in self.table[stream].events]
        now = self._config.clock()
        for id in here:
            found.pending[parse_id(id)] = Pending("", 0, now, self._process, due=now)
        self._wake()
        return here

    async def trim(self, stream: str, bounds: Trim) -> int:
        self._check_open()
        if stream not in self.table:
            return 0
        here = self.table[stream]
        before = None if bounds.before is None else parse_id(bounds.before)
        beyond = []
        size = 0
        for count, (id, event) in enumerate(reversed(here.events.items()), 1):
            size += len(event.body.encode())
            if (
                (bounds.max_length is not None and count > bounds.max_length)
                or (bounds.max_bytes is not None and size > bounds.max_bytes)
                or (before is not None and id < before)
            ):
                beyond.append(id)
        return here.take_away(beyond)

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        self._check_open()
        if stream not in self.table:
            return 0
        here = self.table[stream]
        return here.take_away([id for id in {parse_id(id) for id in ids} if id in here.events])

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        self._check_open()
        found = self._find(stream, group)
        if found is None:
            return []
        now = self._config.clock()
        names = sorted(name for name, seen in found.seen.items() if now - seen >= idle)
        for name in names:
            del found.seen[name]
            for one in found.pending.values():
                if one.is_held_by(name):
                    one.failed(now, NOT_ACKNOWLEDGED)
                    one.due = now
        self._wake()
        return names

    async def remove_group(self, stream: str, group: str) -> bool:
        self._check_open()
        found = self._find(stream, group)
        if found is not None:
            del self.table[stream].groups[group]
        return found is not None

    # Shared by the methods.

    def _check_open(self) -> Backend:
        if self._loop is None:
            raise BusClosedError("the bus is closed")
        return self._loop

    def _find(self, stream: str, group: str) -> Group | None:
        return self.table.get(stream, Stream()).groups.get(group)

    def _make(self, stream: str, group: str, after: str) -> Group:
        here = self.table.setdefault(stream, Stream())
        return here.groups.setdefault(group, Group(here.position(after)))

    def _require_target(self, stream: str, group: str, consumer: str, id: str) -> Pending | None:
        """Return the pending events that this consumer received and did not release."""
        found = self._find(stream, group)
        one = None if found is None else found.pending.get(parse_id(id))
        return one if one is not None and one.is_held_by(consumer) else None

    async def _until(self, look: Callable[[], list[Found]], wait: float) -> list[Found]:
        """Return the first non-empty result of `look`, waiting up to `wait` seconds."""
        loop = self._check_open()
        deadline = loop.now() + wait
        while not (found := look()):
            if loop.now() >= deadline:
                return []
            waiter = loop.waiter()
            timer = loop.call_at(deadline, waiter.wake)
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
                timer.cancel()
            self._check_open()
        return found

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.wake()


def _id(item: tuple[EventId, Pending]) -> EventId:
    return item[0]
