"""Ids of stored events: `MILLISECONDS-NUMBER`, as Redis Streams has them, in order of time.

An id is text for people and programs, and a pair of integers where ids are compared. Ids stay in
order even when the clock goes back.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from parley._node.bus.errors import InvalidEventError

# Where to begin: the first event that is stored, what is published from now on, an id (that
# event included), or a time (an aware datetime).
Position: TypeAlias = str | datetime

FIRST: Final = "first"
NEW: Final = "new"
# Values of `after` for a store: before all events, and after all that are there now.
BEFORE_ALL: Final = "0-0"
AFTER_ALL: Final = "$"

_LARGEST: Final = 2**64 - 1
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,19})(?:-(0|[1-9][0-9]{0,19}))?", re.ASCII)


class EventId(NamedTuple):
    """An id as numbers: milliseconds since 1970 (UTC) and a count within them, both u64."""

    milliseconds: int
    number: int

    def __str__(self) -> str:
        return f"{self.milliseconds}-{self.number}"

    @property
    def published_at(self) -> datetime:
        """When it was given, by the store's clock; the last moment of `datetime` for a later time,
        which only another program's id can have."""
        try:
            return datetime.fromtimestamp(self.milliseconds / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return datetime.max.replace(tzinfo=UTC)

    @property
    def before(self) -> "EventId":
        """The last id that could come before this one; 0-0 has itself."""
        if self.number:
            return EventId(self.milliseconds, self.number - 1)
        if self.milliseconds:
            return EventId(self.milliseconds - 1, _LARGEST)
        return self


def parse_id(text: object) -> EventId:
    """An id from its text; one without a number is the first of its millisecond.

    Raises:
        InvalidEventError: it is not an id.
    """
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    if found is not None:
        milliseconds, number = int(found[1]), int(found[2] or 0)
        if milliseconds <= _LARGEST and number <= _LARGEST:
            return EventId(milliseconds, number)
    raise InvalidEventError(f"{text!r} is not the id of an event: MILLISECONDS-NUMBER")


def first_id_at(when: datetime) -> EventId:
    """The first id that an event of this time can have.

    Raises:
        InvalidEventError: the time is without a zone, or before 1970.
    """
    if when.tzinfo is None:
        raise InvalidEventError(f"a time needs a zone, unlike {when}: datetime.now(UTC)")
    milliseconds = int(when.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidEventError(f"no event is older than 1970, as {when} is")
    return EventId(milliseconds, 0)


def id_of(position: Position) -> EventId:
    """The first id that an event at `position`, an id or a time, can have; raises as `after`."""
    return first_id_at(position) if isinstance(position, datetime) else parse_id(position)


def last_before(position: Position) -> str:
    """The last id up to `position`: an id itself, but a time exclusive. Raises as `after`."""
    found = id_of(position)
    return str(found.before if isinstance(position, datetime) else found)


def oldest_kept(before: Position | None, since: float | None) -> str | None:
    """The first id that is neither before a position nor of a time, seconds since 1970, before
    `since`; None if there is no such bound. Raises as `after`."""
    first = [] if before is None else [id_of(before)]
    if since is not None:
        first.append(first_id_at(datetime.fromtimestamp(max(since, 0), UTC)))
    return str(max(first)) if first else None


def after(position: Position) -> str:
    """The id after which a store begins for `position`, itself excluded, or `$`.

    Raises:
        InvalidEventError: it is neither an id, a time, `first` nor `new`.
    """
    if position == FIRST:
        return BEFORE_ALL
    if position == NEW:
        return AFTER_ALL
    return str(id_of(position).before)
