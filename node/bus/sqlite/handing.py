"""Handing events to consumers: what is new to the group, what is due, what was left behind.

One rule: an event that is handed out is pending before its consumer sees it. Attempts are counted
here. Knows nothing of what becomes of it then (`settling.py`).
"""

from collections.abc import Iterable
from typing import Any, Final

from node.bus.dead_letters import NOT_ACKNOWLEDGED
from node.bus.errors import BusDamagedError
from node.bus.ids import AFTER_ALL
from node.bus.model import Delivery, StoredEvent
from node.bus.sqlite.books import Books, Consumer, Group
from node.bus.sqlite.failures import with_failure
from node.bus.sqlite.numbers import place_of, text_of

# Characters of data after which no more events are handed out, or shown, at once: a thousand may
# be asked for, and each may be large.
HANDFUL: Final = 2**20

_NEW: Final = """SELECT id, key, version, body FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id > ? ORDER BY id LIMIT ?"""
_HAND_OUT: Final = """INSERT OR REPLACE INTO pending
    SELECT ?, id, ?, ?, 1, ?, NULL, NULL FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id BETWEEN ? AND ?"""
_PENDING: Final = "SELECT count(*) FROM pending WHERE grp = ? AND id BETWEEN ? AND ?"
_OWN: Final = """SELECT id, attempt, history, ?3, at FROM pending
    WHERE grp = ?1 AND consumer = ?2 AND due IS NULL AND session <> ?4 ORDER BY id LIMIT ?5"""
# What became due since is marked so, once; then the index has it in the order of its ids.
_RIPEN: Final = "UPDATE pending SET due = 0 WHERE grp = ? AND due > 0 AND due <= ?"
_DUE: Final = """SELECT id, attempt, history, NULL, at FROM pending INDEXED BY pending_due
    WHERE grp = ? AND due = 0 ORDER BY id LIMIT ?"""
_LEFT: Final = """SELECT id, attempt, history, consumer, at FROM pending
    WHERE grp = ? AND due IS NULL AND at <= ? ORDER BY id LIMIT ?"""
# What was marked in a future that never came, before the clock was set right: held from now on,
# or due.
_HEAL: Final = """UPDATE pending SET at = ?1, due = CASE WHEN due IS NULL THEN NULL ELSE 0 END
    WHERE grp = ?2 AND at > ?1 + ?3"""
# Seconds by which a clock may be set back before that is done, once for each run of a group.
CLOCK_SET_BACK: Final = 86_400.0
_TAKE: Final = """UPDATE pending SET consumer = ?, session = ?, attempt = ?, at = ?, due = NULL,
    history = ? WHERE grp = ? AND id = ?"""


def join(books: Books, stream: str, group: str, consumer: str, after: str) -> None:
    """Make a group, if it is not there, and a consumer."""
    found = books.group(stream, group)
    if found is None:
        found = begin(books, stream, group, after)
    books.staged[stream, group] = found.cursor
    books.sign(found, consumer)


def begin(books: Books, stream: str, group: str, after: str) -> Group:
    """Have a group read on after `after`; it is made if it is not there."""
    owner = books.make_stream(stream)
    cursor = owner.last if after == AFTER_ALL else place_of(after)
    beyond = count_after(books, owner.number, cursor) if cursor else owner.length
    found = books.group(stream, group)
    if found is None:
        return books.make_group(stream, group, cursor, owner.published - beyond)
    found.cursor, found.passed = cursor, owner.published - beyond
    books.staged[stream, group] = cursor
    books.changed_groups.add(found)
    return found


def rejoin(books: Books, stream: str, group: str) -> Group:
    """The group; one that has vanished is made anew, where it was when this run last saw it."""
    found = books.group(stream, group)
    if found is not None:
        return found
    return begin(books, stream, group, text_of(books.places.get((stream, group), 0)))


def count_after(books: Books, stream: int, number: int) -> int:
    """How many events of a stream come after an id: counted, so seldom to be asked."""
    query = "SELECT count(*) FROM events INDEXED BY events_of_stream WHERE stream = ? AND id > ?"
    count: int = books.cursor.execute(query, (stream, number)).fetchone()[0]
    return count


