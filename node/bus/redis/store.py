"""`Store` on Redis Streams: what a bus asks, handed to who does it.

One rule: nothing is done here but opening and closing. What Redis keeps is Redis' own affair: it
is said in the log, once, what a power cut would take.
"""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from node.bus.config import BusConfig
from node.bus.errors import BusClosedError
from node.bus.model import (
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
from node.bus.redis.address import parse_address
from node.bus.redis.client import RedisClient
from node.bus.redis.keeping import Keeper
from node.bus.redis.looking import Looker
from node.bus.redis.membership import Memberships
from node.bus.redis.portions import Portions
from node.bus.redis.publishing import Publisher
from node.bus.redis.reading import GroupReader
from node.bus.redis.settling import Settler
from node.transport.loop import Loop

logger = logging.getLogger("parley.bus")

# Settings of the server that say what it loses, and when.
_TOLD: Final = (b"appendonly", b"appendfsync", b"maxmemory-policy")


class _Parts(NamedTuple):
    """Who does what, while the store is open."""

    client: RedisClient
    publisher: Publisher
    reader: GroupReader
    settler: Settler
    looker: Looker
    keeper: Keeper


class RedisStore:
    """A store of streams and groups (`node.bus.store.Store`) in one database of a Redis, 6.2 or
    newer."""

    def __init__(self, url: str, config: BusConfig) -> None:
        """Connect to nothing yet.

        Raises:
            AddressError: `url` is no address of a Redis.
        """
        self._address = parse_address(url)
        self._config = config
        self._open: _Parts | None = None

    async def open(self, loop: Loop) -> None:
        """Connect."""
        config = self._config
        client = RedisClient(loop, self._address, config.timeout, config.waiting)
        try:
            await client.open()
            await self._tell_what_it_keeps(client)
        except BaseException:
            await client.aclose()
            raise
        memberships, portions = Memberships(), Portions()
        publisher = Publisher(client, config)
        looker = Looker(client, config, loop, portions)
        self._open = _Parts(
            client,
            publisher,
            GroupReader(client, config, loop, memberships, portions),
            Settler(client, config, memberships, publisher),
            looker,
            Keeper(client, config, memberships, looker),
        )

    async def aclose(self) -> None:
        """Wait for what is under way, end reads that wait, and disconnect."""
        parts, self._open = self._open, None
        if parts is not None:
            await parts.client.aclose()

    @property
    def lost(self) -> int:
        """How many events were trimmed away while they were pending, as far as was noticed."""
        return self._parts.reader.lost + self._parts.settler.lost

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """As `Store.publish`; how durable it is, the server's `appendfsync` says."""
        return await self._parts.publisher.publish(events)

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """As `Store.join`.

        Raises:
            ConfigError: the group reads other events of the same stream of an API here.
        """
        await self._parts.reader.join(stream, group, consumer, after)

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """As `Store.read`."""
        return await self._parts.reader.read(stream, group, consumer, count, wait)

    async def own(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        """As `Store.own`."""
        return await self._parts.reader.own(stream, group, consumer, count)

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """As `Store.claim`."""
        return await self._parts.reader.claim(stream, group, consumer, count, idle)

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """As `Store.touch`."""
        await self._parts.settler.touch(stream, group, consumer, ids)

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """As `Store.ack`."""
        return await self._parts.settler.ack(stream, group, ids)

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """As `Store.nack`."""
        return await self._parts.settler.nack(stream, group, consumer, id, delay, error)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """As `Store.release`."""
        await self._parts.settler.release(stream, group, consumer, ids)

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """As `Store.bury`."""
        return await self._parts.settler.bury(stream, group, consumer, id, error)

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """As `Store.streams`; a stream of a whole API is called `API.*`."""
        return await self._parts.looker.streams()

    async def groups(self, stream: str) -> list[GroupInfo]:
        """As `Store.groups`."""
        return await self._parts.looker.groups(stream)

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        """As `Store.consumers`."""
        return await self._parts.looker.consumers(stream, group)

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """As `Store.pending`; what is due has no consumer."""
        return await self._parts.looker.pending(stream, group, count, after)

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        """As `Store.history`."""
        return await self._parts.looker.history(stream, after, until, count, wait)

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """As `Store.rewind`."""
        await self._parts.keeper.rewind(stream, group, after)

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """As `Store.redeliver`."""
        return await self._parts.keeper.redeliver(stream, group, ids)

    async def trim(self, stream: str, bounds: Trim) -> int:
        """As `Store.trim`; sizes are what the stream takes in the server's memory."""
        return await self._parts.keeper.trim(stream, bounds)

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        """As `Store.drop`."""
        return await self._parts.keeper.drop(stream, ids)

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """As `Store.remove_consumers`."""
        return await self._parts.keeper.remove_consumers(stream, group, idle)

    async def remove_group(self, stream: str, group: str) -> bool:
        """As `Store.remove_group`."""
        return await self._parts.keeper.remove_group(stream, group)

    @property
    def _parts(self) -> _Parts:
        if self._open is None:
            raise BusClosedError("the bus is closed")
        return self._open

    async def _tell_what_it_keeps(self, client: RedisClient) -> None:
        """Say in the log what this server loses, and when; it need not tell."""
        found: dict[bytes, bytes] = {}
        for answer in await client.commands([(b"CONFIG", b"GET", name) for name in _TOLD]):
            if not isinstance(answer, dict):
                logger.debug("the Redis at %s does not tell how it keeps things", self._address)
                return
            found |= answer
        if found.get(b"maxmemory-policy", b"").startswith(b"allkeys"):
            logger.warning(
                "the Redis at %s has maxmemory-policy %s: it throws away streams when it is full; "
                "a bus needs noeviction",
                self._address,
                found[b"maxmemory-policy"].decode(),
            )
        if found.get(b"appendonly") != b"yes":
            logger.warning(
                "the Redis at %s has no append-only file (appendonly no): what is published is "
                "lost when it stops",
                self._address,
            )
        elif found.get(b"appendfsync") != b"always":
            logger.info(
                "the Redis at %s has appendfsync %s: a power cut takes what was published in the "
                "last second or more",
                self._address,
                found.get(b"appendfsync", b"?").decode(),
            )
