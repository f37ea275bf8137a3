"""Retention, trimming and repositioning of groups.

An event that is removed from a stream is no longer pending in any group. Each step removes a
limited number of events.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final

from parley._node.bus.config import BusConfig
from parley._node.bus.dead_letters import NOT_ACKNOWLEDGED
from parley._node.bus.model import Trim
from parley._node.bus.sqlite.cache import ConsumerRow, GroupRow, MetadataCache, StreamRow
from parley._node.bus.sqlite.events import OVERHEAD, begin, with_failure
from parley._node.bus.sqlite.schema import LARGEST, first_at, numbers_of, place_of, text_of

# The events that one step of a trim removes, in about 10 ms during which nothing else runs. If
# there is no space for the transaction, a `FRACTION` of them is tried, down to one event.
PIECE: Final = 2_000
FRACTION: Final = 4
# Retention removes twice as many events as were added, and at least `RETAINED_PIECE`. It runs when
# a stream exceeds its limit by a sixteenth, but at most by `RETAINED_PIECE` events.
RETAINED_PIECE: Final = 128
SLACK: Final = 16

_OLDEST: Final = """SELECT id, length(CAST(body AS BLOB)) FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id <= ? ORDER BY id LIMIT ?"""
_THESE: Final = """SELECT id, length(CAST(body AS BLOB)) FROM events
    WHERE stream = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY id"""
_REMOVE: Final = "DELETE FROM events WHERE id IN (SELECT value FROM json_each(?))"
_NOT_PENDING: Final = """DELETE FROM pending
    WHERE grp = ? AND id IN (SELECT value FROM json_each(?))"""
_FORGET: Final = """DELETE FROM pending WHERE grp = :grp
    AND id IN (SELECT id FROM pending WHERE grp = :grp ORDER BY id LIMIT :count)"""
_REDELIVER: Final = """INSERT INTO pending VALUES (?, ?, 0, 0, 0, ?, 0, NULL)
    ON CONFLICT DO UPDATE SET consumer = 0, attempt = 0, due = 0, history = NULL"""


def retain(cache: MetadataCache, config: BusConfig, stream: StreamRow) -> None:
    """Remove some of the events beyond the configured limits, after events were added."""
    length, size = config.max_length, config.max_bytes
    if length is not None and stream.length <= _slack(length, RETAINED_PIECE):
        length = None
    piece = RETAINED_PIECE * stream.size // max(stream.length, 1)
    if size is not None and stream.size <= _slack(size, piece):
        size = None
    before = None
    if config.max_age is not None:
        before = text_of(first_at(cache.now - config.max_age))
    if length is None and size is None and before is None:
        return
    last = _unneeded(cache, stream) if config.keep_unread else LARGEST
    limit = max(RETAINED_PIECE, 2 * stream.added)
    _take_oldest(cache, stream, Trim(length, before, size), limit, last)


def smaller(piece: int) -> int:
    """Return the number of events to try after there was no space for `piece`."""
    return max(1, piece // FRACTION)


def trim(cache: MetadataCache, stream: StreamRow, bounds: Trim, piece: int) -> tuple[int, bool]:
    """Remove at most `piece` events beyond `bounds`.

    Returns how many were removed, and whether there may be more.
    """
    taken = _take_oldest(cache, stream, bounds, piece, LARGEST)
    return taken, taken == piece


def free_space(cache: MetadataCache, config: BusConfig, names: Iterable[str], piece: int) -> None:
    """Remove at most `piece` events of each stream beyond the configured limits, without slack."""
    before = None
    if config.max_age is not None:
        before = text_of(first_at(cache.now - config.max_age))
    bounds = Trim(config.max_length, before, config.max_bytes)
    for stream in filter(None, map(cache.stream, names)):
        last = _unneeded(cache, stream) if config.keep_unread else LARGEST
        _take_oldest(cache, stream, bounds, piece, last)


def drop(cache: MetadataCache, stream: StreamRow, ids: Sequence[str]) -> int:
    query = (stream.number, json.dumps(numbers_of(ids)))
    rows = cache.cursor.execute(_THESE, query).fetchall()
    _remove(cache, stream, rows)
    return len(rows)


def rewind(cache: MetadataCache, stream: str, group: str, after: str) -> None:
    """Set a group's position; create the group if it does not exist."""
    found = begin(cache, stream, group, after)
    cache.grown.add(found.stream)  # Wakes the tasks that wait for events.


def redeliver(cache: MetadataCache, group: GroupRow, ids: Sequence[str]) -> list[str]:
    """Make events pending and due, with their attempts reset; return those that exist."""
    query = (group.stream.number, json.dumps(numbers_of(ids)))
    there = [row[0] for row in cache.cursor.execute(_THESE, query)]
    if not there:
        return []
    before = cache.cursor.execute(
        "SELECT count(*) FROM pending WHERE grp = ? AND id IN (SELECT value FROM json_each(?))",
        (group.number, json.dumps(there)),
    ).fetchone()[0]
    cache.cursor.executemany(_REDELIVER, [(group.number, id, cache.now) for id in there])
    group.pending += len(there) - before
    cache.changed_groups.add(group)
    cache.grown.add(group.stream)
    return [text_of(id) for id in there]


