"""The tables of a bus in SQLite, and its IDs.

Any change of the tables needs a new `VERSION`. An ID is stored as one integer of 63 bits,
milliseconds and a count within them. An ID in text that does not fit belongs to no event; used as a
position, it becomes the nearest ID before it. Times are seconds since 1970. Streams, groups and
consumers have small numbers.
"""

import re
from collections.abc import Sequence
from typing import Final

from parley._node.bus.identifiers import parse_id

# "PBUS", in the header of the file at byte 68.
APPLICATION_ID: Final = 0x50425553
VERSION: Final = 1

# `events`: in the order of publication, across streams. The index of a stream ends with the rowid,
#     so it has the same order.
# `streams`: `published` counts all events ever published, `last` is the ID of the last one;
#     `length` and `size` describe the current events.
# `groups`: `passed` is how many of the stream's `published` events need no further delivery, so
#     that the lag is a difference.
# `pending`: `due` is NULL while a consumer has the event, 0 if it is due now, else its due time;
#     `session` identifies the run that it was delivered to; `history` is JSON.
# `keys`: the idempotency keys that are remembered.
TABLES: Final = (
    """CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE streams (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        published INTEGER NOT NULL,
        last INTEGER NOT NULL,
        length INTEGER NOT NULL,
        size INTEGER NOT NULL,
        keys INTEGER NOT NULL
    )""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        stream INTEGER NOT NULL,
        version INTEGER NOT NULL,
        key TEXT,
        body TEXT NOT NULL
    )""",
    "CREATE INDEX events_of_stream ON events (stream)",
    """CREATE TABLE groups (
        number INTEGER PRIMARY KEY,
        stream INTEGER NOT NULL,
        name TEXT NOT NULL,
        cursor INTEGER NOT NULL,
        passed INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        redelivered INTEGER NOT NULL,
        dead_lettered INTEGER NOT NULL,
        UNIQUE (stream, name)
    )""",
    """CREATE TABLE consumers (
        number INTEGER PRIMARY KEY,
        grp INTEGER NOT NULL,
        name TEXT NOT NULL,
        seen REAL NOT NULL,
        UNIQUE (grp, name)
    )""",
    """CREATE TABLE pending (
        grp INTEGER NOT NULL,
        id INTEGER NOT NULL,
        consumer INTEGER NOT NULL,
        session INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        at REAL NOT NULL,
        due REAL,
        history TEXT,
        PRIMARY KEY (grp, id)
    ) WITHOUT ROWID""",
    # Contains only released and refused events: events that are delivered and acknowledged never
    # enter it.
    "CREATE INDEX pending_due ON pending (grp, due, id) WHERE due IS NOT NULL",
    """CREATE TABLE keys (
        stream INTEGER NOT NULL,
        id INTEGER NOT NULL,
        key TEXT NOT NULL,
        PRIMARY KEY (stream, id)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX keys_by_key ON keys (stream, key)",
    # `floor` is at least the ID of every deleted event.
    "INSERT INTO meta VALUES ('floor', 0), ('touched', 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


# The bits of the count: 1,048,576 events per millisecond (more continue in the next one), until
# 2248.
BITS: Final = 20
COUNT: Final = 2**BITS - 1
LARGEST: Final = 2**63 - 1
# An ID that no event has.
NO_ID: Final = -1

_LAST_MILLISECOND: Final = LARGEST >> BITS
# Matches milliseconds before the year 2223, and a count that fits.
_USUAL: Final = re.compile(
    r"([1-7][0-9]{12}|[1-9][0-9]{0,11})-(0|[1-9][0-9]{0,5})", re.ASCII
).fullmatch


def first_at(seconds: float) -> int:
    """Return the first ID of the millisecond of a time in seconds since 1970."""
    return max(0, min(int(seconds * 1000), _LAST_MILLISECOND)) << BITS


def text_of(number: int) -> str:
    return f"{number >> BITS}-{number & COUNT}"


def number_of(text: str) -> int:
    """Return the integer of an ID, or `NO_ID` if none of our events can have it.

    Raises:
        InvalidEventError: it is not an ID.
    """
    milliseconds, number = parse_id(text)
    if number > COUNT or milliseconds > _LAST_MILLISECOND:
        return NO_ID
    return milliseconds << BITS | number


def place_of(text: str) -> int:
    """Return the last integer that is not after an ID, whether an event has it or not.

    Raises:
        InvalidEventError: it is not an ID.
    """
    milliseconds, number = parse_id(text)
    if milliseconds > _LAST_MILLISECOND:
        return LARGEST
    return milliseconds << BITS | min(number, COUNT)


def numbers_of(ids: Sequence[str]) -> list[int]:
    """Return the integers of several IDs, without those that no event can have.

    Raises:
        InvalidEventError: one of them is not an ID.
    """
    found = []
    for text in ids:
        # Almost every ID has the form that text_of writes; number_of reads all others.
        match = _USUAL(text) if type(text) is str else None
        number = int(match[1]) << BITS | int(match[2]) if match else number_of(text)
        if number != NO_ID:
            found.append(number)
    return found
