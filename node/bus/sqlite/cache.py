"""Metadata of streams, groups and consumers that the thread keeps in memory.

Counts are updated here and written once per transaction (`flush`). The cache is cleared (`forget`)
when a transaction fails or another process wrote to the file.
"""

import sqlite3
from dataclasses import dataclass, field
from typing import Final

from parley._node.bus.sqlite.schema import first_at

# The most streams, groups and consumers in the cache; beyond that it is cleared.
REMEMBERED: Final = 10_000
# The minimum interval between writes of a waiting consumer's last request time, in seconds.
SEEN_RESOLUTION: Final = 1.0

_ADD_EVENT: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"


@dataclass(slots=True, eq=False)
class StreamRow:
    """A row of `streams`. `groups` is None until it is needed.

    `added` is the number of events that this transaction published.
    """

    number: int
    name: str
    published: int
    last: int
    length: int
    size: int
    keys: int
    added: int = 0
    groups: "dict[str, GroupRow] | None" = None


@dataclass(slots=True, eq=False)
class GroupRow:
    """A row of `groups`. `held_since` is not after the time of any event held in it."""

    number: int
    stream: StreamRow
    name: str
    cursor: int
    passed: int
    pending: int
    redelivered: int
    dead_lettered: int
    held_since: float = 0.0
    consumers: "dict[str, ConsumerRow]" = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return max(0, self.stream.published - self.passed)


@dataclass(slots=True, eq=False)
class ConsumerRow:
    """A row of `consumers`. `written` is the stored value of `seen`."""

    number: int
    name: str
    seen: float
    written: float = field(init=False)

    def __post_init__(self) -> None:
        self.written = self.seen


