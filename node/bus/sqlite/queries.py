"""Read-only queries: streams, groups, consumers, pending and stored events."""

from typing import Final

from parley._node.bus.model import ConsumerInfo, GroupInfo, PendingInfo, StoredEvent, StreamInfo
from parley._node.bus.sqlite.cache import GroupRow, MetadataCache, StreamRow
from parley._node.bus.sqlite.events import first_rows
from parley._node.bus.sqlite.schema import LARGEST, place_of, text_of

_ENDS: Final = """SELECT
    (SELECT min(id) FROM events INDEXED BY events_of_stream WHERE stream = :stream),
    (SELECT max(id) FROM events INDEXED BY events_of_stream WHERE stream = :stream)"""
_HISTORY: Final = """SELECT id, key, version, body FROM events INDEXED BY events_of_stream
    WHERE stream = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"""
# A released event belongs to no consumer.
_PENDING: Final = """SELECT id, CASE WHEN due IS NULL THEN coalesce(name, '') ELSE '' END,
    attempt, at, due
    FROM pending LEFT JOIN consumers ON consumers.number = consumer
    WHERE pending.grp = ? AND id > ? ORDER BY id LIMIT ?"""
# Counted once for all consumers, because there may be many consumers and many pending events.
_CONSUMERS: Final = """SELECT name, seen, coalesce(held, 0) FROM consumers LEFT JOIN
    (SELECT consumer, count(*) AS held FROM pending WHERE grp = :grp AND due IS NULL
    GROUP BY consumer) ON consumer = number
    WHERE grp = :grp ORDER BY name"""


def streams(cache: MetadataCache) -> list[StreamInfo]:
    names = cache.cursor.execute("SELECT name FROM streams ORDER BY name").fetchall()
    found = (cache.stream(name) for (name,) in names)
    return [_stream(cache, stream) for stream in found if stream is not None]


def groups(cache: MetadataCache, stream: str) -> list[GroupInfo]:
    found = cache.stream(stream)
    if found is None:
        return []
    number = "SELECT count(*) FROM consumers WHERE grp = ?"
    return [
        GroupInfo(
            stream=stream,
            name=group.name,
            lag=group.lag,
            pending=group.pending,
            redelivered=group.redelivered,
            dead_lettered=group.dead_lettered,
            consumers=cache.cursor.execute(number, (group.number,)).fetchone()[0],
            last_id=text_of(group.cursor),
        )
        for _, group in sorted(cache.groups(found).items())
    ]


def consumers(cache: MetadataCache, group: GroupRow) -> list[ConsumerInfo]:
    found = []
    for name, written, pending in cache.cursor.execute(
        _CONSUMERS, {"grp": group.number}
    ).fetchall():
        known = group.consumers.get(name)
        seen = written if known is None else known.seen
        found.append(ConsumerInfo(name, pending, max(0.0, cache.now - seen)))
    return found


def pending(cache: MetadataCache, group: GroupRow, count: int, after: str) -> list[PendingInfo]:
    now = cache.now
    return [
        PendingInfo(
            text_of(id),
            consumer,
            attempt,
            max(0.0, now - at),
            None if due is None else max(0.0, due - now),
        )
        for id, consumer, attempt, at, due in cache.cursor.execute(
            _PENDING, (group.number, place_of(after), count)
        ).fetchall()
    ]


def place(cache: MetadataCache, stream: str) -> str:
    """Return the last ID that a stream assigned."""
    found = cache.stream(stream)
    return text_of(0 if found is None else found.last)


def history(
    cache: MetadataCache, stream: str, after: str, until: str | None, count: int
) -> list[StoredEvent]:
    found = cache.stream(stream)
    if found is None:
        return []
    last = LARGEST if until is None else place_of(until)
    found_rows = cache.cursor.execute(_HISTORY, (found.number, place_of(after), last, count))
    rows = first_rows(found_rows)
    return [StoredEvent(text_of(id), stream, body, key, version) for id, key, version, body in rows]


def _stream(cache: MetadataCache, stream: StreamRow) -> StreamInfo:
    first, last = cache.cursor.execute(_ENDS, {"stream": stream.number}).fetchone()
    return StreamInfo(
        stream.name,
        stream.length,
        stream.size,
        None if first is None else text_of(first),
        None if last is None else text_of(last),
    )
