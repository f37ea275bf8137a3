"""Events: publishing, delivering (new, due or idle events), and settling.

Settling acknowledges, refuses or releases an event, or makes it a dead letter. An event whose
idempotency key its stream remembers is not stored again. An event is pending before its consumer
receives it. All operations except `ack` apply only to the consumer that the event is pending with.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from parley._node.bus.config import BusConfig
from parley._node.bus.data import decode_body, encode_value
from parley._node.bus.dead_letters import NOT_ACKNOWLEDGED, dead_data, error_line, shorten
from parley._node.bus.errors import BusDamagedError, InvalidEventError
from parley._node.bus.identifiers import AFTER_ALL, dead_name
from parley._node.bus.model import Delivery, Failure, NewEvent, Published, StoredEvent
from parley._node.bus.sqlite.cache import ConsumerRow, GroupRow, MetadataCache, StreamRow
from parley._node.bus.sqlite.schema import (
    COUNT,
    NO_ID,
    first_at,
    number_of,
    numbers_of,
    place_of,
    text_of,
)

# About the overhead of an event in bytes. It makes the computed size close to the file's growth.
OVERHEAD: Final = 40
# The most keys forgotten when one is remembered: more than one, so that their number can decrease.
FORGOTTEN: Final = 4


def size_of(body: str) -> int:
    """Return the number of bytes that an event counts for in its stream."""
    return OVERHEAD + (len(body) if body.isascii() else len(body.encode()))


def publish(cache: MetadataCache, config: BusConfig, events: Sequence[NewEvent]) -> list[Published]:
    results = []
    for name, _, body, key, version in events:
        stream = cache.make_stream(name)
        if key is not None:
            known = _remembered(cache, config, stream, key)
            if known:
                cache.repeated = True
                results.append(Published(text_of(known), duplicate=True))
                continue
        number = add(cache, stream, body, key, version)
        if key is not None:
            _remember(cache, config, stream, key, number)
        results.append(Published(text_of(number)))
    return results


def add(cache: MetadataCache, stream: StreamRow, body: str, key: str | None, version: int) -> int:
    size = size_of(body)  # Raises UnicodeError before anything is changed.
    number = cache.next_id()
    cache.rows.append((number, stream.number, version, key, body))
    stream.published += 1
    stream.last = number
    stream.length += 1
    stream.size += size
    stream.added += 1
    cache.added += size
    cache.changed.add(stream)
    cache.grown.add(stream)
    return number


def _remembered(cache: MetadataCache, config: BusConfig, stream: StreamRow, key: str) -> int:
    """Return the ID published with a key within the window, or 0 if there is none."""
    if not stream.keys:
        return 0
    row = cache.cursor.execute(
        "SELECT id FROM keys WHERE stream = ? AND key = ?", (stream.number, key)
    ).fetchone()
    if row is None:
        return 0
    number: int = row[0]
    if number > _forgotten(cache, config):
        return number
    cache.cursor.execute("DELETE FROM keys WHERE stream = ? AND id = ?", (stream.number, number))
    stream.keys -= 1
    return 0


def _remember(
    cache: MetadataCache, config: BusConfig, stream: StreamRow, key: str, number: int
) -> None:
    """Remember a key, and forget keys that are too old or too many."""
    cache.cursor.execute("INSERT INTO keys VALUES (?, ?, ?)", (stream.number, number, key))
    stream.keys += 1
    if stream.keys > config.idempotency_keys:
        surplus, before = min(FORGOTTEN, stream.keys - config.idempotency_keys), number - 1
    else:
        surplus, before = FORGOTTEN, _forgotten(cache, config)
    stream.keys -= cache.cursor.execute(
        "DELETE FROM keys WHERE stream = :stream AND id IN "
        "(SELECT id FROM keys WHERE stream = :stream AND id <= :before ORDER BY id LIMIT :surplus)",
        {"stream": stream.number, "before": before, "surplus": surplus},
    ).rowcount


def _forgotten(cache: MetadataCache, config: BusConfig) -> int:
    """Return the last ID whose key is outside the window."""
    return first_at(cache.now - config.idempotency_window) | COUNT


# The size of data, in characters, after which no more events are returned, because a caller may
# request a thousand large ones.
HANDFUL: Final = 2**20

_NEW: Final = """SELECT id, key, version, body FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id > ? ORDER BY id LIMIT ?"""
_HAND_OUT: Final = """INSERT OR REPLACE INTO pending
    SELECT ?, id, ?, ?, 1, ?, NULL, NULL FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id BETWEEN ? AND ?"""
_PENDING: Final = "SELECT count(*) FROM pending WHERE grp = ? AND id BETWEEN ? AND ?"
_OWN: Final = """SELECT id, attempt, history, consumer, at FROM pending
    WHERE grp = ? AND consumer = ? AND due IS NULL AND session <> ? ORDER BY id LIMIT ?"""
# Events that became due are marked once; then the index has them in the order of their IDs.
_RIPEN: Final = "UPDATE pending SET due = 0 WHERE grp = ? AND due > 0 AND due <= ?"
_DUE: Final = """SELECT id, attempt, history, NULL, at FROM pending INDEXED BY pending_due
    WHERE grp = ? AND due = 0 ORDER BY id LIMIT ?"""
_IS_DUE: Final = "SELECT 1 FROM pending INDEXED BY pending_due WHERE grp = ? AND due = 0 LIMIT 1"
_LEFT: Final = """SELECT id, attempt, history, consumer, at FROM pending
    WHERE grp = ? AND due IS NULL AND at <= ? ORDER BY id LIMIT ?"""
# Applies to events marked with a time in the future, before the clock was set back: their time
# becomes the present, and they are due if they were waiting.
_HEAL: Final = """UPDATE pending SET at = :now, due = CASE WHEN due IS NULL THEN NULL ELSE 0 END
    WHERE grp = :grp AND at > :now + :set_back"""
# How far the clock must be set back before `_HEAL` runs, once per run of a group, in seconds.
CLOCK_SET_BACK: Final = 86_400.0
_TAKE: Final = """UPDATE pending SET consumer = ?, session = ?, attempt = ?, at = ?, due = NULL,
    history = ? WHERE grp = ? AND id = ?"""

# One statement handles any number of IDs, because each statement releases the interpreter's lock
# and must get it back from a busy loop.
_ACK: Final = """DELETE FROM pending
    WHERE grp = ? AND id IN (SELECT value FROM json_each(?))"""
_TOUCH: Final = """UPDATE pending SET at = ? WHERE grp = ? AND consumer = ? AND due IS NULL
    AND id IN (SELECT value FROM json_each(?))"""
_RELEASE: Final = """UPDATE pending SET due = 0, attempt = attempt - 1
    WHERE grp = ? AND consumer = ? AND due IS NULL AND id IN (SELECT value FROM json_each(?))"""
_HELD: Final = """SELECT attempt, history FROM pending
    WHERE grp = ? AND id = ? AND consumer = ? AND due IS NULL"""
_FAILED: Final = "UPDATE pending SET due = ?, at = ?, history = ? WHERE grp = ? AND id = ?"


# Delivering.


def join(cache: MetadataCache, stream: str, group: str, consumer: str, after: str) -> None:
    """Create a group, if it does not exist, and a consumer."""
    found = cache.group(stream, group)
    if found is None:
        found = begin(cache, stream, group, after)
    cache.staged[stream, group] = found.cursor
    cache.touch_consumer(found, consumer)


def begin(cache: MetadataCache, stream: str, group: str, after: str) -> GroupRow:
    """Set a group's position to `after`; create the group if it does not exist."""
    owner = cache.make_stream(stream)
    cursor = owner.last if after == AFTER_ALL else place_of(after)
    beyond = count_after(cache, owner.number, cursor) if cursor else owner.length
    found = cache.group(stream, group)
    if found is None:
        return cache.make_group(stream, group, cursor, owner.published - beyond)
    found.cursor, found.passed = cursor, owner.published - beyond
    cache.staged[stream, group] = cursor
    cache.changed_groups.add(found)
    return found


