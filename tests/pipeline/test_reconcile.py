"""Both ends' journals compared: each difference once, and no fault where it may be honest."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from parley._pipeline.gold.build import gold_tables
from parley._pipeline.gold.store import GoldDirectory
from parley._pipeline.reconcile import events
from parley._pipeline.reconcile.events import EventQuery, SessionDirection
from parley._pipeline.summary import facts
from tests.pipeline.silver_frames import CHECK_KEY, Talk, events_of, summary


def talk(session: str, events: int = 9, **nodes: str) -> Talk:
    """A session in which `a` sends places 1..`events`, and `b` two."""
    made = Talk(session, **nodes)
    for number in range(events):
        made.say(made.nodes[0], "notify", number)
    for number in range(2):
        made.say(made.nodes[1], "notify", number)
    return made


def findings(*talks: Talk) -> list[dict[str, Any]]:
    """Return the findings in these sessions' journals; only requested events are read."""

    def read(wanted: EventQuery) -> pa.Table:
        rows = events_of(*talks)
        place = rows.column("place").fill_null(-1)
        inside = pc.and_(
            pc.greater_equal(place, wanted.first_place), pc.less_equal(place, wanted.last_place)
        )
        session = pc.is_in(rows.column("session"), pa.array(wanted.sessions))
        return rows.filter(pc.and_(inside, session))

    found: list[dict[str, Any]] = gold_tables(summary(*talks), read, CHECK_KEY)[
        "findings"
    ].to_pylist()
    return found


@pytest.mark.parametrize("bits", [facts.BLOCK_BITS, 1])
@pytest.mark.parametrize("many", [events.MANY_EVENTS, 1])
def test_each_difference_between_two_journals_is_told_once(
    monkeypatch: pytest.MonkeyPatch, bits: int, many: int
) -> None:
    # Also with two places in a block: equal ones next to different ones; and one session at a time.
    monkeypatch.setattr(facts, "BLOCK_BITS", bits)
    monkeypatch.setattr(events, "MANY_EVENTS", many)
    whole = talk("whole")
    whole.close("b", 20)

    hole = talk("hole")  # three runs in three places, in both journals
    hole.drop("b", "a", 3, 4, 7)
    hole.drop("a", "b", 1)

    shifted = talk("shifted")  # behind a hole, places are counted from there on
    shifted.drop("a", "a", 4)
    for place in range(5, 10):
        shifted.row("a", "a", place).update(place=place - 1, status="gap")

    altered = talk("altered")
    altered.row("a", "a", 5).update(digest=b"x" * 16, status="bad-chain")
    altered.row("b", "b", 2).update(wire_size=99)

    lost = talk("lost")  # The connection broke: there is no proof.
    lost.drop("b", "a", 8, 9)
    lost.about("a", "end", code=-1, remote=False, sent_place=9, received_place=2)
    lost.about("b", "end", code=-1, remote=False, sent_place=2, received_place=7)

    claimed = talk("claimed")  # It broke as well, but b's end record shows that b had them.
    claimed.drop("b", "a", 8, 9)
    claimed.about("b", "end", code=-1, remote=False, sent_place=2, received_place=9)

    closed = talk("closed")  # and here the Close, which came last, had come
    closed.close("a", 20)
    closed.drop("b", "a", 9, 10)

    crashed = talk("crashed")  # a's journal ends before what b got from it
    crashed.drop("a", "a", 8, 9)

    cut = talk("cut")  # it does, and is ended
    cut.drop("a", "a", 8, 9)
    cut.about("a", "end", code=-1, remote=False, sent_place=7, received_place=2)
    cut.about("b", "end", code=-1, remote=False, sent_place=2, received_place=9)

    pruned = talk("pruned")  # old segments of one side were removed
    pruned.drop("b", "a", 0, 1, 2)

    each = talk("each")  # Unverified events have no digest to compare.
    each.row("a", "a", 5).update(digest=b"", status="gap")

    copied = talk("copied")
    copied.events.append(copied.row("b", "a", 5) | {"status": "duplicate", "place": None})

    coded = talk("coded")  # b got a Close that a did not send like that
    coded.close("a", 20)
    coded.sessions[-1]["code"] = 2

    gone = talk("gone")  # b's journal has sessions from before it and from after it
    gone.lose("b")

    early = talk("early", one="a", other="c")  # c's journal begins later
    early.lose("c")
    late = talk("late", one="a", other="c")
    for row in [*late.events, *late.sessions]:
        row["time"] += timedelta(days=1)
        row["started"] = row["time"]
    unknown = [talk(f"unknown {number}", one="a", other="d") for number in range(2)]
    for made in unknown:
        made.lose("d")

    talks = (
        whole, hole, shifted, altered, lost, claimed, closed, crashed, cut, pruned, each, copied,
        coded, gone, early, late, *unknown,
    )  # fmt: skip
    told = {
        (row["session"], row["kind"], row["journal"], row["direction"], row["place"], row["count"])
        for row in findings(*talks)
    }
    assert told == {
        ("hole", "not-received", "b", "received", 3, 2),
        ("hole", "not-received", "b", "received", 7, 1),
        ("hole", "not-received", "a", "received", 1, 1),
        ("shifted", "not-sent", "a", "sent", 4, 1),
        ("altered", "differs", "a", "sent", 5, 1),
        ("altered", "differs", "b", "sent", 2, 1),
        ("lost", "in-flight", "b", "received", 8, 2),
        ("claimed", "not-received", "b", "received", 8, 2),
        ("closed", "not-received", "b", "received", 9, 2),
        ("crashed", "not-recorded", "a", "sent", 8, 2),
        ("cut", "not-sent", "a", "sent", 8, 2),
        ("cut", "end-differs", "a", None, None, 1),
        ("pruned", "not-covered", "b", "received", 0, 3),
        ("coded", "end-differs", "a", None, None, 1),
        ("gone", "missing-journal", "b", None, None, 1),
        (None, "not-covered", "c", None, None, 1),
        (None, "missing-journal", "d", None, None, 2),
    }


