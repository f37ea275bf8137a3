"""`RedisStore`: a store on Redis Streams; its parts do the work.

How durable events are depends on the settings of Redis: the log says once what a power cut would
take.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
from parley._node.bus.model import NewEvent, Published
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

P = ParamSpec("P")
Part = TypeVar("Part")
T = TypeVar("T")

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


def _calls(
    part: Callable[[_Parts], Part], method: Callable[Concatenate[Part, P], Awaitable[T]]
) -> Callable[Concatenate["RedisStore", P], Coroutine[Any, Any, T]]:
    """Make a method that calls `method` of a part of the open store."""

    async def call(self: "RedisStore", /, *arguments: P.args, **options: P.kwargs) -> T:
        return await method(part(self._parts), *arguments, **options)

    return call


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

    join = _calls(lambda parts: parts.reader, GroupReader.join)
    read = _calls(lambda parts: parts.reader, GroupReader.read)
    own = _calls(lambda parts: parts.reader, GroupReader.own)
    claim = _calls(lambda parts: parts.reader, GroupReader.claim)
    touch = _calls(lambda parts: parts.settler, Settler.touch)
    ack = _calls(lambda parts: parts.settler, Settler.ack)
    nack = _calls(lambda parts: parts.settler, Settler.nack)
    release = _calls(lambda parts: parts.settler, Settler.release)
    bury = _calls(lambda parts: parts.settler, Settler.bury)

    # Inspection and maintenance.

    streams = _calls(lambda parts: parts.inspector, Inspector.streams)
    groups = _calls(lambda parts: parts.inspector, Inspector.groups)
    consumers = _calls(lambda parts: parts.inspector, Inspector.consumers)
    pending = _calls(lambda parts: parts.inspector, Inspector.pending)
    history = _calls(lambda parts: parts.inspector, Inspector.history)
    rewind = _calls(lambda parts: parts.upkeep, Upkeep.rewind)
    redeliver = _calls(lambda parts: parts.upkeep, Upkeep.redeliver)
    trim = _calls(lambda parts: parts.upkeep, Upkeep.trim)
    drop = _calls(lambda parts: parts.upkeep, Upkeep.drop)
    remove_consumers = _calls(lambda parts: parts.upkeep, Upkeep.remove_consumers)
    remove_group = _calls(lambda parts: parts.upkeep, Upkeep.remove_group)

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
