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

    Example:

        from parley.bus import BusConfig

        bus = node.bus("sqlite:///bus.db", config=BusConfig(max_age=86_400, keep_unread=True))

    Attributes:
        service: the name of the service. If set, a group is stored as `SERVICE-GROUP`, as in
            Lightbus.
        consumer: the name of this process among the consumers of its groups. With a fixed name, a
            restarted process immediately continues its pending events. Default: host, process ID
            and four random characters.
        max_length: about how many events a stream keeps, at least 1; None: unlimited.
        max_age: how long a stream keeps events, in seconds, above 0; None: unlimited.
        max_bytes: about how many bytes of events a stream keeps, at least 1,024; None: unlimited.
        keep_unread: whether events that a group has not acknowledged stay, regardless of the three
            limits above (SQLite; not supported by Redis).
        max_store_bytes: the maximum size of the database file, at least 1 MiB. When it is reached,
            publishing raises BusFullError (SQLite).
        max_event_bytes: the maximum size of an event's data as JSON, in bytes, at least 64.
        idempotency_window: how long an idempotency key is remembered, in seconds, 0 or more.
        idempotency_keys: how many keys are remembered for each stream, at least 1. Beyond that the
            oldest is forgotten (SQLite).
        consumer_ttl: seconds after which an idle consumer is removed and its pending events are
            redelivered, at least 1.
        busy_timeout: how long to wait for another process that locks the database, in seconds, 0 or
            more.
        timeout: how long to wait for a response from Redis or another node, in seconds, above 0.
        waiting: how many operations may be queued for the store, at least 1. Further operations
            wait until the queue has space.
        formats: the Redis format of events, by API; `*` applies to all other APIs.
        clock: returns the time in seconds since 1970 (UTC); replaced in tests.
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
