"""Text forms used by `parley bus`: events as lines or JSON, addresses, positions and times."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.event import BusEvent
from parley._node.bus.identifiers import BEFORE_ALL, FIRST, NEW, Position, parse_id
from parley._node.cli.output import format_brief_time, format_time
from parley._node.cli.param_types import parse_duration
from parley._node.errors import ConfigError
from parley._node.logs import one_line


def event_line(event: BusEvent) -> str:
    text = f"{event.id}\t{_written(event)}"
    return text if event.attempt <= 1 else f"{text}\tattempt {event.attempt}"


def event_fields(event: BusEvent) -> dict[str, Any]:
    """Return all fields of an event, for JSON."""
    return {
        "id": event.id,
        "name": event.name,
        **_data(event),
        "published_at": publish_time(event.id),
        "idempotency_key": event.idempotency_key,
        "version": event.version,
    }


def publish_time(id: str | None) -> str | None:
    """Return the publish time in an event ID, if it has one."""
    return format_time(_nanoseconds(id))


def brief_publish_time(id: str | None) -> str:
    return format_brief_time(_nanoseconds(id))


def _nanoseconds(id: str | None) -> int | None:
    try:
        return None if id in (None, BEFORE_ALL) else parse_id(id).milliseconds * 10**6
    except InvalidEventError:
        return None


def _written(event: BusEvent) -> str:
    try:
        return json.dumps(event.data, ensure_ascii=False)
    except InvalidEventError:
        return event.body


def _data(event: BusEvent) -> dict[str, Any]:
    try:
        return {"data": event.data}
    except InvalidEventError:  # written by another program; show it anyway
        return {"data": None, "body": event.body}


BUSES: Final = ("sqlite:", "redis:", "rediss:", "redis+unix:", "tcp:", "unix:", "@")


def check_bus_address(text: str) -> str:
    if not text.startswith(BUSES):
        shown = text.partition("://")[0].rpartition("@")[2]  # the scheme, without a password
        raise ConfigError(
            f"invalid bus address {one_line(shown)!r}: expected sqlite:///FILE, "
            "redis://HOST:PORT/DB or tcp://HOST:PORT#NODEID; give it before all other arguments"
        )
    return text


def parse_position(text: str, option: str = "--start") -> Position:
    """Parse `first`, `new`, an ID, a time with its zone, or an age.

    Raises:
        ConfigError: the text is none of these.
    """
    if text in (FIRST, NEW):
        return text
    try:
        parse_id(text)
    except InvalidEventError:
        return parse_time(text, option)
    return text


def parse_time(text: str, option: str) -> datetime:
    """Parse an ISO 8601 time with a zone, or an age such as `90s`, `15m`, `2h` and `7d`.

    Raises:
        ConfigError: the text is neither.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = parse_duration(text)
            return datetime.now(UTC) - timedelta(seconds=seconds)
        except (ConfigError, OverflowError):
            raise ConfigError(
                f"invalid {option} {text!r}: expected an ID, a time such as 2026-01-31T12:00Z, "
                "or an age such as 2h"
            ) from None
    if when.tzinfo is None:
        raise ConfigError(
            f"invalid {option} {text!r}: the time zone is missing; write {text}Z or {text}+01:00"
        )
    return when