def rejoin(cache: MetadataCache, stream: str, group: str) -> GroupRow:
    """Return the group; if it vanished, recreate it at the position where this run last saw it."""
    found = cache.group(stream, group)
    if found is not None:
        return found
    return begin(cache, stream, group, text_of(cache.places.get((stream, group), 0)))


def count_after(cache: MetadataCache, stream: int, number: int) -> int:
    """Count the events of a stream after an ID. This is slow."""
    query = "SELECT count(*) FROM events INDEXED BY events_of_stream WHERE stream = ? AND id > ?"
    count: int = cache.cursor.execute(query, (stream, number)).fetchone()[0]
    return count


def read(cache: MetadataCache, group: GroupRow, consumer: str, count: int) -> list[Delivery]:
    """Deliver events that the group has not received yet."""
    holder = cache.touch_consumer(group, consumer)
    stream = group.stream
    cursor = cache.cursor
    rows = first_rows(cursor.execute(_NEW, (stream.number, group.cursor, count)))
    if not rows:
        return []
    first, last = rows[0][0], rows[-1][0]
    # After a rewind or redelivery, some events are already pending and are delivered again.
    again = 0
    if group.pending:
        again = cursor.execute(_PENDING, (group.number, first, last)).fetchone()[0]
    cursor.execute(
        _HAND_OUT,
        (group.number, holder.number, cache.session, cache.now, stream.number, first, last),
    )
    group.cursor = last
    cache.staged[stream.name, group.name] = last
    group.passed += len(rows)
    group.pending += len(rows) - again
    cache.handed += len(rows)
    group.held_since = min(group.held_since, cache.now)
    cache.changed_groups.add(group)
    name = stream.name
    return [
        Delivery(StoredEvent(text_of(id), name, body, key, version), 1)
        for id, key, version, body in rows
    ]


