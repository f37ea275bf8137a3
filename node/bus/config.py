"""The settings of a bus."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta

from parley._node.bus.identifiers import check_word
from parley._node.bus.redis.format import RedisFormat
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import Count, Seconds, check_types

_USUAL: Final = RedisFormat()


@dataclass(frozen=True, slots=True, kw_only=True)
class BusConfig:
    """Settings of a bus.

    Attributes:
        service: the name of the service; groups are then `SERVICE-GROUP`, as Lightbus has them.
            Empty: groups are called as they are.
        consumer: the name of this process among the consumers of its groups. A name that stays
            the same after a restart finds its pending events at once. Empty: host, process id
            and four random characters.
        max_length: about how many events a stream keeps, 1 or more; None: no bound.
        max_age: seconds that a stream keeps events, above 0; None: no bound.
        max_bytes: about how many bytes of events a stream keeps, 1,024 or more; None: no bound.
        keep_unread: whether events that a group has yet to acknowledge stay, whatever the three
            bounds say (SQLite; Redis cannot).
        max_store_bytes: the largest size of the database file, at least 1 MiB; then publishing
            raises BusFullError (SQLite).
        max_event_bytes: the longest data of an event as JSON, bytes, at least 64.
        idempotency_window: seconds for which an idempotency key is remembered, 0 or more.
        idempotency_keys: how many keys are remembered for a stream, at least 1; then the oldest
            is forgotten (SQLite).
        consumer_ttl: seconds after which an idle consumer is forgotten and what is pending with
            it is due, at least 1.
        busy_timeout: seconds to wait for another process that holds the database, 0 or more.
        timeout: seconds to wait for an answer of Redis or of another node, above 0.
        waiting: operations that may wait in line for the store, at least 1; further ones wait for
            room.
        formats: how the events of some APIs look in Redis; `*` is for all others.
        clock: the time, in seconds since 1970 (UTC); for tests.
    """

    service: str = ""
    consumer: str = ""
    max_length: Count | None = 100_000
    max_age: Seconds | None = None
    max_bytes: Annotated[int, Meta(ge=1024)] | None = None
    keep_unread: bool = True
    max_store_bytes: Annotated[int, Meta(ge=2**20)] = 64 * 2**30
    max_event_bytes: Annotated[int, Meta(ge=64)] = 2**20
    idempotency_window: Annotated[float, Meta(ge=0)] = 86_400.0
    idempotency_keys: Count = 1_000_000
    consumer_ttl: Annotated[float, Meta(ge=1)] = 2_592_000.0
    busy_timeout: Annotated[float, Meta(ge=0)] = 5.0
    timeout: Seconds = 30.0
    waiting: Count = 10_000
    formats: Mapping[str, RedisFormat] = field(default_factory=dict)
    clock: Callable[[], float] = time.time  # noqa: TID251 - ids are times that people read

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for kind, word in (("service", self.service), ("consumer", self.consumer)):
            if word:
                try:
                    check_word(kind, word)
                except ValueError as error:
                    raise ConfigError(str(error)) from error

    def format_of(self, api: str) -> RedisFormat:
        """Return the Redis format of an API's events."""
        return self.formats.get(api) or self.formats.get("*") or _USUAL

    def group_name(self, group: str) -> str:
        """Return the store's name of a group."""
        return f"{self.service}-{group}" if self.service else group
