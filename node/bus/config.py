"""The settings of a bus: limits, times, and what is kept for how long."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from parley._node.bus.names import check_word
from parley._node.bus.redis.format import RedisFormat
from parley._node.config import Range, require_in_range
from parley._node.errors import ConfigError
from parley._node.protocol.typed import check_types

# Every setting of `BusConfig` that is a number; it may not be infinite or NaN. None, where the
# type allows it, means without a bound.
RANGES: Final[Mapping[str, Range]] = {
    "max_length": Range(1),
    "max_age": Range(0, above=True),
    "max_bytes": Range(1024),
    "max_event_bytes": Range(64),
    "max_store_bytes": Range(2**20),
    "idempotency_window": Range(0),
    "idempotency_keys": Range(1),
    "consumer_ttl": Range(1),
    "busy_timeout": Range(0),
    "timeout": Range(0, above=True),
    "waiting": Range(1),
}
# How events look in Redis by default.
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
    max_length: int | None = 100_000
    max_age: float | None = None
    max_bytes: int | None = None
    keep_unread: bool = True
    max_store_bytes: int = 64 * 2**30
    max_event_bytes: int = 2**20
    idempotency_window: float = 86_400.0
    idempotency_keys: int = 1_000_000
    consumer_ttl: float = 2_592_000.0
    busy_timeout: float = 5.0
    timeout: float = 30.0
    waiting: int = 10_000
    formats: Mapping[str, RedisFormat] = field(default_factory=dict)
    clock: Callable[[], float] = time.time  # noqa: TID251 - ids are times that people read

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for name, allowed in RANGES.items():
            value = getattr(self, name)
            if value is not None:
                require_in_range(name, value, allowed)
        for kind, word in (("service", self.service), ("consumer", self.consumer)):
            if word:
                try:
                    check_word(kind, word)
                except ValueError as error:
                    raise ConfigError(str(error)) from error

    def format_of(self, api: str) -> RedisFormat:
        """How the events of an API look in Redis."""
        return self.formats.get(api) or self.formats.get("*") or _USUAL

    def group_name(self, group: str) -> str:
        """The name under which a store knows a group."""
        return f"{self.service}-{group}" if self.service else group
