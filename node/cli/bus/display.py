"""Events of a bus, as people and as JSON.

A line for people has an id and the data as JSON, separated by a tab; everything else that is known
is in the JSON line.
"""

import json
from typing import Any

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.event import BusEvent
from parley._node.bus.identifiers import BEFORE_ALL, parse_id
from parley._node.cli.output import brief_time, show_time


def show_event(event: BusEvent) -> str:
    """One event, for people; one that was handed out before says so."""
    text = f"{event.id}\t{_written(event)}"
    return text if event.attempt <= 1 else f"{text}\tattempt {event.attempt}"


def described(event: BusEvent) -> dict[str, Any]:
    """All that is known of one, for JSON."""
    return {
        "id": event.id,
        "name": event.name,
        **_data(event),
        "published_at": moment_of(event.id),
        "idempotency_key": event.idempotency_key,
        "version": event.version,
    }


def moment_of(id: str | None) -> str | None:
    """When an event of this id was published; None where that is not known."""
    return show_time(_nanoseconds(id))


def brief_moment(id: str | None) -> str:
    """The same to the second, for a table."""
    return brief_time(_nanoseconds(id))


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
    except InvalidEventError:  # another program wrote it; what it is can be seen all the same
        return {"data": None, "body": event.body}