def read(books: Books, group: Group, consumer: str, count: int) -> list[Delivery]:
    """Hand out what the group was never handed."""
    who = books.sign(group, consumer)
    stream = group.stream
    cursor = books.cursor
    rows = handful(cursor.execute(_NEW, (stream.number, group.cursor, count)))
    if not rows:
        return []
    first, last = rows[0][0], rows[-1][0]
    # Some are pending already after a rewind or a redelivery: what is read is handed out anew.
    again = 0
    if group.pending:
        again = cursor.execute(_PENDING, (group.number, first, last)).fetchone()[0]
    cursor.execute(
        _HAND_OUT, (group.number, who.number, books.session, books.now, stream.number, first, last)
    )
    group.cursor = last
    books.staged[stream.name, group.name] = last
    group.passed += len(rows)
    group.pending += len(rows) - again
    group.held_since = min(group.held_since, books.now)
    books.changed_groups.add(group)
    name = stream.name
    return [
        Delivery(StoredEvent(text_of(id), name, body, key, version), 1)
        for id, key, version, body in rows
    ]


def handful(rows: Iterable[tuple[int, str | None, int, str]]) -> list[tuple[Any, ...]]:
    """The first of the rows (id, key, version, data), at least one, until there is enough."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += len(row[3])
        if size >= HANDFUL:
            break
    return taken


def own(books: Books, group: Group, consumer: str, count: int) -> list[Delivery]:
    """Hand out again what this consumer was handed in an earlier session."""
    who = books.sign(group, consumer)
    rows = books.cursor.execute(
        _OWN, (group.number, who.number, who.number, books.session, count)
    ).fetchall()
    return _hand_again(books, group, who, rows)


def claim(books: Books, group: Group, consumer: str, count: int, idle: float) -> list[Delivery]:
    """Hand out again what is due, and what was held for `idle` seconds without a sign."""
    who = books.sign(group, consumer)
    if not group.pending:
        return []
    cursor = books.cursor
    if not group.held_since:  # it was just read from the file
        cursor.execute(_HEAL, (books.now, group.number, CLOCK_SET_BACK))
    cursor.execute(_RIPEN, (group.number, books.now))
    rows = cursor.execute(_DUE, (group.number, count)).fetchall()
    since = books.now - idle
    if group.held_since <= since:
        left = cursor.execute(_LEFT, (group.number, since, count)).fetchall()
        if left:
            rows = sorted(rows + left)[:count]
        else:
            query = "SELECT min(at) FROM pending WHERE grp = ? AND due IS NULL"
            oldest = cursor.execute(query, (group.number,)).fetchone()[0]
            group.held_since = books.now if oldest is None else oldest
    return _hand_again(books, group, who, rows)


def _hand_again(
    books: Books, group: Group, who: Consumer, rows: list[tuple[Any, ...]]
) -> list[Delivery]:
    """Hand out pending events: (id, attempt, history, by whom it is held, since when)."""
    taken, deliveries, size = [], [], 0
    names: dict[int, str] = {}
    for id, attempt, history, holder, _ in rows:
        if size >= HANDFUL:
            break
        if holder is not None:
            if holder not in names:
                names[holder] = name_of(books, holder)
            history = with_failure(history, attempt, names[holder], books.now, NOT_ACKNOWLEDGED)
        attempt += 1
        if attempt > 1:
            group.redelivered += 1
        taken.append((who.number, books.session, attempt, books.now, history, group.number, id))
        event = event_of(books, group.stream.name, id)
        size += len(event.body)
        deliveries.append(Delivery(event, attempt))
    if taken:
        books.cursor.executemany(_TAKE, taken)
        group.held_since = min(group.held_since, books.now)
        books.changed_groups.add(group)
    return deliveries


def name_of(books: Books, consumer: int) -> str:
    """The name of a consumer by its number; empty if it is known no more."""
    query = "SELECT name FROM consumers WHERE number = ?"
    row = books.cursor.execute(query, (consumer,)).fetchone()
    return "" if row is None else str(row[0])


def event_of(books: Books, stream: str, id: int) -> StoredEvent:
    """An event that is there."""
    query = "SELECT key, version, body FROM events WHERE id = ?"
    row = books.cursor.execute(query, (id,)).fetchone()
    if row is None:
        raise BusDamagedError(f"the event {text_of(id)} of {stream} is pending, and not there")
    key, version, body = row
    return StoredEvent(text_of(id), stream, body, key, version)
