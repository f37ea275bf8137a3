"""The addresses of buses, and `open_bus` for programs without a node.

An address is `sqlite:///FILE`, `redis://HOST:PORT/DATABASE` or, for Redis on a Unix socket,
`redis+unix:///PATH` (`unix:///PATH` is the address of a node). Its query can set the scalar fields
of `BusConfig` (`?max_length=1000&service=shop`). A store is imported only when an address needs it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from parley._node.bus.bus import DRAIN_TIMEOUT, Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.redis.format import DOCUMENTED, DOCUMENTED_PER_API, LIGHTBUS, RedisFormat
from parley._node.bus.store import Store
from parley._node.errors import AddressError, ConfigError
from parley._node.logs import needs_extra
from parley._node.transport.task_scope import TaskScope

REDIS_SCHEMES: Final = ("redis", "rediss", "redis+unix")
_EXPECTED: Final = "sqlite:///FILE, redis://HOST:PORT/DATABASE, rediss://..., redis+unix:///PATH"


def open_store(address: str, config: BusConfig | None = None) -> tuple[Store, BusConfig]:
    """Return the unopened store at an address, and `config` updated with the address's settings.

    Raises:
        AddressError: the address is invalid.
        ConfigError: a setting in it is invalid, or a required package is not installed.
    """
    try:
        parts = urlsplit(address)
        _ = parts.port  # Raises if a password contains an unescaped / or ?.
    except ValueError:
        # The error's text may contain part of a password.
        raise AddressError(f"invalid bus address: not a URL; use {_EXPECTED}") from None
    config = _settings(parts, config or BusConfig())
    if parts.scheme == "sqlite":
        return _sqlite(parts, config), config
    if parts.scheme in REDIS_SCHEMES:
        return _redis(parts, config), config
    # The rest of the address is not shown, because it may contain a password.
    reason = f"unknown scheme {parts.scheme!r}" if parts.scheme else "it has no scheme"
    raise AddressError(f"invalid bus address: {reason}; use {_EXPECTED}")


@asynccontextmanager
async def open_bus(
    url: str, config: BusConfig | None = None, *, drain_timeout: float = DRAIN_TIMEOUT
) -> AsyncIterator[Bus]:
    """Open a bus without a node: `async with open_bus("sqlite:///bus.db") as bus`.

    When the block ends, running handlers have `drain_timeout` seconds to finish.

    Example:

        from parley.bus import open_bus

        async with open_bus("sqlite:///bus.db") as bus:
            await bus.publish("shop.order_placed", {"id": 7})

    Raises:
        AddressError: the address is invalid.
        ConfigError: a setting is invalid.
        BusError: the bus cannot be opened.
    """
    store, settings = open_store(url, config)
    scope = TaskScope("the bus")
    backend = await scope.enter()
    try:
        bus = Bus(store, settings, loop=lambda: backend)
        timeout = 0.0
        try:
            await bus.opened()
            bus.begin()
            yield bus
            timeout = drain_timeout
        finally:
            await bus.aclose(timeout)
    finally:
        await scope.leave()


def _sqlite(parts: SplitResult, config: BusConfig) -> Store:
    from parley._node.bus.sqlite.store import SqliteStore

    path = unquote(parts.path[1:])
    if parts.netloc or not parts.path.startswith("/") or not path or "\0" in path:
        raise AddressError(
            f"cannot use the bus file {ascii(path)[:200]}: the address must have three slashes "
            "and a path; use sqlite:///bus.db or sqlite:////var/bus.db"
        )
    return SqliteStore(path, config)


def _redis(parts: SplitResult, config: BusConfig) -> Store:
    try:
        from parley._node.bus.redis.store import RedisStore
    except ImportError as error:
        raise ConfigError(needs_extra("a bus on Redis", "bus")) from error

    scheme = parts.scheme.removeprefix("redis+")
    database = dict(parse_qsl(parts.query)).get("db")
    query = f"db={database}" if scheme == "unix" and database is not None else ""
    return RedisStore(parts._replace(scheme=scheme, query=query, fragment="").geturl(), config)


def _settings(parts: SplitResult, config: BusConfig) -> BusConfig:
    given: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name == "format":
            given["formats"] = {**config.formats, "*": _format(text)}
        elif name == "db" and parts.scheme == "redis+unix":
            continue  # Part of the address, whose path is that of the socket.
        elif name in _READERS:
            given[name] = _READERS[name](name, text)
        else:
            # Other text may be part of a password that contains a question mark.
            shown = f" {name!r}" if name.isidentifier() else ""
            known = ", ".join(("format", *_READERS))
            raise ConfigError(f"unknown setting{shown} in a bus address; use one of {known}")
    return replace(config, **given)


def _format(text: str) -> RedisFormat:
    if text not in FORMATS:
        raise ConfigError(f"invalid format {text!r}: it must be one of {', '.join(FORMATS)}")
    return FORMATS[text]


def _word(name: str, text: str) -> str:
    return text


def _yes_or_no(name: str, text: str) -> bool:
    if text not in _TRUTHS:
        raise ConfigError(f"invalid {name} {text!r}: it must be true or false")
    return _TRUTHS[text]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"invalid {name} {text!r}: it must be a number") from None


def _count(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"invalid {name} {text!r}: it must be a whole number") from None


def _or_none(reader: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    return lambda name, text: None if text == "none" else reader(name, text)


_TRUTHS: Final = {"true": True, "false": False}
# The values of `?format=`: the formats that Lightbus 1.1.2 writes, and those that its documentation
# describes, each with one stream per event or per API.
FORMATS: Final[Mapping[str, RedisFormat]] = {
    "per-event": RedisFormat(),
    "per-api": LIGHTBUS,
    "documented": DOCUMENTED,
    "documented-per-api": DOCUMENTED_PER_API,
}
_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "service": _word,
    "consumer": _word,
    "max_length": _or_none(_count),
    "max_age": _or_none(_number),
    "max_bytes": _or_none(_count),
    "keep_unread": _yes_or_no,
    "max_store_bytes": _count,
    "max_event_bytes": _count,
    "idempotency_window": _number,
    "idempotency_keys": _count,
    "consumer_ttl": _number,
    "busy_timeout": _number,
    "timeout": _number,
    "waiting": _count,
}


def without_password(address: str) -> str:
    """Return an address for display, without settings, user and password."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return "?"  # Not an address, so any part of it may be the password.
    if scheme != "sqlite":
        rest = rest.rpartition("@")[2]
    return f"{scheme}{mark}{rest.partition('?')[0]}"
