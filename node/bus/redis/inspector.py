"""Streams, groups, consumers and stored events, looked at without changing anything. What does not
exist is empty, not an error; what cannot be read is shown as it is.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from coredis.exceptions import RedisError

from parley._node.bus.config import BusConfig
from parley._node.bus.ids import AFTER_ALL, BEFORE_ALL, parse_id
from parley._node.bus.model import ConsumerInfo, GroupInfo, PendingInfo, StoredEvent, StreamInfo
from parley._node.bus.names import api_of
from parley._node.bus.redis.format import RedisFormat
from parley._node.bus.redis.group_notes import EntrySizes, keys_of
from parley._node.bus.redis.group_reader import LONGEST_BLOCK
from parley._node.bus.redis.redis_client import RedisClient
from parley._node.bus.redis.redis_errors import bus_error, is_missing_group
from parley._node.bus.redis.scripts import COUNT, NOBODY, PENDING
from parley._node.transport.loop import Loop

# Keys of one step of SCAN, and streams that are looked at together.
_KEYS: Final = 1_000
_STREAMS: Final = 200
# A lag is counted up to here; beyond it, the number is the one of Redis, if it has any.
MOST_COUNTED: Final = 10_000


class Inspector:
    """The streams of one store, as they are."""

    def __init__(
        self, client: RedisClient, config: BusConfig, loop: Loop, sizes: EntrySizes
    ) -> None:
        self._client = client
        self._config = config
        self._loop = loop
        self._sizes = sizes

    async def streams(self) -> list[StreamInfo]:
        """All streams of the database whose keys are ours, by name."""
        keys = {key: name async for key in self._keys() if (name := self._name(key)) is not None}
        found = []
        several = list(keys)
        for start in range(0, len(several), _STREAMS):
            part = several[start : start + _STREAMS]
            infos = await self._client.commands([(b"XINFO", b"STREAM", key) for key in part])
            sizes = await self._client.commands([(b"MEMORY", b"USAGE", key) for key in part])
            for key, info, size in zip(part, infos, sizes, strict=True):
                if isinstance(info, dict):  # else it is gone since
                    size = size if isinstance(size, int) else 0
                    ends = [_id(info[end]) for end in (b"first-entry", b"last-entry")]
                    found.append(StreamInfo(keys[key], info[b"length"], size, ends[0], ends[1]))
        return sorted(found)

    async def groups(self, stream: str) -> list[GroupInfo]:
        """The groups of a stream, by name."""
        key = self._form(stream).key(stream)
        found = []
        for info in await self.infos(b"GROUPS", key):
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
        """The consumers of a group, by name."""
        key = self._form(stream).key(stream)
        return sorted(
            ConsumerInfo(readable(info[b"name"]), info[b"pending"], info[b"idle"] / 1000)
            for info in await self.infos(b"CONSUMERS", key, group)
            if readable(info[b"name"]) != NOBODY
        )

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """Pending events of a group, by id. Those that are due have no consumer: it is empty."""
        key = self._form(stream).key(stream)
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
        """Stored events after an id; waits up to `wait` seconds for the first."""
        form = self._form(stream)
        key = form.key(stream)
        last = None if until is None else parse_id(until)
        deadline = self._loop.now() + wait
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
                continue  # more entries follow those that were passed over
            left = deadline - self._loop.now()
            if left <= 0 or (last is not None and parse_id(after) >= last):
                return []
            await self._wait(key, after, min(left, LONGEST_BLOCK))

    async def infos(self, kind: bytes, *words: str) -> list[dict[bytes, Any]]:
        """What XINFO says of groups or consumers; empty if they do not exist."""
        try:
            infos: list[dict[bytes, Any]] = await self._client.raw(b"XINFO", kind, *words)
        except RedisError as error:
            if is_missing_group(error):
                return []
            raise bus_error(error) from error
        return infos

    # Inside.

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
        """The name of a stream, if its API's events are in such a stream."""
        for form in (*self._config.formats.values(), RedisFormat()):
            name = form.name(key)
            if name is not None and self._form(name).key(name) == key:
                return name
        return None

    async def _lag(self, key: str, last: str, lag: int | None) -> int | None:
        if lag == 0:
            return lag
        # The number of Redis may be too high: it counts events that were trimmed unread.
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
            """Nothing to give back: reading changes nothing."""

        words = (b"XREAD", b"COUNT", 1, b"BLOCK", max(1, int(seconds * 1000)))
        try:
            await self._client.blocking((*words, b"STREAMS", key, after), seconds, unwanted)
        except RedisError as error:
            raise bus_error(error) from error

    def _form(self, stream: str) -> RedisFormat:
        return self._config.format_of(api_of(stream))


def readable(name: bytes) -> str:
    """The name of a group or consumer, to which others may have given any bytes."""
    return name.decode(errors="backslashreplace")


def _id(entry: Iterable[Any] | None) -> str | None:
    return None if entry is None else str(next(iter(entry)).decode())
