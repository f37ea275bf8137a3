"""The tables of a bus in SQLite, and how the file says that it is one: a change here is a new
`VERSION`. Ids are integers (`integer_ids.py`), times seconds since 1970; streams, groups and
consumers are small numbers.
"""

from typing import Final

# "PBUS"; in the header of the file, at byte 68.
APPLICATION_ID: Final = 0x50425553
VERSION: Final = 1

# `events`: in the order in which they were published, whatever their stream; the index of a
# stream has the rowid at its end, and so is in that order too.
# `streams`: `published` counts all events that ever were, `last` is the id of the last one;
# `length` and `size` are of the events there now.
# `groups`: `passed` is how many of the stream's `published` need not be handed out any more, so
# that its lag is a difference.
# `pending`: `due` NULL is held by its consumer, 0 is due now, else when it is due; `session` is
# the run of a program that it was handed out in; `history` is JSON.
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
    # It has only events that were given back: those handed out and acknowledged never enter it.
    "CREATE INDEX pending_due ON pending (grp, due, id) WHERE due IS NOT NULL",
    """CREATE TABLE keys (
        stream INTEGER NOT NULL,
        id INTEGER NOT NULL,
        key TEXT NOT NULL,
        PRIMARY KEY (stream, id)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX keys_by_key ON keys (stream, key)",
    # `floor`: an id that is not below any given id whose event was taken out.
    "INSERT INTO meta VALUES ('floor', 0), ('touched', 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