def has_due(cache: MetadataCache, group: GroupRow) -> bool:
    """Return whether released events of the group are due now."""
    return bool(group.pending) and bool(cache.cursor.execute(_IS_DUE, (group.number,)).fetchone())


def first_rows(rows: Iterable[tuple[int, str | None, int, str]]) -> list[tuple[Any, ...]]:
    """Return the first rows (id, key, version, data), at least one, up to `HANDFUL` characters."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += len(row[3])
        if size >= HANDFUL:
            break
    return taken


def recover_pending(
    cache: MetadataCache, group: GroupRow, consumer: str, count: int
) -> list[Delivery]:
    """Redeliver events that this consumer received in an earlier session."""
    holder = cache.touch_consumer(group, consumer)
    rows = cache.cursor.execute(
        _OWN, (group.number, holder.number, cache.session, count)
    ).fetchall()
    return _hand_again(cache, group, holder, rows)


def claim(
    cache: MetadataCache, group: GroupRow, consumer: str, count: int, idle: float
) -> list[Delivery]:
    """Redeliver events that are due, or had no heartbeat for `idle` seconds."""
    holder = cache.touch_consumer(group, consumer)
    if not group.pending:
        return []
    cursor = cache.cursor
    if not group.held_since:  # Its time was just read from the file.
        cursor.execute(_HEAL, {"now": cache.now, "grp": group.number, "set_back": CLOCK_SET_BACK})
    cursor.execute(_RIPEN, (group.number, cache.now))
    rows = cursor.execute(_DUE, (group.number, count)).fetchall()
    since = cache.now - idle
    if group.held_since <= since:
        left = cursor.execute(_LEFT, (group.number, since, count)).fetchall()
        if left:
            rows = sorted(rows + left)[:count]
        else:
            query = "SELECT min(at) FROM pending WHERE grp = ? AND due IS NULL"
            oldest = cursor.execute(query, (group.number,)).fetchone()[0]
            group.held_since = cache.now if oldest is None else oldest
    return _hand_again(cache, group, holder, rows)


def _hand_again(
    cache: MetadataCache, group: GroupRow, taker: ConsumerRow, rows: list[tuple[Any, ...]]
) -> list[Delivery]:
    """Deliver pending events to `taker`.

    Each is (ID, attempt, history, number of the current consumer, time of delivery).
    """
    taken, deliveries, size = [], [], 0
    names: dict[int, str] = {}
    for id, attempt, history, holder, _ in rows:
        if size >= HANDFUL:
            break
        if holder is not None:
            if holder not in names:
                names[holder] = name_of(cache, holder)
            history = with_failure(history, attempt, names[holder], cache.now, NOT_ACKNOWLEDGED)
        attempt += 1
        if attempt > 1:
            group.redelivered += 1
        taken.append((taker.number, cache.session, attempt, cache.now, history, group.number, id))
        event = event_of(cache, group.stream.name, id)
        size += len(event.body)
        deliveries.append(Delivery(event, attempt))
    if taken:
        cache.cursor.executemany(_TAKE, taken)
        group.held_since = min(group.held_since, cache.now)
        cache.changed_groups.add(group)
    return deliveries


def name_of(cache: MetadataCache, consumer: int) -> str:
    """Return the name of a consumer by its number; empty if it was removed."""
    query = "SELECT name FROM consumers WHERE number = ?"
    row = cache.cursor.execute(query, (consumer,)).fetchone()
    return "" if row is None else str(row[0])


def event_of(cache: MetadataCache, stream: str, id: int) -> StoredEvent:
    """Return a stored event."""
    query = "SELECT key, version, body FROM events WHERE id = ?"
    row = cache.cursor.execute(query, (id,)).fetchone()
    if row is None:
        raise BusDamagedError(
            f"cannot read the pending event {text_of(id)!r} of {stream}: it is missing"
        )
    key, version, body = row
    return StoredEvent(text_of(id), stream, body, key, version)


# Settling.


def ack(cache: MetadataCache, group: GroupRow, ids: Sequence[str]) -> int:
    """Return how many of the events were pending."""
    done = cache.cursor.execute(_ACK, (group.number, json.dumps(numbers_of(ids)))).rowcount
    if done:
        group.pending -= done
        cache.changed_groups.add(group)
    return done


def touch(cache: MetadataCache, group: GroupRow, consumer: str, ids: Sequence[str]) -> None:
    holder = cache.touch_consumer(group, consumer)
    cache.cursor.execute(
        _TOUCH, (cache.now, group.number, holder.number, json.dumps(numbers_of(ids)))
    )
    group.held_since = min(group.held_since, cache.now)


def release(cache: MetadataCache, group: GroupRow, consumer: str, ids: Sequence[str]) -> None:
    holder = cache.consumer(group, consumer)
    if holder is not None:
        cache.cursor.execute(_RELEASE, (group.number, holder.number, json.dumps(numbers_of(ids))))
        cache.grown.add(group.stream)


def nack(
    cache: MetadataCache, group: GroupRow, consumer: str, id: str, delay: float, error: str
) -> bool:
    number = number_of(id)
    held = _held(cache, group, consumer, number)
    if held is None:
        return False
    attempt, history = held
    history = with_failure(history, attempt, consumer, cache.now, error)
    due = cache.now + delay if delay > 0 else 0
    cache.cursor.execute(_FAILED, (due, cache.now, history, group.number, number))
    if not due:
        cache.grown.add(group.stream)
    return True


def bury(cache: MetadataCache, group: GroupRow, consumer: str, id: str, error: str) -> str | None:
    number = number_of(id)
    held = _held(cache, group, consumer, number)
    if held is None:
        return None
    attempt, history = held
    history = with_failure(history, attempt, consumer, cache.now, error)
    event = event_of(cache, group.stream.name, number)
    body = _letter(event, group.name, failures_of(history))
    letter = add(cache, cache.make_stream(dead_name(group.stream.name)), body, None, 1)
    cache.cursor.execute("DELETE FROM pending WHERE grp = ? AND id = ?", (group.number, number))
    group.pending -= 1
    group.dead_lettered += 1
    cache.changed_groups.add(group)
    return text_of(letter)


def _letter(event: StoredEvent, group: str, history: list[Failure]) -> str:
    """Encode a dead letter.

    Data that cannot be read, or not nested one level deeper, stays text. Otherwise the event would
    be redelivered forever.
    """
    try:
        body = encode_value(dead_data(event, group, history, decode_body(event.body)))
        body.encode()
    except (InvalidEventError, UnicodeEncodeError):
        return encode_value(dead_data(event, group, history, None))
    return body


def _held(
    cache: MetadataCache, group: GroupRow, consumer: str, number: int
) -> tuple[int, str | None] | None:
    """Return the attempt and history of an event that is pending with this consumer."""
    holder = cache.consumer(group, consumer)
    if holder is None or number == NO_ID:
        return None
    row: tuple[int, str | None] | None = cache.cursor.execute(
        _HELD, (group.number, number, holder.number)
    ).fetchone()
    return row


# Histories.


def with_failure(text: str | None, attempt: int, consumer: str, at: float, error: str) -> str:
    """Add a failed attempt to a history (JSON)."""
    entries = [] if text is None else json.loads(text)
    entries.append([attempt, consumer, at, error_line(error)])
    shorten(entries)
    return json.dumps(entries, separators=(",", ":"))


def failures_of(text: str | None) -> list[Failure]:
    """Parse a history."""
    return [] if text is None else [Failure(*entry) for entry in json.loads(text)]
