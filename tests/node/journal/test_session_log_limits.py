"""A peer opens more streams than a checkpoint may name: the first are named, and all are kept."""

import pytest

from parley._node.journal import session_log
from parley._node.journal.audit.rows import EVENT_COLUMNS, STATUS_AT
from parley._node.journal.records import OK, read_records
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of

TOPIC = EVENT_COLUMNS.index("topic")
PAYLOAD = EVENT_COLUMNS.index("payload")
TYPE = EVENT_COLUMNS.index("type")


def test_number_of_labels_in_a_checkpoint_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "MOST_LABELS", 3)
    made = RecordedPair()
    core = made.pair.b.core
    streams = [core.open_stream(f"topic:t{number}") for number in range(8)]
    made.pump()
    made.journals[0].next_segment()
    for number, stream in enumerate(streams):
        core.send(stream, 0, 64, 1, b"%d" % number, lbm=False)
    made.run(0.05)
    made.end()
    segments = made.journals[0].segments
    assert {one.status for data in segments.values() for one in read_records(data)} == {OK}

    def topics(*stems: str) -> list[str | None]:
        audit = audit_of({stem: segments[stem] for stem in stems}, AUDITOR)
        assert audit.take_findings() == []
        rows = audit.take_events()
        assert {row[STATUS_AT] for row in rows} == {"ok"}
        reported = [row for row in rows if row[TYPE] == "application"]
        assert [row[PAYLOAD] for row in reported] == [b"%d" % number for number in range(8)]
        return [row[TOPIC] for row in reported]

    # A reader from the start has all of them, a reader from the checkpoint only the first.
    assert topics(*segments) == [f"t{number}" for number in range(8)]
    assert topics(list(segments)[1]) == ["t0", "t1", "t2"] + [None] * 5


def test_ended_stream_frees_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "MOST_LABELS", 3)
    made = RecordedPair()
    core = made.pair.b.core
    streams = [core.open_stream(f"topic:t{number}") for number in range(4)]
    made.pump()
    for _ in range(2):  # Both directions.
        made.logs[0].direction_ended(streams[0])
    streams.append(core.open_stream("topic:later"))
    made.pump()
    made.journals[0].next_segment()
    for stream in streams:
        core.send(stream, 0, 64, 1, b"x", lbm=False)
    made.run(0.05)
    made.end()
    stem, data = list(made.journals[0].segments.items())[1]
    rows = audit_of({stem: data}, AUDITOR).take_events()
    topics = [row[TOPIC] for row in rows if row[TYPE] == "application"]
    assert topics == [None, "t1", "t2", None, "later"]