def remove_consumers(cache: MetadataCache, group: GroupRow, idle: float) -> list[str]:
    """Remove consumers that were idle for `idle` seconds; return their names."""
    rows = cache.cursor.execute(
        "SELECT number, name, seen FROM consumers WHERE grp = ? ORDER BY name", (group.number,)
    ).fetchall()
    named = cache.cursor.execute(
        "SELECT DISTINCT consumer FROM pending WHERE grp = ?", (group.number,)
    )
    holders = {row[0] for row in named}
    gone = []
    for number, name, written in rows:
        known = group.consumers.get(name)
        seen = written if known is None else known.seen
        if cache.now - seen >= idle:
            if number in holders:  # Each consumer requires a scan of all pending events.
                _release_all(cache, group, ConsumerRow(number, name, seen))
            cache.cursor.execute("DELETE FROM consumers WHERE number = ?", (number,))
            group.consumers.pop(name, None)
            gone.append(name)
    return gone


def remove_idle(cache: MetadataCache, ttl: float) -> None:
    """Remove idle consumers of all groups."""
    rows = cache.cursor.execute(
        "SELECT DISTINCT streams.name, groups.name FROM consumers "
        "JOIN groups ON groups.number = grp JOIN streams ON streams.number = groups.stream "
        "WHERE seen <= ?",
        (cache.now - ttl,),
    ).fetchall()
    for stream, name in rows:
        group = cache.group(stream, name)
        if group is not None:
            remove_consumers(cache, group, ttl)


def remove_group(cache: MetadataCache, group: GroupRow, piece: int) -> bool | None:
    """Remove a group and its pending events.

    If there are more than `piece`, remove that many and return None; call it again to continue.
    """
    forgotten = cache.cursor.execute(_FORGET, {"grp": group.number, "count": piece}).rowcount
    if forgotten == piece:
        group.pending -= forgotten
        cache.changed_groups.add(group)
        return None
    for query in (
        "DELETE FROM consumers WHERE grp = ?",
        "DELETE FROM groups WHERE number = ?",
    ):
        cache.cursor.execute(query, (group.number,))
    cache.groups(group.stream).pop(group.name)
    cache.changed_groups.discard(group)
    return True


def _slack(bound: int, most: int) -> int:
    return bound + min(bound // SLACK, most)


def _unneeded(cache: MetadataCache, stream: StreamRow) -> int:
    """Return the last ID up to which every group has read and acknowledged all events."""
    last = LARGEST
    for group in cache.groups(stream).values():
        last = min(last, group.cursor)
        if group.pending:
            query = "SELECT min(id) FROM pending WHERE grp = ?"
            oldest = cache.cursor.execute(query, (group.number,)).fetchone()[0]
            last = min(last, oldest - 1)
    return last


def _take_oldest(
    cache: MetadataCache, stream: StreamRow, bounds: Trim, limit: int, last: int
) -> int:
    """Remove at most `limit` of the oldest events beyond `bounds`, none after `last`."""
    before = place_of(bounds.before) if bounds.before is not None else 0
    surplus = 0 if bounds.max_length is None else stream.length - bounds.max_length
    excess = 0 if bounds.max_bytes is None else stream.size - bounds.max_bytes
    if excess <= 0:
        if surplus <= 0:
            last = min(last, before - 1)
        limit = min(limit, surplus) if surplus > 0 and not before else limit
    rows: list[tuple[int, int]] = []
    for id, size in cache.cursor.execute(_OLDEST, (stream.number, last, limit)).fetchall():
        if surplus <= 0 and excess <= 0 and id >= before:
            break
        rows.append((id, size))
        surplus -= 1
        excess -= size + OVERHEAD
    _remove(cache, stream, rows)
    return len(rows)


def _remove(cache: MetadataCache, stream: StreamRow, rows: list[tuple[int, int]]) -> None:
    """Remove events, given as (ID, bytes of data) in the order of their IDs."""
    if not rows:
        return
    ids = [row[0] for row in rows]
    listed = json.dumps(ids)
    cursor = cache.cursor
    cursor.execute(_REMOVE, (listed,))
    stream.length -= len(ids)
    stream.size -= sum(row[1] for row in rows) + OVERHEAD * len(ids)
    cache.changed.add(stream)
    for group in cache.groups(stream).values():
        group.passed += len(ids) - bisect_right(ids, group.cursor)
        if group.pending:
            group.pending -= cursor.execute(_NOT_PENDING, (group.number, listed)).rowcount
        cache.changed_groups.add(group)
    if ids[-1] == cache.last_id:
        # IDs must still ascend when the last event is deleted.
        cursor.execute("UPDATE meta SET value = ? WHERE name = 'floor'", (ids[-1],))


def _release_all(cache: MetadataCache, group: GroupRow, owner: ConsumerRow) -> None:
    """Make all pending events of a consumer due now."""
    rows: list[tuple[Any, ...]] = cache.cursor.execute(
        "SELECT id, attempt, history FROM pending WHERE grp = ? AND consumer = ? AND due IS NULL",
        (group.number, owner.number),
    ).fetchall()
    cache.cursor.executemany(
        "UPDATE pending SET due = 0, history = ? WHERE grp = ? AND id = ?",
        [
            (
                with_failure(history, attempt, owner.name, cache.now, NOT_ACKNOWLEDGED),
                group.number,
                id,
            )
            for id, attempt, history in rows
        ],
    )
    # The number may be reused.
    cache.cursor.execute(
        "UPDATE pending SET consumer = 0 WHERE grp = ? AND consumer = ?",
        (group.number, owner.number),
    )
    cache.grown.add(group.stream)
