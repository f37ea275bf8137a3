"""Notes that travel together: sizes, costs, and a payload that is made once."""

import pytest

from parley._node.messaging import notes as batch_module
from parley._node.messaging.notes import (
    Batch,
    encode_note,
    notes_payload,
    notify_payload,
    read_headers,
)
from parley._node.protocol.codes import NOTIFY

NOTES = [encode_note(note) for note in ("one", 2, None)]


def test_size_and_cost() -> None:
    batch = Batch(NOTES)
    assert batch.size == 4 + 1 + 1
    assert batch.cost == batch.size + 3 * 64


def test_headers_count() -> None:
    headers = read_headers({"trace": "x" * 100})
    batch = Batch(NOTES[:1], headers)
    assert batch.size == 4 + headers.size
    assert batch.cost == batch.size + 64
    assert batch.payload() == (NOTIFY, notify_payload(NOTES[0], {"trace": "x" * 100}))


@pytest.mark.pure
def test_a_payload_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def count(notes: list[bytes]) -> tuple[int, bytes]:
        made.append(notes)
        return notes_payload(notes)

    monkeypatch.setattr(batch_module, "notes_payload", count)
    batch = Batch(NOTES)
    assert made == []
    assert batch.payload()[1] is batch.payload()[1]
    assert made == [NOTES]


def test_split() -> None:
    first, rest = Batch(NOTES).split(2)
    assert (first.notes, rest.notes) == (NOTES[:2], NOTES[2:])
    assert first.cost + rest.cost == Batch(NOTES).cost


def test_a_header_more() -> None:
    plain = Batch(NOTES[:1])
    told = plain.with_header("n", 5)
    assert told.payload() == (NOTIFY, notify_payload(NOTES[0], {"n": 5}))
    assert told.with_header("m", 6).payload()[1] == notify_payload(NOTES[0], {"n": 5, "m": 6})
    assert plain.headers is None


def test_another_form_is_made_once() -> None:
    made = []

    def convert(note: bytes) -> bytes | None:
        made.append(note)
        return note[1:] or None

    batch = Batch(NOTES)
    first = batch.in_form("tail", convert)
    assert first == [b"one", None, None]
    assert batch.in_form("tail", convert) is first
    assert made == NOTES
