"""Reads events for groups: new events with XREADGROUP, others with XPENDING and XCLAIM.

Each event that a group receives is delivered, released, or acknowledged because it is another event
of the API. A group that has vanished is recreated. The local state of groups is limited in size,
and can be lost without losing events.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final

import anyio
from coredis.exceptions import RedisError, StreamDuplicateConsumerGroupError

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError, BusUnavailableError
from parley._node.bus.identifiers import BEFORE_ALL, parse_id, split_name
from parley._node.bus.model import Delivery, StoredEvent
from parley._node.bus.redis.client import CANCEL_PATIENCE, RedisClient
from parley._node.bus.redis.errors import bus_error, is_missing_group
from parley._node.bus.redis.scripts import DUE_CHANNEL, RELEASE, TAKE, GroupKeys, keys_of
from parley._node.errors import ConfigError
from parley._node.logs import RateLimitedLogger
from parley._node.transport.conditions import Condition
from parley._node.transport.loop import Loop

# The most unsettled events remembered for a group; beyond that the oldest are forgotten. Only
# events that other consumers took over, and that were never settled here, can be so many.
MOST_HELD: Final = 100_000
# The most groups remembered, and consumers of each, because a peer can choose any names.
MOST_GROUPS: Final = 10_000
MOST_PLACES: Final = 10_000

# About the maximum size of the entries in one response, in bytes.
HANDFUL: Final = 2**20
# The most entries in one response, because the next ones may be large.
MOST: Final = 256
# The assumed size of an entry in a stream that was not read yet, in bytes.
FIRST: Final = 16 * 2**10
# The most streams whose entry size is remembered; beyond that the oldest are forgotten.
REMEMBERED: Final = 1_000


class GroupState:
    """A group and its consumers in this process.

    Attributes:
        name: the events that are read; other events of an API's stream are skipped.
        held: events delivered here and not settled, with their attempts.
        places: for each consumer, the ID after which it continues if the group vanishes.
        drained: consumers whose earlier process left no pending events.
        lost: consumers whose cancelled read received no response.
        is_due: whether events have become due since a consumer here last requested them.
        scopes: the cancel scopes of the reads that wait for new events.
    """

    __slots__ = (
        *("drained", "group", "held", "is_due", "keys", "lost", "name", "places", "scopes"),
    )

    def __init__(self, name: str, key: str, group: str) -> None:
        self.name = name
        self.group = group
        self.keys: GroupKeys = keys_of(key, group)
        self.held: dict[str, int] = {}
        self.places: dict[str, str] = {}
        self.drained: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.is_due = False
        self.scopes: set[anyio.CancelScope] = set()

    @property
    def key(self) -> str:
        """The stream's key."""
        return self.keys.stream

    def place(self, consumer: str) -> str:
        return self.places.get(consumer, BEFORE_ALL)

    def set_place(self, consumer: str, id: str) -> None:
        self.places.pop(consumer, None)
        self.places[consumer] = id
        if len(self.places) > MOST_PLACES:
            del self.places[next(iter(self.places))]

    @contextmanager
    def waiting(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Cancel `scope` when events become due."""
        self.scopes.add(scope)
        try:
            yield
        finally:
            self.scopes.discard(scope)

    def mark_drained(self, consumer: str) -> None:
        """Remember that no earlier process left this consumer pending events."""
        _remember(self.drained, consumer)

    def mark_lost(self, consumer: str) -> None:
        """Remember that the response to a cancelled read was lost: events may be pending."""
        _remember(self.lost, consumer)

    def handed(self, id: str, attempt: int) -> None:
        self.held.pop(id, None)  # The newest is last.
        self.held[id] = attempt
        if len(self.held) > MOST_HELD:
            del self.held[next(iter(self.held))]

    def settled(self, ids: Iterable[str]) -> None:
        for id in ids:
            self.held.pop(id, None)


def _remember(consumers: dict[str, None], consumer: str) -> None:
    """Add a consumer to a set of limited size."""
    consumers.pop(consumer, None)
    consumers[consumer] = None
    if len(consumers) > MOST_PLACES:
        del consumers[next(iter(consumers))]


class GroupStates:
    """The groups of one store."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], GroupState] = {}

    def of(self, name: str, key: str, group: str) -> GroupState:
        """Return the state of a group, created if necessary."""
        found = self._all.pop((key, group), None) or GroupState(name, key, group)
        self._all[key, group] = found  # The most recently used is last.
        if len(self._all) > MOST_GROUPS:
            del self._all[next(iter(self._all))]
        return found

    def known(self, key: str, group: str) -> GroupState | None:
        return self._all.get((key, group))

    def join(self, name: str, key: str, group: str) -> GroupState:
        """Return the state of a group before it reads events of this name.

        Raises:
            ConfigError: the group already reads other events of the same stream here, and each
                reader would acknowledge the events of the other.
        """
        found = self.of(name, key, group)
        if found.places and found.name != name:
            raise ConfigError(
                f"cannot read {name!r} for group {group!r}: it already reads {found.name!r} from "
                f"the same stream {key!r}; use another group"
            )
        found.name = name
        return found


class EntrySizes:
    """Limits the size of responses, by the size of the last entries of each stream.

    Unknown entries are assumed to be large.
    """

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest: dict[str, int] = {}

    def count(self, key: str, wanted: int) -> int:
        """Return how many entries to request, at most `wanted`."""
        return max(1, min(wanted, MOST, HANDFUL // self._longest.get(key, FIRST)))

    def saw(self, key: str, entries: Iterable[Sequence[bytes]]) -> None:
        """Record the fields of received entries."""
        longest = max((sum(map(len, fields)) for fields in entries), default=0)
        if not longest:
            return
        # After a large entry, allow twice as many entries each time.
        before = self._longest.pop(key, longest)
        self._longest[key] = max(longest, before // 2)
        if len(self._longest) > REMEMBERED:
            del self._longest[next(iter(self._longest))]


logger = logging.getLogger("parley.bus")

# The maximum time that one XREADGROUP blocks, in seconds; after that a dead connection is noticed.
LONGEST_BLOCK: Final = 5.0
# How often one call recreates a vanished group before it raises the error.
_MOST_CURES: Final = 3
# Values in place of an idle time, for events that are pending with this consumer and not here. With
# `_OWN`, an earlier process of its name may have started them. With `_LOST`, the response with them
# was lost and they were never started, so the attempt is not counted again.
_OWN: Final = -1
_LOST: Final = -2
_BURST: Final = 5
_PER_SECOND: Final = 0.1


class GroupReader:
    """Reads events of groups.

    Attributes:
        lost: the number of events trimmed while they were pending.
    """

    def __init__(
        self,
        client: RedisClient,
        config: BusConfig,
        loop: Loop,
        groups: GroupStates,
        sizes: EntrySizes,
    ) -> None:
        self._client = client
        self._config = config
        self._loop = loop
        self._groups = groups
        self._sizes = sizes
        self._log_limit = RateLimitedLogger(_BURST, _PER_SECOND)
        self.lost = 0

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        self._client.subscribe(DUE_CHANNEL, self._on_due)
        state = self._groups.join(stream, self._key(stream), group)
        await self._make(state, consumer, after)

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        state = self._groups.join(stream, self._key(stream), group)
        if consumer in state.lost:
            del state.lost[consumer]
            raise BusUnavailableError("Redis: the answer to a cancelled read was lost")
        if state.is_due and wait > 0:
            state.is_due = False
            return []
        deadline = self._loop.now() + wait
        cures = 0
        while True:
            left = deadline - self._loop.now()
            entries: list[tuple[bytes, list[bytes]]] = []
            scope = anyio.CancelScope()
            try:
                # A read that doesn't wait isn't ended by due events.
                ends_early = state.waiting(scope) if wait > 0 else nullcontext()
                with scope, ends_early:
                    entries = await self._new(state, consumer, count, min(left, LONGEST_BLOCK))
            except RedisError as error:
                if not is_missing_group(error) or cures == _MOST_CURES:
                    raise bus_error(error) from error
                cures += 1
                await self._recreate_group(state, consumer)
                continue
            if entries:
                found = await self._deliver(state, consumer, [(*entry, 1) for entry in entries])
                state.set_place(consumer, entries[-1][0].decode())
                if found:
                    return found
            elif left <= 0 or scope.cancelled_caught:
                return []

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        """Return this consumer's pending events that are not here.

        Events of an earlier process of its name come first, then those of lost responses.
        """
        state = self._groups.join(stream, self._key(stream), group)
        idle = _LOST if consumer in state.drained else _OWN
        found = await self._take(stream, group, consumer, count, idle)
        if not found:
            state.mark_drained(consumer)
        return found

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        self._groups.join(stream, self._key(stream), group).is_due = False
        return await self._take(stream, group, consumer, count, int(idle * 1000))

    # Internal.

    def _on_due(self, message: bytes) -> None:
        """End the reads that wait for new events, because events of a group are due."""
        key, _, group = message.decode(errors="replace").partition("\0")
        state = self._groups.known(key, group)
        if state is not None:
            state.is_due = True
            for scope in state.scopes:
                scope.cancel()

    async def _new(
        self, state: GroupState, consumer: str, count: int, block: float
    ) -> list[tuple[bytes, list[bytes]]]:
        milliseconds = int(block * 1000)
        portion = self._sizes.count(state.key, count)
        words: tuple[Any, ...] = (b"XREADGROUP", b"GROUP", state.group, consumer)
        words += (b"COUNT", portion)
        if milliseconds > 0:  # 0 would block forever.
            words += (b"BLOCK", milliseconds)
        words += (b"STREAMS", state.key, b">")

        async def give_back(answer: Any) -> None:
            await self._give_back(state, consumer, [id for id, _ in _entries(answer)])

        lost = partial(state.mark_lost, consumer)
        return _entries(await self._client.blocking(words, max(block, 0.0), give_back, lost))

    async def _give_back(self, state: GroupState, consumer: str, ids: list[bytes]) -> None:
        if ids:
            await self._client.script(RELEASE, state.keys, state.group, consumer, *ids)

    async def _take(
        self, stream: str, group: str, consumer: str, count: int, idle: int
    ) -> list[Delivery]:
        state = self._groups.join(stream, self._key(stream), group)
        found: list[Delivery] = []
        while not found:
            held = state.held if idle < 0 else ()
            try:
                take = partial(self._client.script, TAKE, state.keys, group, consumer)
                lost, taken = await handed_out(
                    self._loop,
                    partial(take, self._sizes.count(state.key, count), idle, *held),
                    lambda answer: self._give_back(state, consumer, [one[0] for one in answer[1]]),
                )
            except RedisError as error:
                if not is_missing_group(error):
                    raise bus_error(error) from error
                await self._recreate_group(state, consumer)
                return []
            if lost:
                self.lost += lost
                self._log(
                    {"event": "bus.trimmed-early", "stream": stream, "lost": lost},
                    "%d events of %s were trimmed before they were acknowledged",
                    lost,
                    stream,
                )
            if not taken:
                return []
            entries = [(id, fields, attempt) for id, attempt, fields in taken]
            found = await self._deliver(state, consumer, entries)
        return found

    async def _deliver(
        self,
        state: GroupState,
        consumer: str,
        entries: Sequence[tuple[bytes, list[bytes], int]],
    ) -> list[Delivery]:
        """Return the events to deliver, and acknowledge skipped entries."""
        form = self._config.format_of(split_name(state.name)[0])
        self._sizes.saw(state.key, (fields for _, fields, _ in entries))
        found = []
        passed = []
        for raw, fields, attempt in entries:
            id = raw.decode()
            event = form.read(state.name, id, fields)
            if isinstance(event, StoredEvent):
                found.append(Delivery(event, attempt))
                continue
            passed.append(id)
        if passed:
            await self._client.command(b"XACK", state.key, state.group, *passed)
        for event, attempt in found:
            state.handed(event.id, attempt)
        return found

    async def _make(self, state: GroupState, consumer: str, after: str) -> None:
        """Create the group and consumer, and store the group's position."""
        key, group = state.key, state.group
        made, joined, groups = await self._client.commands(
            [
                (b"XGROUP", b"CREATE", key, group, after, b"MKSTREAM"),
                (b"XGROUP", b"CREATECONSUMER", key, group, consumer),
                (b"XINFO", b"GROUPS", key),
            ]
        )
        for answer in (made, joined, groups):
            if isinstance(answer, StreamDuplicateConsumerGroupError):
                continue
            if isinstance(answer, BaseException):
                raise bus_error(answer) from answer
        for info in groups:
            if info[b"name"] == group.encode():
                state.set_place(consumer, info[b"last-delivered-id"].decode())

    async def _recreate_group(self, state: GroupState, consumer: str) -> None:
        """Recreate a vanished group at this consumer's position.

        It begins at the start of the stream if the stream is a new one.
        """
        after = state.place(consumer)
        try:
            info = await self._client.raw(b"XINFO", b"STREAM", state.key)
            if parse_id(info[b"last-generated-id"].decode()) < parse_id(after):
                after = BEFORE_ALL
        except RedisError as error:
            if not is_missing_group(error):
                raise bus_error(error) from error
            after = BEFORE_ALL
        self._log(
            {"event": "bus.group-vanished", "stream": state.key, "group": state.group},
            "recreated the vanished group %s of %s: it continues after %s",
            state.group,
            state.key,
            after,
        )
        await self._make(state, consumer, after)

    def _key(self, stream: str) -> str:
        return self._config.format_of(split_name(stream)[0]).key(stream)

    def _log(self, extra: Mapping[str, object], text: str, *words: object) -> None:
        self._log_limit.log(logger, logging.WARNING, self._loop.now(), text, *words, extra=extra)


def _entries(answer: Any) -> list[tuple[bytes, list[bytes]]]:
    """Return the entries in a response to XREADGROUP for one stream."""
    if not isinstance(answer, dict) or not answer:
        return []
    return [(id, fields or []) for id, fields in next(iter(answer.values()))]


class _UncancelledCall:
    """A request that runs in its own task, and its outcome."""

    __slots__ = ("answer", "changes", "error", "over")

    def __init__(self, loop: Loop) -> None:
        self.changes = Condition(loop.waiter)
        self.over = False
        self.answer: Any = None
        self.error: Exception | None = None

    async def run(self, ask: Callable[[], Awaitable[Any]]) -> None:
        try:
            self.answer = await ask()
        except Exception as error:
            self.error = error
        finally:
            self.over = True
            self.changes.notify()

    async def wait(self) -> None:
        await self.changes.until(lambda: self.over)


async def handed_out(
    loop: Loop,
    ask: Callable[[], Awaitable[Any]],
    give_back: Callable[[Any], Awaitable[object]],
) -> Any:
    """Return the result of `ask`; raise its errors.

    If the caller is cancelled, the result is passed to `give_back` first, unless that takes long.
    """
    question = _UncancelledCall(loop)
    loop.spawn(question.run, ask)
    try:
        await question.wait()
    except BaseException:
        with (
            anyio.move_on_after(CANCEL_PATIENCE, shield=True),
            suppress(BusError, RedisError),
        ):
            await question.wait()
            if question.error is None:
                await give_back(question.answer)
        raise
    if question.error is not None:
        raise question.error
    return question.answer