def test_a_long_run_is_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RUN_BITS", 2)
    long = talk("long")
    long.drop("b", "a", 2, 3, 4, 5, 6, 7, 8)
    found = findings(long)
    assert sorted((row["kind"], row["place"], row["count"]) for row in found) == [
        ("not-received", 2, 2),
        ("not-received", 4, 4),
        ("not-received", 8, 1),
    ]


def test_of_a_long_session_only_blocks_that_are_not_alike_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events between them are not in memory, and neither are another session's at their
    places.
    """
    monkeypatch.setattr(facts, "BLOCK_BITS", 2)
    talks = [talk("early", 99), talk("late", 99)]
    talks[0].drop("b", "a", 1)
    talks[1].drop("b", "a", 97)
    place = tmp_path / "silver" / "batch=0" / "part=event" / "date=2026-01-02"
    place.mkdir(parents=True)
    pq.write_table(events_of(*talks), place / "rows.parquet")
    (tmp_path / "stitched" / "batch=0").mkdir(parents=True)
    read: list[pa.Table] = []

    def reader(wanted: EventQuery) -> pa.Table:
        read.append(GoldDirectory(tmp_path).events(wanted, 0))
        return read[-1]

    found = gold_tables(summary(*talks), reader, CHECK_KEY)["findings"].to_pylist()
    assert [(one["session"], one["place"]) for one in found] == [("early", 1), ("late", 97)]
    assert [rows.num_rows for rows in read] == [2 * (2 * 4 - 1)]


def test_many_short_sessions_are_put_into_groups_in_one_pass() -> None:
    looked_at = 0

    class Counting(SessionDirection):
        @property
        def events(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return 10_000

        @events.setter
        def events(self, value: int) -> None:
            pass

    many = [Counting(str(number), "a") for number in range(300)]
    assert [len(group) for group in events._groups(many)] == [104, 104, 92]
    assert looked_at < 1_000
