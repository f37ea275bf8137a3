"""What becomes of an event that was handed out: done, failed, not begun, or set aside.

One rule: all but `ack` is for the consumer that holds it; what was given back is nobody's. Knows
nothing of how it was handed out.
"""

import json
from collections.abc import Sequence
from typing import Final

from node.bus.body import decode_body, encode_value
from node.bus.dead_letters import dead_data
from node.bus.errors import InvalidEventError
from node.bus.model import Failure, StoredEvent
from node.bus.names import dead_name
from node.bus.sqlite.books import Books, Group
from node.bus.sqlite.failures import failures_of, with_failure
from node.bus.sqlite.handing import event_of
from node.bus.sqlite.numbers import NO_ID, number_of, numbers_of, text_of
from node.bus.sqlite.publishing import add

# One statement for any number of ids: for each one that Python runs it lets go of the
# interpreter, and has to get it back from a busy loop.
_ACK: Final = """DELETE FROM pending
    WHERE grp = ? AND id IN (SELECT value FROM json_each(?))"""
_TOUCH: Final = """UPDATE pending SET at = ? WHERE grp = ? AND consumer = ? AND due IS NULL
    AND id IN (SELECT value FROM json_each(?))"""
_RELEASE: Final = """UPDATE pending SET due = 0, attempt = attempt - 1
    WHERE grp = ? AND consumer = ? AND due IS NULL AND id IN (SELECT value FROM json_each(?))"""
_HELD: Final = """SELECT attempt, history FROM pending
    WHERE grp = ? AND id = ? AND consumer = ? AND due IS NULL"""
_FAILED: Final = "UPDATE pending SET due = ?, at = ?, history = ? WHERE grp = ? AND id = ?"


def ack(books: Books, group: Group, ids: Sequence[str]) -> int:
    """They are done; how many of them were pending."""
    done = books.cursor.execute(_ACK, (group.number, json.dumps(numbers_of(ids)))).rowcount
    if done:
        group.pending -= done
        books.changed_groups.add(group)
    return done


def touch(books: Books, group: Group, consumer: str, ids: Sequence[str]) -> None:
    """They are being worked on."""
    who = books.sign(group, consumer)
    books.cursor.execute(_TOUCH, (books.now, group.number, who.number, json.dumps(numbers_of(ids))))
    group.held_since = min(group.held_since, books.now)


def release(books: Books, group: Group, consumer: str, ids: Sequence[str]) -> None:
    """They were never begun: due now, and not an attempt."""
    who = books.consumer(group, consumer)
    if who is not None:
        books.cursor.execute(_RELEASE, (group.number, who.number, json.dumps(numbers_of(ids))))


def nack(books: Books, group: Group, consumer: str, id: str, delay: float, error: str) -> bool:
    """It failed: due again in `delay` seconds."""
    number = number_of(id)
    held = _held(books, group, consumer, number)
    if held is None:
        return False
    attempt, history = held
    history = with_failure(history, attempt, consumer, books.now, error)
    due = books.now + delay if delay > 0 else 0
    books.cursor.execute(_FAILED, (due, books.now, history, group.number, number))
    return True


def bury(books: Books, group: Group, consumer: str, id: str, error: str) -> str | None:
    """Set it aside: on the dead-letter stream, and acknowledged."""
    number = number_of(id)
    held = _held(books, group, consumer, number)
    if held is None:
        return None
    attempt, history = held
    history = with_failure(history, attempt, consumer, books.now, error)
    event = event_of(books, group.stream.name, number)
    body = _letter(event, group.name, failures_of(history))
    letter = add(books, books.make_stream(dead_name(group.stream.name)), body, None, 1)
    books.cursor.execute("DELETE FROM pending WHERE grp = ? AND id = ?", (group.number, number))
    group.pending -= 1
    group.dead_lettered += 1
    books.changed_groups.add(group)
    return text_of(letter)


def _letter(event: StoredEvent, group: str, history: list[Failure]) -> str:
    """The data of a dead letter. What cannot be read, or not be written again one level deeper,
    stays text: an event that could not be set aside would come for ever."""
    try:
        body = encode_value(dead_data(event, group, history, decode_body(event.body)))
        body.encode()
    except (InvalidEventError, UnicodeEncodeError):
        return encode_value(dead_data(event, group, history, None))
    return body


def _held(books: Books, group: Group, consumer: str, number: int) -> tuple[int, str | None] | None:
    """Attempt and history of an event that this consumer holds."""
    who = books.consumer(group, consumer)
    if who is None or number == NO_ID:
        return None
    row: tuple[int, str | None] | None = books.cursor.execute(
        _HELD, (group.number, number, who.number)
    ).fetchone()
    return row
