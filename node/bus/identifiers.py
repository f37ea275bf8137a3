"""IDs of events, and names of events, groups, consumers and idempotency keys.

An ID is `MILLISECONDS-NUMBER`, as in Redis Streams: text for people and programs, a pair of
integers for comparisons. IDs ascend even if the clock is set back. A name can be used unescaped as
a Redis key, on a terminal and as a field on the wire.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from parley._node.bus.errors import InvalidEventError
from parley._node.protocol.event_types import DEAD as DEAD
from parley._node.protocol.event_types import LONGEST_EVENT as LONGEST_EVENT
from parley._node.protocol.event_types import LONGEST_NAME as LONGEST_NAME
from parley._node.protocol.event_types import is_name, is_word

# A start position: the first stored event, future events only, an ID (inclusive), or a time (an
# aware datetime).
Position: TypeAlias = str | datetime

FIRST: Final = "first"
NEW: Final = "new"
# Values of `after` for a store: before all events, and after all current events.
BEFORE_ALL: Final = "0-0"
AFTER_ALL: Final = "$"

_LARGEST: Final = 2**64 - 1
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,19})(?:-(0|[1-9][0-9]{0,19}))?", re.ASCII)


class EventId(NamedTuple):
    """An ID as numbers: milliseconds since 1970 (UTC) and a count within them, both u64."""

    milliseconds: int
    number: int

    def __str__(self) -> str:
        return f"{self.milliseconds}-{self.number}"

    @property
    def published_at(self) -> datetime:
        """The time of the ID, by the store's clock.

        An ID of another program can be later than `datetime.max`, which is then returned.
        """
        try:
            return datetime.fromtimestamp(self.milliseconds / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return datetime.max.replace(tzinfo=UTC)

    @property
    def before(self) -> "EventId":
        """The previous possible ID; 0-0 returns itself."""
        if self.number:
            return EventId(self.milliseconds, self.number - 1)
        if self.milliseconds:
            return EventId(self.milliseconds - 1, _LARGEST)
        return self


def parse_id(text: object) -> EventId:
    """Parse an ID. An ID without a number is the first of its millisecond.

    Raises:
        InvalidEventError: `text` is not an ID.
    """
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    if found is not None:
        milliseconds, number = int(found[1]), int(found[2] or 0)
        if milliseconds <= _LARGEST and number <= _LARGEST:
            return EventId(milliseconds, number)
    raise InvalidEventError(f"invalid event ID {_shown(text)}: expected MILLISECONDS-NUMBER")


def first_id_at(when: datetime) -> EventId:
    """Return the first ID that an event of this time can have.

    Raises:
        InvalidEventError: the time has no time zone, or is before 1970.
    """
    if when.tzinfo is None:
        raise InvalidEventError(
            f"invalid time {str(when)!r}: it has no time zone; use datetime.now(UTC)"
        )
    milliseconds = int(when.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidEventError(f"invalid time {str(when)!r}: it is before 1970")
    return EventId(milliseconds, 0)


def id_of(position: Position) -> EventId:
    """Return the first ID that an event at `position`, an ID or a time, can have.

    Raises the errors of `after`.
    """
    return first_id_at(position) if isinstance(position, datetime) else parse_id(position)


def last_before(position: Position) -> str:
    """Return the last ID up to an ID, or before a time. Raises the errors of `after`."""
    found = id_of(position)
    return str(found.before if isinstance(position, datetime) else found)


def oldest_kept(before: Position | None, since: float | None) -> str | None:
    """Return the first ID that is neither before a position nor older than `since`.

    `since` is in seconds since 1970. Returns None if both are None. Raises the errors of `after`.
    """
    first = [] if before is None else [id_of(before)]
    if since is not None:
        first.append(first_id_at(datetime.fromtimestamp(max(since, 0), UTC)))
    return str(max(first)) if first else None


def after(position: Position) -> str:
    """Return the ID after which a store begins for `position`, or `$`.

    Raises:
        InvalidEventError: `position` is neither an ID, a time, `first` nor `new`.
    """
    if position == FIRST:
        return BEFORE_ALL
    if position == NEW:
        return AFTER_ALL
    return str(id_of(position).before)


LONGEST_KEY: Final = LONGEST_NAME
# The suffix of the name of an API's stream of all events.
ALL: Final = ".*"
# How many names have their parts cached, because each event needs them several times.
REMEMBERED: Final = 1_024


def split_name(name: object) -> tuple[str, str]:
    """Split `API.EVENT` into API and event; an API may contain dots.

    Raises:
        InvalidEventError: the name is malformed or longer than 251 characters (256 if the event is
            `dead`).
    """
    if isinstance(name, str) and len(name) <= LONGEST_NAME and (parts := _parts(name)) is not None:
        return parts
    raise InvalidEventError(
        f"invalid event name {_shown(name)}: expected API.EVENT, with letters, digits, _ and -, "
        f"at most {LONGEST_EVENT} characters"
    )


@lru_cache(REMEMBERED)
def _parts(name: str) -> tuple[str, str] | None:
    if not is_name(name):
        return None
    api, _, event = name.rpartition(".")
    return api, event


def api_of(name: str) -> str:
    """Return the API of `API.EVENT`, or of `API.*`, the stream of all events of an API.

    Raises:
        InvalidEventError: the name is malformed.
    """
    return split_name(f"{name.removesuffix(ALL)}.all" if name.endswith(ALL) else name)[0]


def dead_name(name: str) -> str:
    """Return the name of the dead-letter stream of `name`."""
    return f"{name}.{DEAD}"


def check_word(kind: str, word: object) -> None:
    """Raise InvalidEventError unless `word` is a valid name of a `kind`: a group or a consumer."""
    if not is_word(word):
        raise InvalidEventError(
            f"invalid {kind} name {_shown(word)}: expected 1 to {LONGEST_NAME} printable ASCII "
            "characters, no spaces"
        )


def check_key(key: object) -> None:
    """Raise InvalidEventError unless `key` is a valid idempotency key."""
    if not is_word(key, LONGEST_KEY):
        raise InvalidEventError(
            f"invalid idempotency key {_shown(key)}: expected 1 to {LONGEST_KEY} printable ASCII "
            "characters, no spaces"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
