"""Events of a bus as people and JSON read them.

One rule: a line of people's is an id and the data as JSON, with a tab between; whatever else is
known stands in the JSON line.
"""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from node.bus.errors import InvalidEventError
from node.bus.ids import parse_id

if TYPE_CHECKING:
    from node.bus.event import BusEvent


def show_event(event: "BusEvent") -> str:
    """One event, for people; one that was handed out before says so."""
    text = f"{event.id}\t{_written(event)}"
    return text if event.attempt <= 1 else f"{text}\tattempt {event.attempt}"


def described(event: "BusEvent") -> dict[str, Any]:
    """All that is known of one, for JSON."""
    return {
        "id": event.id,
        "name": event.name,
        **_data(event),
        "published_at": show_moment(event.published_at),
        "idempotency_key": event.idempotency_key,
        "version": event.version,
    }


def show_moment(when: datetime) -> str:
    """ISO 8601 to the millisecond, UTC."""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(id: str | None) -> str | None:
    """When an event of this id was published; None where that is not known."""
    try:
        return None if id is None else show_moment(parse_id(id).published_at)
    except (InvalidEventError, ValueError, OverflowError, OSError):
        return None


def _written(event: "BusEvent") -> str:
    try:
        return json.dumps(event.data, ensure_ascii=False)
    except InvalidEventError:
        return event.body


def _data(event: "BusEvent") -> dict[str, Any]:
    try:
        return {"data": event.data}
    except InvalidEventError:  # another program wrote it; what it is can be seen all the same
        return {"data": None, "body": event.body}
