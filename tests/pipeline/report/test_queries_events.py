"""Single events of a report: around findings, at a session's beginning, and in bins of time."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from parley._pipeline.gold.arrow import LONG
from parley._pipeline.report import queries
from parley._pipeline.report import queries as events
from parley._pipeline.report.queries import Scan, collect, events_of, fine_traffic
from parley._pipeline.schema import WALKED_ARROW
from tests.pipeline.report.test_queries import MICROS, tables
from tests.pipeline.silver_frames import START, Talk


def scan_of(*talks: Talk) -> Scan:
    """The columns of events that these sessions have, as a store yields them."""
    rows = pa.Table.from_pylist([row for talk in talks for row in talk.events], WALKED_ARROW)

    def scan(names: Sequence[str], sessions: Sequence[str] | None) -> Iterator[pa.Table]:
        some = rows
        if sessions is not None:
            wanted = pa.array(sessions, pa.string())
            some = rows.filter(pc.is_in(rows.column("session"), wanted))
        for first in range(0, some.num_rows, 7):
            yield some.slice(first, 7).select(list(names))

    return scan


def long_talk(count: int) -> Talk:
    talk = Talk("s")
    for at in range(count):
        talk.say("a", "call", ms=at, topic="t", wire_size=100)
    return talk


def test_events_near_a_finding_come_first_then_those_at_the_beginning() -> None:
    found = events_of(scan_of(long_talk(120), Talk("other")), {"s": [100], "none": []})
    assert found["none"] == []
    sent = [row for row in found["s"] if row.direction == "sent" and row.journal == "a"]
    assert [row.place for row in sent] == [*range(95, 106), *range(15)]
    assert {row.session for row in found["s"]} == {"s"}
    assert {row.topic for row in sent} == {"t", None}


def test_a_session_has_at_most_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_ROWS", 5)
    [rows] = events_of(scan_of(long_talk(50)), {"s": [30]}).values()
    assert [row.place for row in rows] == [25, 25, 26, 26, 27]


def test_bins_of_time_count_each_journals_events() -> None:
    talk = Talk("s")
    talk.say("a", "call", ms=10, wire_size=100)
    talk.say("a", "notes", ms=20, wire_size=50, notes=3)
    talk.batch("a", 250, {"type": "call", "wire_size": 70}, {"type": "call", "wire_size": 70})
    table = fine_traffic(scan_of(talk), 200_000)
    sent = [row for row in table.to_pylist() if row["node"] == "a" and row["direction"] == "sent"]
    said = {row["minute"]: (row["peer"], row["events"]) for row in sent}
    # The Proof, a call and one event of three notes; then a Batch of two.
    assert said == {START: ("b", 3), START + timedelta(milliseconds=200): ("b", 2)}
    [batch] = [row["wire_bytes"] for row in sent if row["minute"] != START]
    assert batch == 70


def test_short_spans_have_fine_bins_unless_there_are_too_many_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gold = tables()
    when = pa.array([MICROS + 1_000_000] * 3, LONG).cast(gold["graph"].schema.field("last").type)
    at = gold["graph"].schema.get_field_index("last")
    gold["graph"] = gold["graph"].set_column(at, "last", when)
    scan = scan_of(long_talk(200))
    assert collect(gold, scan).bucket == 10_000
    assert collect(gold, None).bucket == 900_000_000
    monkeypatch.setattr(queries, "FINE_EVENTS", 1)
    assert collect(gold, scan).bucket == 900_000_000
