"""Publishes to streams: with XADD as Lightbus does, and with idempotency keys and several events as
one, which Lightbus has not.

An event without a key is one plain XADD, which travels with those of all other tasks; a script runs
only where one step has to do more. Publishing also takes out what is beyond the bounds.
"""

from collections.abc import Sequence
from typing import Any, Final

from coredis.exceptions import RedisError

from parley._crypto.randomness import random_bytes
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.model import NewEvent, Published
from parley._node.bus.names import split_name
from parley._node.bus.redis.format import RedisFormat
from parley._node.bus.redis.group_notes import idempotency_key
from parley._node.bus.redis.redis_client import RedisClient, Word
from parley._node.bus.redis.redis_errors import bus_error
from parley._node.bus.redis.scripts import PUBLISH, SHRINK

# Words of one script; Redis itself takes a million.
MOST_WORDS: Final = 500_000
# A stream's size and age are checked once in so many events, or once in this part of `max_bytes`.
_LOOK_EVERY: Final = 64
_LOOK_PART: Final = 32
# Streams whose last check is remembered; beyond that all are checked anew.
_MOST_LOOKED_AT: Final = 10_000


class StreamPublisher:
    """The publisher of one store."""

    def __init__(self, client: RedisClient, config: BusConfig) -> None:
        self._client = client
        self._config = config
        self._window = int(config.idempotency_window * 1000)
        # Of each stream, how many events and bytes until its bounds are looked at.
        self._left: dict[str, list[int]] = {}
        # What comes before an entry in its XADD.
        bound = () if config.max_length is None else ("MAXLEN", "~", str(config.max_length))
        self._before: Final[tuple[str, ...]] = (*bound, "*")

    async def publish(self, events: Sequence[NewEvent]) -> list[Published]:
        """Store events, all or none.

        Raises:
            InvalidEventError: the format has no room for one of them, or they are too many.
            BusError: they are not stored, or that is unknown.
        """
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

    def words(self, event: NewEvent) -> tuple[str, list[Word]]:
        """The key of an event's stream, and the words of its XADD after that."""
        form = self._form(event)
        message_id = event.key if event.key is not None else new_id()
        return form.key(event.name), [*self._before, *form.fields(event, message_id)]

    async def _one(self, event: NewEvent) -> Published:
        key, words = self.words(event)
        return Published((await self._client.raw(b"XADD", key, *words)).decode())

    async def _several(self, events: Sequence[NewEvent]) -> list[Published]:
        streams: dict[str, int] = {}
        known: dict[str, int] = {}
        several = []
        for event in events:
            key, words = self.words(event)
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
            raise InvalidEventError(f"{len(events):,} events are too many to be stored as one")
        answers: list[Any] = await self._client.script(PUBLISH, [*streams, *known], *arguments)
        return [Published(id.decode(), bool(duplicate)) for id, duplicate in answers]

    async def _keep_bounds(self, events: Sequence[NewEvent]) -> None:
        """Take out what is beyond the bounds, now and then."""
        age, size = self._config.max_age, self._config.max_bytes
        part = size // _LOOK_PART if size is not None else 0
        for event in events:
            key = self._form(event).key(event.name)
            if len(self._left) > _MOST_LOOKED_AT:
                self._left.clear()
            left = self._left.setdefault(key, [0, 0])
            left[0] -= 1
            left[1] -= len(event.body)
            if left[0] > 0 and (size is None or left[1] > 0):
                continue
            left[:] = [_LOOK_EVERY, part]
            # The events are stored, whatever becomes of this; the next check comes soon.
            await self._client.unless_it_fails(
                SHRINK,
                [key],
                "" if age is None else int(age * 1000),
                "" if size is None else size,
                "~",
            )

    def _form(self, event: NewEvent) -> RedisFormat:
        return self._config.format_of(split_name(event.name)[0])


def new_id() -> str:
    """A unique message id: a random UUID (RFC 9562, version 4)."""
    # As UUID(bytes=..., version=4) writes it, which takes three times as long.
    digits = random_bytes(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
