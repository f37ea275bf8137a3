"""Silver equals one audit from beginning to end, however the records arrive."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from parley._node.journal import keys
from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._node.journal.records import read_records
from parley._node.journal.segments import CLOSED, LIVE
from parley._pipeline.bronze import ingest
from parley._pipeline.silver import SilverStep, events, findings, sessions, statements, tunnels
from parley._pipeline.tables import Tables
from tests.node.journal.joined_tunnels import TRACE, join, server, tunnel_record
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.node.journal.presented_statements import Theft

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.jvm]

KEY = AUDITOR.private_bytes()
COMPARED = (
    *("session", "direction", "place", "offset", "type", "topic", "inside", "item"),
    *("status", "payload"),
)


@pytest.fixture(scope="module")
def recorded() -> RecordedPair:
    """Two sessions over several segments, with rekeys, notes of a topic and plain events, and
    tunnels that one node joined."""
    rec = RecordedPair()
    for _ in range(2):
        talk(rec)
        rec.pair.a.core.close(rec.pair.now, 0)
        rec.run(5)
        rec.meet()
    rec.end()
    return rec


def talk(rec: RecordedPair) -> None:
    pair = rec.pair
    stream = pair.a.core.open_stream("topic:prices")
    for number in range(90):
        pair.a.core.send_data(stream, b"%d" % number)
        for _ in range(1 + number % 3):
            pair.b.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)  # some go together
        rec.pump()
        if number % 20 == 7:
            rec.run(0.05)
        if number == 30:
            pair.b.core.rekey(pair.now)
        if number % 25 == 12:
            join(rec.journals[0], tunnel_record(forward=number))
            rec.journals[0].roll()
        if number in (40, 70):
            rec.journals[0].next_segment()
            rec.journals[1].next_segment()
    rec.run(0.05)


def stored(segments: dict[str, bytes], row: dict[str, Any]) -> int:
    """The kind of the record that a row names."""
    [record] = [
        one for one in read_records(segments[row["segment"]]) if one.offset == row["offset"]
    ]
    return record.kind


def write(directory: Path, segments: dict[str, bytes], state: str = CLOSED) -> None:
    directory.mkdir(exist_ok=True)
    for stem, data in segments.items():
        (directory / (stem + state)).write_bytes(data)


def rows_of_audit(segments: dict[str, bytes]) -> Counter[tuple[Any, ...]]:
    audit = audit_of(segments, AUDITOR)
    at = [EVENT_COLUMNS.index(name) for name in COMPARED]
    return Counter(tuple(row[index] for index in at) for row in audit.take_events())


def rows_of_silver(tables: Tables) -> Counter[tuple[Any, ...]]:
    rows = events(tables).select(*COMPARED).collect()
    return Counter(
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in rows
    )


def test_many_small_ranges_are_stitched_to_what_one_audit_says(
    spark: SparkSession, tmp_path: Path, recorded: RecordedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = recorded.journals[0].segments
    write(tmp_path / "journals", segments)
    steps = [SilverStep([KEY])]
    ingest(spark, str(tmp_path / "journals"), str(tmp_path / "tables"), steps=steps, range_size=1)
    tables = Tables(spark, str(tmp_path / "tables"))
    assert rows_of_silver(tables) == rows_of_audit(segments)
    assert findings(tables).count() == 0
    delays = events(tables).where("status = 'ok' and seal_delay_us is null").count()
    assert delays == 0
    whats = Counter(row.what for row in sessions(tables).select("what").collect())
    assert whats["start"] == whats["end"] == 3
    joined = tunnels(tables).orderBy("time").collect()
    assert [row.forward for row in joined] == [12, 37, 62, 87] * 2
    known = joined[0].asDict()
    assert (known["trace"], known["hop"], known["length"]) == (TRACE.hex(), 1, 3)
    assert (known["before"], known["after"]) == (server(1).text, server(3).text)
    assert (known["ended"] - known["began"]).total_seconds() == 1
    assert stored(segments, known) == keys.TUNNEL
    # Where the tables are in no directory, or not in the one of that name, all rows go through
    # Spark.
    monkeypatch.setattr(
        "parley._pipeline.silver.local_directory", lambda path: tmp_path / "elsewhere"
    )
    SilverStep([KEY])(tables, 0)
    assert rows_of_silver(tables) == rows_of_audit(segments)
    assert not (tmp_path / "elsewhere").exists()


def test_statements_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    made = Theft()
    segments = made.sessions.segments()
    write(tmp_path / "journals", segments)
    tables = Tables(spark, str(tmp_path / "tables"))
    for _ in range(2):  # the second run adds nothing
        ingest(spark, str(tmp_path / "journals"), tables.root, steps=[SilverStep([KEY])])
        rows = [row.asDict() for row in statements(tables).orderBy("direction").collect()]
        assert [(row["direction"], row["status"]) for row in rows] == [
            ("received", "ok"),
            ("sent", "ok"),
        ]
        for row in rows:
            assert (row["origin"], row["successor"]) == (
                made.bob.node_id.text,
                made.heir.node_id.text,
            )
            assert (row["by_recovery"], row["made_ms"]) == (True, made.made_ms)
            assert stored(segments, row) == keys.SECRET


def test_a_live_segment_is_followed_in_pieces(
    spark: SparkSession, tmp_path: Path, recorded: RecordedPair
) -> None:
    segments = recorded.journals[1].segments
    (first, data), *_ = segments.items()
    tables = Tables(spark, str(tmp_path / "tables"))

    def take() -> None:
        ingest(spark, str(tmp_path / "journals"), tables.root, steps=[SilverStep([KEY])])

    write(tmp_path / "journals", {first: data[: int(len(data) * 0.6)]}, LIVE)
    take()
    assert findings(tables).count() == 0
    assert events(tables).where("status = 'unsealed'").count() > 0  # so far
    (tmp_path / "journals" / (first + LIVE)).unlink()
    write(tmp_path / "journals", segments)
    take()
    assert rows_of_silver(tables) == rows_of_audit(segments)
    assert findings(tables).count() == 0


def test_what_is_missing_between_ranges_is_found(
    spark: SparkSession, tmp_path: Path, recorded: RecordedPair
) -> None:
    segments = dict(recorded.journals[0].segments)
    del segments[sorted(segments)[1]]
    write(tmp_path / "journals", segments)
    tables = Tables(spark, str(tmp_path / "tables"))
    ingest(spark, str(tmp_path / "journals"), tables.root, steps=[SilverStep([KEY])])
    kinds = Counter(row.kind for row in findings(tables).select("kind").collect())
    assert kinds == {"missing-segment": 1, "gap": 2}
