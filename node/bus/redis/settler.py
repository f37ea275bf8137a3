"""The outcome of a pending event: done, failed, not begun, or set aside.

Each is one step for Redis, and only touches events that the consumer holds (except `ack`, which
takes any pending event, as XACK does).
"""

import json
from collections.abc import Sequence
from typing import Any

from coredis.exceptions import RedisError

from parley._node.bus.body import UNREADABLE, decode_body, encode_value
from parley._node.bus.config import BusConfig
from parley._node.bus.dead_letters import dead_data, error_line, shorten
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.ids import parse_id
from parley._node.bus.model import Failure, NewEvent, StoredEvent
from parley._node.bus.names import dead_name, split_name
from parley._node.bus.redis.group_notes import Membership, Memberships
from parley._node.bus.redis.redis_client import RedisClient, Word
from parley._node.bus.redis.redis_errors import bus_error
from parley._node.bus.redis.scripts import BURY, LOOK, NACK, RELEASE, TOUCH
from parley._node.bus.redis.stream_publisher import StreamPublisher


class Settler:
    """Settles the events of one store. `lost` counts those that were trimmed while pending."""

    def __init__(
        self,
        client: RedisClient,
        config: BusConfig,
        memberships: Memberships,
        publisher: StreamPublisher,
    ) -> None:
        self._client = client
        self._config = config
        self._memberships = memberships
        self._publisher = publisher
        self.lost = 0

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """Their idle time begins anew."""
        keys = self._member(stream, group).keys
        await self._client.group_script(TOUCH, keys, group, consumer, *_checked(ids))

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """They are done; how many were pending."""
        if not ids:
            return 0
        ids = _checked(ids)
        member = self._member(stream, group)
        commands: list[tuple[Word, ...]] = [(b"XACK", member.key, group, *ids)]
        # An event that was handed out only once has no history, and no time when it is due.
        known = [id for id in ids if member.held.get(id, 2) > 1]
        if known:
            commands += [
                (b"HDEL", member.keys.past, *known),
                (b"ZREM", member.keys.due, *known),
            ]
        for answer in (answers := await self._client.commands(commands)):
            if isinstance(answer, BaseException):
                raise bus_error(answer) from answer
        member.settled(ids)
        return int(answers[0])

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """It failed, and is due in `delay` seconds."""
        member = self._member(stream, group)
        (id,) = _checked([id])
        milliseconds = max(0, int(delay * 1000))
        done = await self._client.group_script(
            NACK, member.keys, group, consumer, id, milliseconds, error_line(error)
        )
        if done:  # if not, another of our consumers may hold it
            member.settled([id])
        return bool(done)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """They were never begun, and are due now."""
        member = self._member(stream, group)
        released = await self._client.group_script(
            RELEASE, member.keys, group, consumer, *_checked(ids)
        )
        member.settled(id.decode() for id in released or ())

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Set it aside. The letter is made here after a look at the event, and is written only if
        no other consumer has had the event since."""
        member = self._member(stream, group)
        (id,) = _checked([id])
        seen = await self._client.group_script(LOOK, member.keys, group, consumer, id)
        letter = None
        if seen is not None and len(seen) == 1:
            self.lost += 1
        elif seen is not None:
            key, words = self._letter(stream, group, consumer, id, error, seen)
            books = (*member.keys, key)
            try:
                letter = await self._client.script(
                    BURY, books, group, consumer, id, int(seen[0]), *words
                )
            except RedisError as failure:
                raise bus_error(failure) from failure
        if letter is None:
            return None
        member.settled([id])
        return str(letter.decode())

    def _letter(
        self, stream: str, group: str, consumer: str, id: str, error: str, seen: list[Any]
    ) -> tuple[str, list[Word]]:
        times, fields, past, now = seen
        event = self._config.format_of(split_name(stream)[0]).read(stream, id, fields)
        if not isinstance(event, StoredEvent):
            event = StoredEvent(id, stream, UNREADABLE + "this is not an event")
        history = _failures(past)
        history.append(Failure(int(times), consumer, int(now) / 1000, error_line(error)))
        shorten(history)
        try:
            return self._dead(stream, dead_data(event, group, history, decode_body(event.body)))
        except InvalidEventError:
            # Data that cannot be read, or written again (NaN, which Lightbus writes), stays text.
            return self._dead(stream, dead_data(event, group, history, None))

    def _dead(self, stream: str, data: dict[str, Any]) -> tuple[str, list[Word]]:
        return self._publisher.words(NewEvent(dead_name(stream), data, encode_value(data)))

    def _member(self, stream: str, group: str) -> Membership:
        key = self._config.format_of(split_name(stream)[0]).key(stream)
        return self._memberships.of(stream, key, group)


def _failures(past: bytes | None) -> list[Failure]:
    """A history as the scripts keep it; empty if another program broke it."""
    text = past.decode(errors="replace") if past else "[]"
    try:
        return [
            Failure(one["attempt"], one["consumer"], one["at"], one["error"])
            for one in json.loads(text)
        ]
    except (ValueError, RecursionError, TypeError, KeyError):
        return []


def _checked(ids: Sequence[str]) -> list[str]:
    """The ids as Redis has them; raises InvalidEventError if one is not an id."""
    return [str(parse_id(id)) for id in ids]
