"""What is done to streams and groups by hand: rewind, redeliver, trim, drop, remove. An event that
is taken out of a stream is pending in no group any more.
"""

from collections.abc import Sequence
from typing import Final

from coredis.exceptions import RedisError

from parley._node.bus.config import BusConfig
from parley._node.bus.ids import AFTER_ALL, parse_id
from parley._node.bus.model import Trim
from parley._node.bus.names import api_of
from parley._node.bus.redis.group_notes import Memberships, keys_of
from parley._node.bus.redis.inspector import Inspector, readable
from parley._node.bus.redis.redis_client import RedisClient, Word
from parley._node.bus.redis.redis_errors import bus_error, is_missing_group
from parley._node.bus.redis.scripts import FORGET, NOBODY, REDELIVER, REMOVE_CONSUMER, SHRINK

_BEYOND_ALL: Final = f"{2**64 - 1}-{2**64 - 1}"


class Upkeep:
    """The upkeep of one store."""

    def __init__(
        self, client: RedisClient, config: BusConfig, memberships: Memberships, inspector: Inspector
    ) -> None:
        self._client = client
        self._config = config
        self._memberships = memberships
        self._looker = inspector

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """The group reads on after `after`."""
        key = self._key(stream)
        if after != AFTER_ALL:
            after = str(parse_id(after))
        try:
            await self._client.raw(b"XGROUP", b"SETID", key, group, after)
        except RedisError as error:
            if not is_missing_group(error):
                raise bus_error(error) from error
            await self._client.command(b"XGROUP", b"CREATE", key, group, after, b"MKSTREAM")
        places = self._memberships.of(stream, key, group).places
        for info in await self._looker.infos(b"GROUPS", key):
            if info[b"name"] == group.encode():
                places.update(dict.fromkeys(places, info[b"last-delivered-id"].decode()))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events pending and due, as if they had never been handed out."""
        checked = [str(parse_id(id)) for id in ids]
        found = await self._client.group_script(
            REDELIVER, keys_of(self._key(stream), group), group, "", *checked
        )
        return [id.decode() for id in found or ()]

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Take away the oldest events beyond the bounds."""
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
        """Take events out of a stream."""
        if not ids:
            return 0
        key = self._key(stream)
        checked = [str(parse_id(id)) for id in ids]
        taken: int = await self._client.command(b"XDEL", key, *checked)
        if taken:
            await self._forget(key, *checked)
        return taken

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """Forget idle consumers; what they held is due."""
        key = self._key(stream)
        return [
            consumer.name
            for consumer in await self._looker.consumers(stream, group)
            if consumer.idle >= idle
            and await self._client.group_script(
                REMOVE_CONSUMER, keys_of(key, group), group, consumer.name, int(idle * 1000)
            )
        ]

    async def remove_group(self, stream: str, group: str) -> bool:
        """Forget a group, and our notes on it."""
        key = self._key(stream)
        try:
            gone = await self._client.raw(b"XGROUP", b"DESTROY", key, group)
        except RedisError as error:
            if not is_missing_group(error):
                raise bus_error(error) from error
            gone = 0
        await self._client.command(b"DEL", *keys_of(key, group).own)
        self._memberships.of(stream, key, group).held.clear()
        return bool(gone)

    async def _forget(self, key: str, *words: Word) -> None:
        """Make events that are gone pending in no group."""
        for info in await self._looker.infos(b"GROUPS", key):
            name = info[b"name"]
            keys = keys_of(key, readable(name))
            await self._client.group_script(FORGET, keys, name, NOBODY, *words)

    def _key(self, stream: str) -> str:
        return self._config.format_of(api_of(stream)).key(stream)
