"""`RedisStore`: a store on Redis Streams; its parts do the work.

How durable events are depends on the settings of Redis: the log says once what a power cut would
take.
"""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
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
from parley._node.bus.redis.group_notes import EntrySizes, Memberships
from parley._node.bus.redis.group_reader import GroupReader
from parley._node.bus.redis.inspector import Inspector
from parley._node.bus.redis.redis_address import parse_address
from parley._node.bus.redis.redis_client import RedisClient
from parley._node.bus.redis.settler import Settler
from parley._node.bus.redis.stream_publisher import StreamPublisher
from parley._node.bus.redis.upkeep import Upkeep
from parley._node.transport.backend import Backend

logger = logging.getLogger("parley.bus")

# Settings of the server on which it depends what it loses, and when.
_TOLD: Final = (b"appendonly", b"appendfsync", b"maxmemory-policy")


class _Parts(NamedTuple):
    """The parts of an open store."""

    client: RedisClient
    publisher: StreamPublisher
    reader: GroupReader
    settler: Settler
    inspector: Inspector
    upkeep: Upkeep


class RedisStore:
    """The `Store` in one database of a Redis, 6.2 or newer; `Store` says what its methods do.

    How durable a published event is depends on the server's `appendfsync`. `join` raises
    ConfigError if the group reads other events of the same stream of an API here. Streams of a
    whole API are called `API.*`; sizes are bytes of the server's memory.
    """

    def __init__(self, url: str, config: BusConfig) -> None:
        """Does not connect yet.

        Raises:
            AddressError: `url` is not the address of a Redis.
        """
        self._address = parse_address(url)
        self._config = config
        self._open: _Parts | None = None

    async def open(self, loop: Backend) -> None:
        """Connect."""
        config = self._config
        client = RedisClient(loop, self._address, config.timeout, config.waiting)
        try:
            await client.open()
            await self._tell_what_it_keeps(client)
        except BaseException:
            await client.aclose()
            raise
        memberships, sizes = Memberships(), EntrySizes()
        publisher = StreamPublisher(client, config)
        inspector = Inspector(client, config, loop, sizes)
        self._open = _Parts(
            client,
            publisher,
            GroupReader(client, config, loop, memberships, sizes),
            Settler(client, config, memberships, publisher),
            inspector,
            Upkeep(client, config, memberships, inspector),
        )

    async def aclose(self) -> None:
        """Wait for what is under way, end reads that wait, and disconnect."""
        parts, self._open = self._open, None
        if parts is not None:
            await parts.client.aclose()

    @property
    def lost(self) -> int:
        """How many events were found to be trimmed while they were pending."""
        return self._parts.reader.lost + self._parts.settler.lost

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        return await self._parts.publisher.publish(events)

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        await self._parts.reader.join(stream, group, consumer, after)

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        return await self._parts.reader.read(stream, group, consumer, count, wait)

    async def own(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        return await self._parts.reader.own(stream, group, consumer, count)

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        return await self._parts.reader.claim(stream, group, consumer, count, idle)

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        await self._parts.settler.touch(stream, group, consumer, ids)

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        return await self._parts.settler.ack(stream, group, ids)

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        return await self._parts.settler.nack(stream, group, consumer, id, delay, error)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        await self._parts.settler.release(stream, group, consumer, ids)

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        return await self._parts.settler.bury(stream, group, consumer, id, error)

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        return await self._parts.inspector.streams()

    async def groups(self, stream: str) -> list[GroupInfo]:
        return await self._parts.inspector.groups(stream)

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        return await self._parts.inspector.consumers(stream, group)

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        return await self._parts.inspector.pending(stream, group, count, after)

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        return await self._parts.inspector.history(stream, after, until, count, wait)

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        await self._parts.upkeep.rewind(stream, group, after)

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        return await self._parts.upkeep.redeliver(stream, group, ids)

    async def trim(self, stream: str, bounds: Trim) -> int:
        return await self._parts.upkeep.trim(stream, bounds)

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        return await self._parts.upkeep.drop(stream, ids)

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        return await self._parts.upkeep.remove_consumers(stream, group, idle)

    async def remove_group(self, stream: str, group: str) -> bool:
        return await self._parts.upkeep.remove_group(stream, group)

    @property
    def _parts(self) -> _Parts:
        if self._open is None:
            raise BusClosedError("the bus is closed")
        return self._open

    async def _tell_what_it_keeps(self, client: RedisClient) -> None:
        """Log what this server loses, and when, if it tells."""
        found: dict[bytes, bytes] = {}
        for answer in await client.commands([(b"CONFIG", b"GET", name) for name in _TOLD]):
            if not isinstance(answer, dict):
                logger.debug(
                    "the Redis at %s does not tell how it keeps things",
                    self._address,
                    extra={"event": "bus.store-untold"},
                )
                return
            found |= answer
        if found.get(b"maxmemory-policy", b"").startswith(b"allkeys"):
            logger.warning(
                "the Redis at %s has maxmemory-policy %s: it throws away streams when it is full; "
                "a bus needs noeviction",
                self._address,
                found[b"maxmemory-policy"].decode(),
                extra={"event": "bus.store-evicts"},
            )
        if found.get(b"appendonly") != b"yes":
            logger.warning(
                "the Redis at %s has no append-only file (appendonly no): what is published is "
                "lost when it stops",
                self._address,
                extra={"event": "bus.store-forgets"},
            )
        elif found.get(b"appendfsync") != b"always":
            logger.info(
                "the Redis at %s has appendfsync %s: a power cut takes what was published in the "
                "last second or more",
                self._address,
                found.get(b"appendfsync", b"?").decode(),
                extra={"event": "bus.store-syncs-late"},
            )