class MetadataCache:
    """The state that all operations of a transaction share.

    Attributes:
        cursor: runs queries.
        now: the time of the transaction, in seconds since 1970.
        session: a number unique to this run.
        last_id: the last ID assigned.
        rows: published events that are not inserted yet.
        added: bytes of events that this transaction stores.
        handed: the number of new events that it delivers.
        grown: streams with new or released events, whose readers are woken.
        places: positions of this run's groups at their last read, by (stream, group).
        staged: the same, for this transaction.
        repeated: whether a published event was a duplicate, whose original must then be on disk.
    """

    def __init__(self, connection: sqlite3.Connection, session: int) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.session = session
        self.now = 0.0
        self.last_id = -1
        self.added = 0
        self.handed = 0
        self.repeated = False
        self.places: dict[tuple[str, str], int] = {}
        self.staged: dict[tuple[str, str], int] = {}
        self._remembered = 0
        self.streams: dict[str, StreamRow] = {}
        self.rows: list[tuple[int, int, int, str | None, str]] = []
        self.grown: set[StreamRow] = set()
        self.changed: set[StreamRow] = set()
        self.changed_groups: set[GroupRow] = set()

    # A transaction.

    def begin(self, now: float) -> None:
        self.now = now
        if self._remembered > REMEMBERED:
            self.forget()
        if self.last_id < 0:
            self.last_id = max(
                self._number("SELECT max(id) FROM events"),
                self._number("SELECT value FROM meta WHERE name = 'floor'"),
            )

    def insert(self) -> None:
        """Insert published events, before events are read."""
        if self.rows:
            self.cursor.executemany(_ADD_EVENT, self.rows)
            self.rows.clear()

    def flush(self) -> None:
        """Write the changed counts."""
        if self.changed:
            self.cursor.executemany(
                "UPDATE streams SET published = ?, last = ?, length = ?, size = ?, keys = ? "
                "WHERE number = ?",
                [(s.published, s.last, s.length, s.size, s.keys, s.number) for s in self.changed],
            )
            self.changed.clear()
        if self.changed_groups:
            self.cursor.executemany(
                "UPDATE groups SET cursor = ?, passed = ?, pending = ?, redelivered = ?, "
                "dead_lettered = ? WHERE number = ?",
                [
                    (g.cursor, g.passed, g.pending, g.redelivered, g.dead_lettered, g.number)
                    for g in self.changed_groups
                ],
            )
            self.changed_groups.clear()

    def end(self) -> None:
        """Reset the state of the transaction, which was committed."""
        for stream in self.grown:
            stream.added = 0
        self.grown.clear()
        self.added = 0
        self.handed = 0
        self.repeated = False
        if self.staged:
            self.places.update(self.staged)
            self.staged.clear()
            while len(self.places) > REMEMBERED:
                self.places.pop(next(iter(self.places)))

    def forget(self) -> None:
        """Clear the cache, because it may be outdated."""
        self.streams.clear()
        self._remembered = 0
        self.last_id = -1
        self.rows.clear()
        self.grown.clear()
        self.changed.clear()
        self.changed_groups.clear()
        self.staged.clear()
        self.added = 0
        self.handed = 0
        self.repeated = False

    # Streams, groups and consumers.

    def next_id(self) -> int:
        self.last_id = number = max(self.last_id + 1, first_at(self.now))
        return number

    def stream(self, name: str) -> StreamRow | None:
        found = self.streams.get(name)
        if found is None:
            row = self.cursor.execute("SELECT * FROM streams WHERE name = ?", (name,)).fetchone()
            if row is not None:
                self._remembered += 1
                found = self.streams[name] = StreamRow(*row)
        return found

    def make_stream(self, name: str) -> StreamRow:
        """Return a stream, created if necessary."""
        found = self.streams.get(name) or self.stream(name)
        if found is None:
            self.cursor.execute("INSERT INTO streams VALUES (NULL, ?, 0, 0, 0, 0, 0)", (name,))
            found = self.streams[name] = StreamRow(self.cursor.lastrowid or 0, name, 0, 0, 0, 0, 0)
            found.groups = {}
            self._remembered += 1
        return found

    def groups(self, stream: StreamRow) -> "dict[str, GroupRow]":
        if stream.groups is None:
            rows = self.cursor.execute(
                "SELECT number, name, cursor, passed, pending, redelivered, dead_lettered "
                "FROM groups WHERE stream = ?",
                (stream.number,),
            ).fetchall()
            stream.groups = {row[1]: GroupRow(row[0], stream, *row[1:]) for row in rows}
            self._remembered += len(rows)
        return stream.groups

    def group(self, stream: str, name: str) -> GroupRow | None:
        found = self.streams.get(stream) or self.stream(stream)
        return None if found is None else self.groups(found).get(name)

    def make_group(self, stream: str, name: str, cursor: int, passed: int) -> GroupRow:
        owner = self.make_stream(stream)
        self.cursor.execute(
            "INSERT INTO groups VALUES (NULL, ?, ?, ?, ?, 0, 0, 0)",
            (owner.number, name, cursor, passed),
        )
        group = GroupRow(self.cursor.lastrowid or 0, owner, name, cursor, passed, 0, 0, 0)
        self.groups(owner)[name] = group
        self._remembered += 1
        return group

    def consumer(self, group: GroupRow, name: str) -> ConsumerRow | None:
        found = group.consumers.get(name)
        if found is None:
            row = self.cursor.execute(
                "SELECT number, name, seen FROM consumers WHERE grp = ? AND name = ?",
                (group.number, name),
            ).fetchone()
            if row is not None:
                found = group.consumers[name] = ConsumerRow(*row)
                self._remembered += 1
        return found

    def touch_consumer(self, group: GroupRow, name: str) -> ConsumerRow:
        """Record the time of a consumer's request; create the consumer if necessary."""
        found = group.consumers.get(name) or self.consumer(group, name)
        if found is None:
            self.cursor.execute(
                "INSERT INTO consumers VALUES (NULL, ?, ?, ?)", (group.number, name, self.now)
            )
            found = ConsumerRow(self.cursor.lastrowid or 0, name, self.now)
            group.consumers[name] = found
            self._remembered += 1
        found.seen = self.now
        if abs(self.now - found.written) >= SEEN_RESOLUTION:
            self.cursor.execute(
                "UPDATE consumers SET seen = ? WHERE number = ?", (self.now, found.number)
            )
            found.written = self.now
        return found

    def _number(self, query: str) -> int:
        value = self.cursor.execute(query).fetchone()[0]
        return value if isinstance(value, int) else 0
