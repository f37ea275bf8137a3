"""Values of arguments and options that several commands of `parley bus` take."""

from datetime import UTC, datetime, timedelta
from typing import Final

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import FIRST, NEW, Position, parse_id
from parley._node.cli.values import parse_duration
from parley._node.errors import ConfigError
from parley._node.logs import one_line

BUSES: Final = ("sqlite:", "redis:", "rediss:", "redis+unix:", "tcp:", "unix:", "@")


def check_bus_address(text: str) -> str:
    """What begins like the address of a bus: so that no other argument is blamed if none does."""
    if not text.startswith(BUSES):
        shown = text.partition("://")[0].rpartition("@")[2]  # without a password
        raise ConfigError(
            f"BUS: {one_line(shown)!r} is not the address of a bus: sqlite:///FILE, "
            "redis://HOST:PORT/DB or tcp://HOST:PORT#NODEID, before all other arguments"
        )
    return text


def parse_position(text: str, option: str = "--start") -> Position:
    """Where to begin: `first`, `new`, an id, a time with its zone, or how long ago.

    Raises:
        ConfigError: it is none of these.
    """
    if text in (FIRST, NEW):
        return text
    try:
        parse_id(text)
    except InvalidEventError:
        return parse_time(text, option)
    return text


def parse_time(text: str, option: str) -> datetime:
    """A time in ISO 8601 with its zone, or how long ago, as `90s`, `15m`, `2h` and `7d`.

    Raises:
        ConfigError: it is neither.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = parse_duration(text)
            return datetime.now(UTC) - timedelta(seconds=seconds)
        except (ConfigError, OverflowError):
            raise ConfigError(f"{option} {text}: neither an id, a time nor an age") from None
    if when.tzinfo is None:
        raise ConfigError(f"{option} {text}: a time needs its zone, as in {text}Z or {text}+01:00")
    return when
