"""`RedisStore`: a store on Redis Streams.

Events are published with XADD, as in Lightbus. A script runs only for operations that must be
atomic: idempotency keys, several events in one call, or the outcome of a pending event.
"""

import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, NamedTuple

from coredis.exceptions import RedisError

from parley._crypto.randomness import random_bytes
from parley._node.bus.config import BusConfig
from parley._node.bus.data import UNREADABLE, decode_body, encode_value
from parley._node.bus.dead_letters import dead_data, error_line, shorten
from parley._node.bus.errors import BusClosedError, InvalidEventError
from parley._node.bus.identifiers import (
    AFTER_ALL,
    BEFORE_ALL,
    api_of,
    dead_name,
    parse_id,
)
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
from parley._node.bus.redis.client import RedisClient, Word
from parley._node.bus.redis.connection import parse_address
from parley._node.bus.redis.errors import bus_error, is_missing_group
from parley._node.bus.redis.format import RedisFormat
from parley._node.bus.redis.group_reader import (
    LONGEST_BLOCK,
    EntrySizes,
    GroupReader,
    GroupState,
    GroupStates,
)
from parley._node.bus.redis.scripts import (
    BURY,
    COUNT,
    FORGET,
    LOOK,
    NACK,
    NOBODY,
    PENDING,
    PUBLISH,
    REDELIVER,
    RELEASE,
    REMOVE_CONSUMER,
    SHRINK,
    TOUCH,
    idempotency_key,
    keys_of,
)
from parley._node.transport.backend import Backend

logger = logging.getLogger("parley.bus")

# The most words of one script; Redis accepts a million.
MOST_WORDS: Final = 500_000
# The size and age of a stream are checked after so many events, or after this fraction of
# `max_bytes`.
_CHECK_EVERY: Final = 64
_CHECK_PART: Final = 32
# The most streams whose last check is remembered; beyond that all streams are checked again.
_MOST_CHECKED: Final = 10_000
# The keys requested in one step of SCAN, and the streams that are inspected together.
_KEYS: Final = 1_000
_STREAMS: Final = 200
# The largest lag that is counted. For a longer lag, the number that Redis returns is used, if any.
MOST_COUNTED: Final = 10_000
_BEYOND_ALL: Final = f"{2**64 - 1}-{2**64 - 1}"
# The server settings that determine which events a crash loses.
_DURABILITY: Final = (b"appendonly", b"appendfsync", b"maxmemory-policy")


class _Opened(NamedTuple):
    loop: Backend
    client: RedisClient
    reader: GroupReader


