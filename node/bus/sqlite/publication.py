"""New events of a stream: their ids and idempotency keys. An event with a key that its stream
remembers is not stored again.
"""

from collections.abc import Sequence
from typing import Final

from parley._node.bus.config import BusConfig
from parley._node.bus.model import NewEvent, Published
from parley._node.bus.sqlite.books import Books, StreamRow
from parley._node.bus.sqlite.integer_ids import COUNT, first_at, text_of

# Bytes of an event beside its data, about: with it, sizes are near what the file grows by.
OVERHEAD: Final = 40
# Keys that are forgotten at most as one is remembered: more than one, so that their number shrinks
# where it has to.
FORGOTTEN: Final = 4


def size_of(body: str) -> int:
    """The bytes that an event counts for in its stream."""
    return OVERHEAD + (len(body) if body.isascii() else len(body.encode()))


def publish(books: Books, config: BusConfig, events: Sequence[NewEvent]) -> list[Published]:
    """Store events in their order; their ids."""
    results = []
    for name, _, body, key, version in events:
        stream = books.make_stream(name)
        if key is not None:
            known = _remembered(books, config, stream, key)
            if known:
                books.repeated = True
                results.append(Published(text_of(known), duplicate=True))
                continue
        number = add(books, stream, body, key, version)
        if key is not None:
            _remember(books, config, stream, key, number)
        results.append(Published(text_of(number)))
    return results


def add(books: Books, stream: StreamRow, body: str, key: str | None, version: int) -> int:
    """Store one event; its id."""
    size = size_of(body)  # raises UnicodeError before anything is changed
    number = books.next_id()
    books.rows.append((number, stream.number, version, key, body))
    stream.published += 1
    stream.last = number
    stream.length += 1
    stream.size += size
    stream.added += 1
    books.added += size
    books.changed.add(stream)
    books.grown.add(stream)
    return number


def _remembered(books: Books, config: BusConfig, stream: StreamRow, key: str) -> int:
    """The id under which a key was published within the window, 0 if it was not."""
    if not stream.keys:
        return 0
    row = books.cursor.execute(
        "SELECT id FROM keys WHERE stream = ? AND key = ?", (stream.number, key)
    ).fetchone()
    if row is None:
        return 0
    number: int = row[0]
    if number > _forgotten(books, config):
        return number
    books.cursor.execute("DELETE FROM keys WHERE stream = ? AND id = ?", (stream.number, number))
    stream.keys -= 1
    return 0


def _remember(books: Books, config: BusConfig, stream: StreamRow, key: str, number: int) -> None:
    """Remember a key, and forget the oldest that are too old or too many."""
    books.cursor.execute("INSERT INTO keys VALUES (?, ?, ?)", (stream.number, number, key))
    stream.keys += 1
    if stream.keys > config.idempotency_keys:
        surplus, before = min(FORGOTTEN, stream.keys - config.idempotency_keys), number - 1
    else:
        surplus, before = FORGOTTEN, _forgotten(books, config)
    stream.keys -= books.cursor.execute(
        "DELETE FROM keys WHERE stream = :stream AND id IN "
        "(SELECT id FROM keys WHERE stream = :stream AND id <= :before ORDER BY id LIMIT :surplus)",
        {"stream": stream.number, "before": before, "surplus": surplus},
    ).rowcount


def _forgotten(books: Books, config: BusConfig) -> int:
    """The last id whose key is out of the window."""
    return first_at(books.now - config.idempotency_window) | COUNT
