"""A batch is one record, and each of its events one row: the chain covers the batch as a whole."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from parley._lbm import keys as cells
from parley._lbm.codec import encode
from parley._node.journal.audit import direction as tracker
from parley._node.journal.audit.content import event_rows, read_content, single_events
from parley._node.journal.audit.rows import EVENT_COLUMNS, MALFORMED
from parley._node.protocol.codes import BATCH, CALL, NOTES, NOTIFY, RESULT, SIM, STREAM
from parley._node.protocol.event import serialise_batch
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.send_queue import OutgoingEvent
from tests.node.journal.audit.audit_helpers import Audited, Records, flipped, received
from tests.node.journal.memory_journal import RecordedPair, records_of
from tests.vectors.load import Vector, of_kind, unhex, vectors

Inner = tuple[int, int, int, bytes]
CALLS: tuple[Inner, ...] = tuple(
    (number, SIM, CALL, encode({cells.TOPIC: topic, cells.DATA: b"x"}))
    for number, topic in enumerate(("add", "list"), 7)
)
WRONG: Inner = (9, SIM, RESULT, encode({cells.DATA: b"no code"}))
APPLICATION: Inner = (0, 64, 1, b"\x00")


def send_batch(
    made: RecordedPair, stream: int, events: Sequence[Inner], *, seal: bool = False
) -> None:
    """Send a batch from Alice, independent of the writer's own batches."""
    session = made.pair.a.core.session
    assert session is not None
    payload = serialise_batch(events)
    credit = None if stream == 1 else session.mux.stream_table.get_local(stream).credit
    cost = 0 if credit is None else len(payload) + EVENT_COST
    session.mux.outbox.put(OutgoingEvent(stream, 0, STREAM, BATCH, payload, seal, cost), credit)


@cache
def recorded() -> Records:
    """Return Bob's journal of two batches from Alice, one of them with a topic's notes."""
    made = RecordedPair()
    stream = made.pair.a.core.open_stream("topic:news")
    send_batch(made, 1, (*CALLS, WRONG, APPLICATION))
    notes = (
        (0, SIM, NOTIFY, encode({cells.DATA: b"one"})),
        (0, SIM, NOTES, encode({cells.NOTES: [b"two", b"three"]})),
        (0, SIM, NOTES, encode({cells.NOTES: []})),
    )
    send_batch(made, stream, notes)
    made.pump()
    made.run(0.05)
    made.end()
    return records_of(made.journals[1].segments)


def reported(audited: Audited) -> list[dict[str, Any]]:
    """Return the rows of events on streams, with the columns that all readers see."""
    return [
        row
        for one in event_rows(audited.rows, None, payloads=True)
        if (row := dict(zip(EVENT_COLUMNS, one, strict=True)))["stream"]
        and row["direction"] == "received"
        and row["type"] != "open"
    ]


def of(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_each_event_of_a_batch_is_a_row_with_both_places() -> None:
    audited = Audited(recorded())
    assert audited.findings == []
    rows = reported(audited)
    first, second = rows[:4], rows[4:]
    assert of(first, "inside", "async_id", "type", "topic", "status") == [
        (0, 7, "call", "add", "ok"),
        (1, 8, "call", "list", "ok"),
        (2, 9, "result", None, "malformed"),
        (3, 0, "application", None, "ok"),
    ]
    assert [row["payload"] for row in first] == [one[3] for one in (*CALLS, WRONG, APPLICATION)]
    assert of(second, "inside", "type", "topic", "item", "items", "payload_size") == [
        (0, "notify", "news", 0, 1, 6),
        (1, "notes", "news", 0, 2, 6),
        (1, "notes", "news", 1, 2, 8),
        (2, "notes", "news", 0, 0, 4),
    ]
    for batch in (first, second):
        assert len(set(of(batch, "segment", "offset", "place", "wire_size", "digest"))) == 1


def test_without_a_key_or_altered_a_batch_is_one_row() -> None:
    records = recorded()
    dark = reported(Audited(records, key=False))
    assert of(dark, "inside", "type", "status") == [(None, None, "ok")] * 3  # And the Open event.
    altered = reported(Audited(flipped(records, received(records)[1])))
    assert of(altered, "inside", "type", "status")[:1] == [(None, None, "bad-chain")]
    assert [row["inside"] for row in altered[1:]] == [0, 1, 1, 2]


def test_invalid_batch_is_one_malformed_row() -> None:
    made = RecordedPair()
    send_batch(made, 1, CALLS[:1], seal=True)
    made.pump()
    made.run(0.05)
    for journal in made.journals:
        journal.log.end()
        rows = Audited(records_of(journal.segments)).rows
        found = [(row.content.type, row.status) for row in rows if row.stream]
        assert found == [("batch", "malformed")]


@vectors("batch", of_kind("batch"))
def test_contents_match_the_node(vector: Vector) -> None:
    raw = unhex(vector["raw_event"])
    events = single_events(int.from_bytes(raw[:4]), raw[4:])
    if "fails" in vector:
        assert [event[0] for event in events] == [None]
        assert read_content(1, *events[0][2:]).status == MALFORMED
        return
    assert [event[0] for event in events] == list(range(len(vector["expected"])))
    for (_, async_id, number, payload), wanted in zip(events, vector["expected"], strict=True):
        assert [async_id, number >> 8, number & 255, payload.hex()] == [
            *(wanted[name] for name in ("async_id", "category", "subcategory")),
            wanted["payload"] or "00",
        ]


@pytest.mark.pure  # It replaces a constant of the core.
@pytest.mark.parametrize(("limit", "fits", "less"), [("PENDING", 4, 3), ("PENDING_SIZE", 150, 100)])
def test_pending_batch_events_are_counted_once_by_size(
    monkeypatch: pytest.MonkeyPatch, limit: str, fits: int, less: int
) -> None:
    made = RecordedPair(seal_events=128)
    send_batch(made, 1, CALLS * 2)
    made.pump()
    made.run(0.05)
    made.end()
    records = records_of(made.journals[1].segments)
    for most, status in ((fits, "ok"), (less, "unsealed")):
        monkeypatch.setattr(tracker, f"MAX_{limit}", most)
        audited = Audited(records)
        assert of(reported(audited), "inside", "status") == [(at, status) for at in range(4)]
        assert audited.pending <= 4