class RedisStore:
    """The `Store` in one database of a Redis server, version 6.2 or newer.

    The server's `appendfsync` determines how durable a published event is. `join` raises
    ConfigError if the group reads other events of the same API-wide stream here. Streams of a whole
    API are called `API.*`. Sizes are bytes of the server's memory.
    """

    def __init__(self, url: str, config: BusConfig) -> None:
        """Prepare the store, without connecting yet.

        Raises:
            AddressError: `url` is not the address of a Redis server.
        """
        self._address = parse_address(url)
        self._config = config
        self._window = int(config.idempotency_window * 1000)
        bound = () if config.max_length is None else ("MAXLEN", "~", str(config.max_length))
        self._xadd: Final[tuple[str, ...]] = (*bound, "*")  # The words before an entry.
        # The events and bytes until the limits of each stream are checked.
        self._unchecked: dict[str, list[int]] = {}
        self._groups = GroupStates()
        self._sizes = EntrySizes()
        self._trimmed = 0
        self._open: _Opened | None = None

    async def open(self, loop: Backend) -> None:
        config = self._config
        client = RedisClient(loop, self._address, config.timeout, config.waiting)
        try:
            await client.open()
            await self._log_durability(client)
        except BaseException:
            await client.aclose()
            raise
        reader = GroupReader(client, config, loop, self._groups, self._sizes)
        self._open = _Opened(loop, client, reader)

    async def aclose(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.client.aclose()

    @property
    def lost(self) -> int:
        """The number of events that were trimmed while they were pending."""
        return self._opened.reader.lost + self._trimmed

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        if not events:
            return []
        try:
            if len(events) == 1 and (events[0].key is None or not self._window):
                published = [await self._one(events[0])]
            else:
                published = await self._several(events)
        except RedisError as error:
            raise bus_error(error) from error
        if self._config.max_age is not None or self._config.max_bytes is not None:
            await self._keep_bounds(events)
        return published

    def _words(self, event: NewEvent) -> tuple[str, list[Word]]:
        """Return the key of an event's stream, and the following words of its XADD."""
        form = self._format(event.name)
        message_id = event.key if event.key is not None else new_id()
        return form.key(event.name), [*self._xadd, *form.fields(event, message_id)]

    async def _one(self, event: NewEvent) -> Published:
        key, words = self._words(event)
        return Published((await self._client.raw(b"XADD", key, *words)).decode())

    async def _several(self, events: Sequence[NewEvent]) -> list[Published]:
        streams: dict[str, int] = {}
        known: dict[str, int] = {}
        several = []
        for event in events:
            key, words = self._words(event)
            streams.setdefault(key, len(streams) + 1)
            if event.key is not None and self._window:
                known.setdefault(idempotency_key(event.name, event.key), len(known) + 1)
            several.append((event, key, words))
        arguments: list[Word] = [len(streams), max(self._window, 1)]
        for event, key, words in several:
            number = 0
            if event.key is not None and self._window:
                number = len(streams) + known[idempotency_key(event.name, event.key)]
            arguments += (streams[key], number, len(words), *words)
        if len(arguments) > MOST_WORDS:
            raise InvalidEventError(
                f"cannot store {len(events):,} events in one transaction: use smaller batches"
            )
        answers: list[Any] = await self._client.script(PUBLISH, [*streams, *known], *arguments)
        return [Published(id.decode(), bool(duplicate)) for id, duplicate in answers]

    async def _keep_bounds(self, events: Sequence[NewEvent]) -> None:
        """Trim the streams of these events to their limits, but not after every publication."""
        age, size = self._config.max_age, self._config.max_bytes
        part = size // _CHECK_PART if size is not None else 0
        for event in events:
            key = self._format(event.name).key(event.name)
            if len(self._unchecked) > _MOST_CHECKED:
                self._unchecked.clear()
            left = self._unchecked.setdefault(key, [0, 0])
            left[0] -= 1
            left[1] -= len(event.body)
            if left[0] > 0 and (size is None or left[1] > 0):
                continue
            left[:] = [_CHECK_EVERY, part]
            # Ignore a failure: the events are stored, and the next check comes soon.
            await self._client.try_script(
                SHRINK,
                [key],
                "" if age is None else int(age * 1000),
                "" if size is None else size,
                "~",
            )

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        await self._opened.reader.join(stream, group, consumer, after)

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        return await self._opened.reader.read(stream, group, consumer, count, wait)

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        return await self._opened.reader.recover_pending(stream, group, consumer, count)

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        return await self._opened.reader.claim(stream, group, consumer, count, idle)

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        keys = self._group(stream, group).keys
        await self._client.group_script(TOUCH, keys, group, consumer, *_checked(ids))

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        ids = _checked(ids)
        state = self._group(stream, group)
        commands: list[tuple[Word, ...]] = [(b"XACK", state.key, group, *ids)]
        # A first delivery has neither a history nor a due time.
        known = [id for id in ids if state.held.get(id, 2) > 1]
        if known:
            commands += [
                (b"HDEL", state.keys.past, *known),
                (b"ZREM", state.keys.due, *known),
            ]
        for answer in (answers := await self._client.commands(commands)):
            if isinstance(answer, BaseException):
                raise bus_error(answer) from answer
        state.settled(ids)
        return int(answers[0])

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        state = self._group(stream, group)
        (id,) = _checked([id])
        milliseconds = max(0, int(delay * 1000))
        done = await self._client.group_script(
            NACK, state.keys, group, consumer, id, milliseconds, error_line(error)
        )
        if done:  # Otherwise the event may belong to another consumer.
            state.settled([id])
        return bool(done)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        state = self._group(stream, group)
        released = await self._client.group_script(
            RELEASE, state.keys, group, consumer, *_checked(ids)
        )
        state.settled(id.decode() for id in released or ())

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Make a dead letter.

        The letter is built here from the event, and written only if no other consumer has received
        the event since.
        """
        state = self._group(stream, group)
        (id,) = _checked([id])
        seen = await self._client.group_script(LOOK, state.keys, group, consumer, id)
        letter = None
        if seen is not None and len(seen) == 1:
            self._trimmed += 1
        elif seen is not None:
            key, words = self._letter(stream, group, consumer, id, error, seen)
            books = (*state.keys, key)
            try:
                letter = await self._client.script(
                    BURY, books, group, consumer, id, int(seen[0]), *words
                )
            except RedisError as failure:
                raise bus_error(failure) from failure
        if letter is None:
            return None
        state.settled([id])
        return str(letter.decode())

    def _letter(
        self, stream: str, group: str, consumer: str, id: str, error: str, seen: list[Any]
    ) -> tuple[str, list[Word]]:
        times, fields, past, now = seen
        event = self._format(stream).read(stream, id, fields)
        if not isinstance(event, StoredEvent):
            event = StoredEvent(id, stream, UNREADABLE + "this is not an event")
        history = _failures(past)
        history.append(Failure(int(times), consumer, int(now) / 1000, error_line(error)))
        shorten(history)
        try:
            return self._dead(stream, dead_data(event, group, history, decode_body(event.body)))
        except InvalidEventError:
            # Data that cannot be read or encoded stays text, such as NaN, which Lightbus writes.
            return self._dead(stream, dead_data(event, group, history, None))

    def _dead(self, stream: str, data: dict[str, Any]) -> tuple[str, list[Word]]:
        return self._words(NewEvent(dead_name(stream), data, encode_value(data)))

    # Inspection. For streams, groups and consumers that do not exist, the result is empty.

    async def streams(self) -> list[StreamInfo]:
        keys = {key: name async for key in self._keys() if (name := self._name(key)) is not None}
        found = []
        several = list(keys)
        for start in range(0, len(several), _STREAMS):
            part = several[start : start + _STREAMS]
            infos = await self._client.commands([(b"XINFO", b"STREAM", key) for key in part])
            sizes = await self._client.commands([(b"MEMORY", b"USAGE", key) for key in part])
            for key, info, size in zip(part, infos, sizes, strict=True):
                if isinstance(info, dict):  # Otherwise the stream was deleted.
                    size = size if isinstance(size, int) else 0
                    ends = [_id(info[end]) for end in (b"first-entry", b"last-entry")]
                    found.append(StreamInfo(keys[key], info[b"length"], size, ends[0], ends[1]))
        return sorted(found)

    async def groups(self, stream: str) -> list[GroupInfo]:
        key = self._format(stream).key(stream)
        found = []
        for info in await self._infos(b"GROUPS", key):
            name, last = readable(info[b"name"]), info[b"last-delivered-id"].decode()
            counts = await self._client.command(
                b"HMGET", keys_of(key, name).counts, b"redelivered", b"dead_lettered"
            )
            consumers = await self.consumers(stream, name)
            found.append(
                GroupInfo(
                    stream=stream,
                    name=name,
                    lag=await self._lag(key, last, info.get(b"lag")),
                    pending=info[b"pending"],
                    redelivered=int(counts[0] or 0),
                    dead_lettered=int(counts[1] or 0),
                    consumers=len(consumers),
                    last_id=last,
                )
            )
        return sorted(found, key=lambda group: group.name)

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        key = self._format(stream).key(stream)
        return sorted(
            ConsumerInfo(readable(info[b"name"]), info[b"pending"], info[b"idle"] / 1000)
            for info in await self._infos(b"CONSUMERS", key, group)
            if readable(info[b"name"]) != NOBODY
        )

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        key = self._format(stream).key(stream)
        after = str(parse_id(after))
        keys = keys_of(key, group)
        found = await self._client.group_script(PENDING, keys, group, "", count, after)
        return [
            PendingInfo(
                id.decode(),
                "" if (name := readable(consumer)) == NOBODY else name,
                times,
                idle / 1000,
                due / 1000 if name == NOBODY and due >= 0 else None,
            )
            for id, consumer, idle, times, due in found or ()
        ]

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        form = self._format(stream)
        key = form.key(stream)
        last = None if until is None else parse_id(until)
        deadline = self._opened.loop.now() + wait
        after = await self._last(key) if after == AFTER_ALL else str(parse_id(after))
        found: list[StoredEvent] = []
        while True:
            portion = self._sizes.count(key, count)
            entries = await self._client.command(
                b"XRANGE", key, f"({after}", until or "+", b"COUNT", portion
            )
            self._sizes.saw(key, (fields for _, fields in entries))
            for id, fields in entries:
                after = id.decode()
                event = form.read(stream, after, fields)
                if isinstance(event, StoredEvent):
                    found.append(event)
            if found:
                return found
            if len(entries) == portion:
                continue  # All entries were skipped, and more follow.
            left = deadline - self._opened.loop.now()
            if left <= 0 or (last is not None and parse_id(after) >= last):
                return []
            await self._wait(key, after, min(left, LONGEST_BLOCK))

    async def _keys(self) -> AsyncIterator[str]:
        cursor: Any = 0
        while True:
            cursor, keys = await self._client.command(
                b"SCAN", cursor, b"COUNT", _KEYS, b"TYPE", b"stream"
            )
            for key in keys:
                yield key.decode(errors="replace")
            if not int(cursor):
                return

    def _name(self, key: str) -> str | None:
        """Return the name of the stream with a key, if the format of its API produces this key."""
        for form in (*self._config.formats.values(), RedisFormat()):
            name = form.name(key)
            if name is not None and self._format(name).key(name) == key:
                return name
        return None

    async def _lag(self, key: str, last: str, lag: int | None) -> int | None:
        if lag == 0:
            return lag
        # Redis's own count includes events that were trimmed unread.
        try:
            counted: int = await self._client.script(COUNT, [key], last, MOST_COUNTED)
        except RedisError as error:
            raise bus_error(error) from error
        if counted < MOST_COUNTED:
            return counted
        return None if lag is None else min(lag, int(await self._client.command(b"XLEN", key)))

    async def _last(self, key: str) -> str:
        try:
            info = await self._client.raw(b"XINFO", b"STREAM", key)
        except RedisError as error:
            if is_missing_group(error):
                return BEFORE_ALL
            raise bus_error(error) from error
        return str(info[b"last-generated-id"].decode())

    async def _wait(self, key: str, after: str, seconds: float) -> None:
        async def unwanted(answer: object) -> None:
            """Do nothing, because reading has no effect."""

        words = (b"XREAD", b"COUNT", 1, b"BLOCK", max(1, int(seconds * 1000)))
        try:
            await self._client.blocking((*words, b"STREAMS", key, after), seconds, unwanted)
        except RedisError as error:
            raise bus_error(error) from error

    async def _infos(self, kind: bytes, *words: str) -> list[dict[bytes, Any]]:
        """Return the result of XINFO for groups or consumers; empty if they do not exist."""
        try:
            infos: list[dict[bytes, Any]] = await self._client.raw(b"XINFO", kind, *words)
        except RedisError as error:
            if is_missing_group(error):
                return []
            raise bus_error(error) from error
        return infos

    # Maintenance. An event that is removed from a stream is no longer pending in any group.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        key = self._key(stream)
        if after != AFTER_ALL:
            after = str(parse_id(after))
        try:
            await self._client.raw(b"XGROUP", b"SETID", key, group, after)
        except RedisError as error:
            if not is_missing_group(error):
                raise bus_error(error) from error
            await self._client.command(b"XGROUP", b"CREATE", key, group, after, b"MKSTREAM")
        places = self._groups.of(stream, key, group).places
        for info in await self._infos(b"GROUPS", key):
            if info[b"name"] == group.encode():
                places.update(dict.fromkeys(places, info[b"last-delivered-id"].decode()))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        checked = [str(parse_id(id)) for id in ids]
        found = await self._client.group_script(
            REDELIVER, keys_of(self._key(stream), group), group, "", *checked
        )
        return [id.decode() for id in found or ()]

    async def trim(self, stream: str, bounds: Trim) -> int:
        key = self._key(stream)
        how = "~" if bounds.approximate else "="
        taken = 0
        if bounds.max_length is not None:
            taken += await self._client.command(b"XTRIM", key, b"MAXLEN", how, bounds.max_length)
        if bounds.before is not None:
            before = str(parse_id(bounds.before))
            taken += await self._client.command(b"XTRIM", key, b"MINID", how, before)
        if bounds.max_bytes is not None:
            try:
                taken += await self._client.script(SHRINK, [key], "", bounds.max_bytes, how)
            except RedisError as error:
                raise bus_error(error) from error
        if taken:
            first = await self._client.command(b"XRANGE", key, b"-", b"+", b"COUNT", 1)
            await self._forget(key, "before", first[0][0] if first else _BEYOND_ALL)
        return taken

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        key = self._key(stream)
        checked = [str(parse_id(id)) for id in ids]
        taken: int = await self._client.command(b"XDEL", key, *checked)
        if taken:
            await self._forget(key, *checked)
        return taken

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        key = self._key(stream)
        return [
            consumer.name
            for consumer in await self.consumers(stream, group)
            if consumer.idle >= idle
            and await self._client.group_script(
                REMOVE_CONSUMER, keys_of(key, group), group, consumer.name, int(idle * 1000)
            )
        ]

    async def remove_group(self, stream: str, group: str) -> bool:
        key = self._key(stream)
        try:
            gone = await self._client.raw(b"XGROUP", b"DESTROY", key, group)
        except RedisError as error:
            if not is_missing_group(error):
                raise bus_error(error) from error
            gone = 0
        await self._client.command(b"DEL", *keys_of(key, group).own)
        self._groups.of(stream, key, group).held.clear()
        return bool(gone)

    async def _forget(self, key: str, *words: Word) -> None:
        """Remove deleted events from the pending events of all groups."""
        for info in await self._infos(b"GROUPS", key):
            name = info[b"name"]
            keys = keys_of(key, readable(name))
            await self._client.group_script(FORGET, keys, name, NOBODY, *words)

    # Internal.

    @property
    def _opened(self) -> _Opened:
        if self._open is None:
            raise BusClosedError("the bus is closed")
        return self._open

    @property
    def _client(self) -> RedisClient:
        return self._opened.client

    def _format(self, stream: str) -> RedisFormat:
        return self._config.format_of(api_of(stream))

    def _key(self, stream: str) -> str:
        return self._format(stream).key(stream)

    def _group(self, stream: str, group: str) -> GroupState:
        return self._groups.of(stream, self._key(stream), group)

    async def _log_durability(self, client: RedisClient) -> None:
        """Log which server settings can lose events."""
        found: dict[bytes, bytes] = {}
        for answer in await client.commands([(b"CONFIG", b"GET", name) for name in _DURABILITY]):
            if not isinstance(answer, dict):
                logger.debug(
                    "the Redis at %s does not report its durability settings",
                    self._address,
                    extra={"event": "bus.store-settings-unknown"},
                )
                return
            found |= answer
        if found.get(b"maxmemory-policy", b"").startswith(b"allkeys"):
            logger.warning(
                "the Redis at %s has maxmemory-policy %s: it deletes streams when it is full; "
                "set noeviction",
                self._address,
                found[b"maxmemory-policy"].decode(),
                extra={"event": "bus.store-evicts"},
            )
        if found.get(b"appendonly") != b"yes":
            logger.warning(
                "the Redis at %s has no append-only file (appendonly no): it loses published "
                "events when it stops; set appendonly yes",
                self._address,
                extra={"event": "bus.store-not-durable"},
            )
        elif found.get(b"appendfsync") != b"always":
            logger.info(
                "the Redis at %s has appendfsync %s: a power cut loses events published in the "
                "last second or more",
                self._address,
                found.get(b"appendfsync", b"?").decode(),
                extra={"event": "bus.store-syncs-late"},
            )


def new_id() -> str:
    """Return a unique message id: a random UUID (RFC 9562, version 4)."""
    # Three times as fast as UUID(bytes=..., version=4).
    digits = random_bytes(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _failures(past: bytes | None) -> list[Failure]:
    """Parse a history; return an empty list if another program damaged it."""
    text = past.decode(errors="replace") if past else "[]"
    try:
        return [
            Failure(one["attempt"], one["consumer"], one["at"], one["error"])
            for one in json.loads(text)
        ]
    except (ValueError, RecursionError, TypeError, KeyError):
        return []


def _checked(ids: Sequence[str]) -> list[str]:
    return [str(parse_id(id)) for id in ids]


def readable(name: bytes) -> str:
    """Decode the name of a group or consumer, which can have any bytes."""
    return name.decode(errors="backslashreplace")


def _id(entry: Iterable[Any] | None) -> str | None:
    return None if entry is None else str(next(iter(entry)).decode())
