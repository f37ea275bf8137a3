"""Ids of stored events: `MILLISECONDS-NUMBER`, as Redis Streams has them, in order of time.

One rule: an id is text for people and programs, and a pair of integers for what compares. Ids
that were given stay in order also when the clock goes back. Knows no store.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from node.bus.errors import InvalidEventError

# Where to begin: the first event that is stored, what is published from now on, an id (that
# event included), or a time (an aware datetime).
Position: TypeAlias = str | datetime

FIRST: Final = "first"
NEW: Final = "new"
# What a store takes as `after`: before all events, and after all that are there now.
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
        """When it was given, by the clock of who stores it; the last moment that there is for a
        time beyond it, which only another program's id can have."""
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
        InvalidEventError: it is none.
    """
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    if found is not None:
        milliseconds, number = int(found[1]), int(found[2] or 0)
        if milliseconds <= _LARGEST and number <= _LARGEST:
            return EventId(milliseconds, number)
    raise InvalidEventError(f"{text!r} is no id of an event: MILLISECONDS-NUMBER")


def first_id_at(when: datetime) -> EventId:
    """The first id that an event of this time can have.

    Raises:
        InvalidEventError: the time is without a zone, or before 1970.
    """
    if when.tzinfo is None:
        raise InvalidEventError("a time needs a zone: datetime.now(UTC)")
    milliseconds = int(when.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidEventError("no event is older than 1970")
    return EventId(milliseconds, 0)


def after(position: Position) -> str:
    """What a store takes for `position`: the id (exclusive) after which it begins, or `$`.

    Raises:
        InvalidEventError: it is neither an id, a time, `first` nor `new`.
    """
    if position == FIRST:
        return BEFORE_ALL
    if position == NEW:
        return AFTER_ALL
    if isinstance(position, datetime):
        return str(first_id_at(position).before)
    return str(parse_id(position).before)
