"""Gold tables that are updated batch by batch equal gold tables that are built at once.

The pipeline's own steps read, verify and stitch journals in this process; files are where Spark
would put them.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from parley._lbm import keys as cells
from parley._node.journal.segments import CLOSED, LIVE, RANGE_SIZE
from parley._node.protocol import codes
from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.bronze_rows import NEEDED as NEEDED_OF_BRONZE
from parley._pipeline.errors import DamagedTablesError, NoTablesError
from parley._pipeline.gold import refresh as refreshing
from parley._pipeline.gold.build import SCHEMAS, gold_tables
from parley._pipeline.gold.refresh import newest, read_all_gold, refresh, remove_old
from parley._pipeline.gold.store import MARK, GoldDirectory
from parley._pipeline.read_planner import Budget, Listing, Progress, ranges_between, read_on
from parley._pipeline.schema import (
    EVENT,
    FINDING,
    PENDING,
    SESSION,
    STATEMENT,
    TUNNEL,
    WALKED_ARROW,
)
from parley._pipeline.segment_reader import read_segment_range
from parley._pipeline.stitch import local as here
from parley._pipeline.summary.facts import NEEDED, summary_of
from parley._pipeline.summary.kinds import merge_summaries
from parley._pipeline.tables import local_check_key
from parley.protocol import encode
from tests.node.journal.memory_journal import AUDITOR, RecordedPair
from tests.node.journal.presented_statements import Theft
from tests.pipeline.local_pipeline import Rows, stitched
from tests.pipeline.silver_frames import CHECK_KEY, START

CALL = encode({cells.TOPIC: "add", cells.DATA: b"x"})
RESULT = encode({cells.CODE: 0})
KEYS = [AUDITOR.private_bytes()]


class Lake:
    """Tables in a directory, without Spark."""

    def __init__(self, root: Path, range_size: int = RANGE_SIZE) -> None:
        self.root = root
        self.store = GoldDirectory(root)
        self._walk = make_audit_task(KEYS, payloads=True, check_key=CHECK_KEY)
        self._range_size = range_size
        self._progress = Progress()
        self._before, self._all = Rows(), Rows()
        self._batches = 0

    def take(self, journals: Path) -> None:
        """Process a batch of new data."""
        listing, after = Listing.of(str(journals)), Progress(self._progress.as_offset())
        for file in listing.segments:
            read_on(file, after, Budget(), self._range_size)
        parts = ranges_between(self._progress, after, listing, self._range_size)
        self._progress = after
        walked = Rows(
            batch
            for part in parts
            for batch in self._walk(
                rows.select(list(NEEDED_OF_BRONZE)) for rows in read_segment_range(part)
            )
        )
        self._before = stitched(walked, self._before)
        self._write("silver", walked)
        (self.root / "silver" / f"batch={self._batches}" / "_SUCCESS").touch()
        assert here.stitch_locally(self.root, self._batches)
        self._all.add(walked)
        self._all.add(self._before)
        self._batches += 1

    def grow(self, segments: Mapping[str, bytes], *parts: float) -> None:
        """A batch for each part of both journals."""
        journals = self.root.with_name("journals")
        for part in parts:
            write(journals, segments, (part, part))
            self.take(journals)

    def refresh(self, minute: int = 0) -> dict[str, list[str]]:
        """Gold, brought up to date."""
        refresh(self.store, CHECK_KEY, START + timedelta(minutes=minute))
        return self.held()

    def held(self) -> dict[str, list[str]]:
        """The rows of each table as texts, in order."""
        gold = read_all_gold(self.store)
        assert gold is not None
        return texts({name: table.drop_columns([MARK]) for name, table in gold.items()})

    def at_once(self) -> dict[str, list[str]]:
        """Gold of all rows of silver, without any summary of a task."""
        waiting = pa.Table.from_batches(self._before.of(PENDING), WALKED_ARROW).select(NEEDED)
        unsealed = pa.repeat("unsealed", waiting.num_rows)
        at = waiting.schema.get_field_index("status")
        final = pa.Table.from_batches(self._all.of(EVENT), WALKED_ARROW).select(NEEDED)
        events = pa.concat_tables([final, waiting.set_column(at, "status", unsealed)])
        rows = events.combine_chunks().to_batches()
        others = {
            "sessions": SESSION,
            "tunnels": TUNNEL,
            "statements": STATEMENT,
            "findings": FINDING,
        }
        summary = merge_summaries(
            [
                *(summary_of([(batch, True, True)], CHECK_KEY) for batch in rows),
                *(
                    {name: pa.table({"other": self._all.others(part) or pa.array([], pa.string())})}
                    for name, part in others.items()
                ),
            ]
        )
        return texts(gold_tables(summary, lambda _: events, CHECK_KEY))

    def _write(self, name: str, rows: Rows) -> None:
        place = self.root / name / f"batch={self._batches}"
        place.mkdir(parents=True)
        for part in rows.parts():
            table = pa.Table.from_batches(rows.of(part), WALKED_ARROW)
            for date in pc.unique(table.column("date")):
                some = table.filter(pc.equal(table.column("date"), date))
                (place / f"part={part}" / f"date={date}").mkdir(parents=True)
                file = place / f"part={part}" / f"date={date}" / "rows.parquet"
                pq.write_table(some.drop_columns(["part", "date"]), file)


def texts(gold: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """The rows of each table, in order."""
    return {name: sorted(str(row) for row in gold[name].to_pylist()) for name in SCHEMAS}


def talk() -> RecordedPair:
    """Calls and their answers, subscriptions and notes, over several blocks and segments."""
    recorded = RecordedPair()
    one, other = recorded.pair.a.core, recorded.pair.b.core
    stream = one.open_stream("topic:prices")
    for number in range(90):
        one.send_data(stream, b"%d" % number)
        one.send(1, number % 5 + 1, codes.SIM, codes.CALL, CALL)
        recorded.pump()
        if number % 3:
            other.send(1, number % 5 + 1, codes.SIM, codes.RESULT, RESULT)
        recorded.pump()
        if number % 25 == 12:
            one.send(1, 9, codes.SIM, codes.CALL, CALL)
            recorded.run(0.05)
            recorded.journals[0].roll()
            recorded.journals[1].next_segment()
        if number == 50:
            recorded.journals[0].next_segment()
            other.send(1, 9, codes.SIM, codes.RESULT, RESULT)
    recorded.end()
    return recorded


@pytest.fixture(scope="module")
def segments() -> dict[str, bytes]:
    """Those of both journals."""
    return {stem: data for journal in talk().journals for stem, data in journal.segments.items()}


def write(place: Path, segments: Mapping[str, bytes], parts: tuple[float, ...]) -> None:
    """As much of each node's journal, as it is while it is written."""
    place.mkdir(exist_ok=True)
    nodes = sorted({stem[:52] for stem in segments})
    for node, part in zip(nodes, parts, strict=True):
        left = int(part * sum(len(data) for stem, data in segments.items() if stem[:52] == node))
        for stem in sorted(stem for stem in segments if stem[:52] == node):
            data = segments[stem]
            live, closed = place / (stem + LIVE), place / (stem + CLOSED)
            if left >= len(data):
                live.unlink(missing_ok=True)
                closed.write_bytes(data)
            elif left > 0:
                live.write_bytes(data[:left])
            left -= len(data)


# How much of each of two journals there is when a batch is made.
STEPS = (
    ((0.2, 0.3), (0.5, 0.4), (0.55, 0.9), (1.0, 1.0)),
    ((0.9, 0.0), (0.9, 0.5), (1.0, 1.0)),
    tuple((part / 6, part / 6) for part in range(1, 7)),
)


@pytest.mark.parametrize(
    ("steps", "is_altered"), [*((steps, False) for steps in STEPS), (STEPS[0], True)]
)
def test_gold_is_the_same_however_it_came_about(
    tmp_path: Path,
    segments: dict[str, bytes],
    steps: tuple[tuple[float, float], ...],
    is_altered: bool,
) -> None:
    """Compare with all rows of silver at once; and, if the journals are untouched, with one batch.
    For altered ones, silver itself defines where reading began.
    """
    if is_altered:
        segments = {stem: altered(data) for stem, data in segments.items()}
    journals = tmp_path / "journals"
    growing = Lake(tmp_path / "growing")
    gold: dict[str, list[str]] = {}
    for number, parts in enumerate(steps):
        write(journals, segments, parts)
        growing.take(journals)
        gold = growing.refresh(number)
        assert gold == growing.at_once()
    if not is_altered:
        whole = Lake(tmp_path / "whole")
        whole.take(journals)
        assert gold == whole.refresh()
    assert gold["calls"]
    assert is_altered == any("bad-crc" in finding for finding in gold["findings"])


def test_each_statement_is_added_once(tmp_path: Path) -> None:
    made = Theft()
    alice, bob = made.alice.node_id.text, made.bob.node_id.text
    journals, lake = tmp_path / "journals", Lake(tmp_path / "lake")
    counts, rows = [], []
    for number, part in enumerate(part / 12 for part in range(1, 13)):
        write(journals, made.sessions.segments(), (part,) * 3)
        lake.take(journals)
        assert lake.refresh(number) == lake.at_once()
        gold = read_all_gold(lake.store)
        assert gold is not None
        rows = gold["statements"].to_pylist()
        counts.append(len(rows))
    assert (counts[0], counts[-1]) == (0, 2)
    assert counts == sorted(counts)
    whole = Lake(tmp_path / "whole")
    whole.take(journals)
    assert lake.held() == whole.refresh()
    (first,) = [row for row in rows if row["before"] is not None]
    assert (first["journal"], first["origin"], first["direction"]) == (alice, bob, "received")
    assert (len(first["before"]), len(first["after"])) == (1, 2)
    # Nothing new was recorded.
    lake.take(journals)
    assert lake.refresh(20) == whole.held()


def test_what_did_not_change_is_not_made_again(
    tmp_path: Path, segments: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    for number, part in enumerate((0.5, 1.0)):
        lake.grow(segments, part)
        lake.refresh(number)
    slot, mark = newest(lake.store)
    assert (slot, mark and mark.batch) == (1, 1)
    files = {path: path.stat().st_mtime_ns for path in lake.root.rglob("*.parquet")}
    lake.refresh(2)
    assert {path: path.stat().st_mtime_ns for path in lake.root.rglob("*.parquet")} == files
    # The previous slot is kept for current readers, but not forever.
    remove_old(lake.store, START + timedelta(minutes=1) + refreshing.KEEP / 2)
    assert (lake.root / "gold" / "graph" / "slot=0").is_dir()
    remove_old(lake.store, START + timedelta(minutes=1) + refreshing.KEEP)
    assert [path.name for path in lake.root.glob("gold/*/slot=*")] == ["slot=1"] * 10


def test_a_refresh_that_was_killed_leaves_the_tables_before(
    tmp_path: Path, segments: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    gold = {}
    for number, part in enumerate((0.4, 0.7, 1.0)):
        lake.grow(segments, part)
        if number < 2:
            gold = lake.refresh(number)
    written = GoldDirectory.write

    def killed(store: GoldDirectory, name: str, slot: int, table: pa.Table) -> None:
        if name == "topics":
            raise KeyboardInterrupt
        written(store, name, slot, table)

    monkeypatch.setattr(GoldDirectory, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        lake.refresh(3)
    monkeypatch.undo()
    assert lake.held() == gold
    whole = Lake(tmp_path / "whole")
    whole.take(tmp_path / "journals")
    assert lake.refresh(4) == whole.refresh()


def test_what_was_there_for_the_next_batch_goes_when_gold_is_made(
    tmp_path: Path, segments: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")

    def tips() -> list[int]:
        found = lake.root.glob("stitched/batch=*/part=tip")
        return sorted(int(path.parent.name.removeprefix("batch=")) for path in found)

    lake.grow(segments, 0.3, 0.6, 0.8)
    assert tips() == [0, 1, 2]
    lake.refresh()
    assert tips() == [1, 2]
    lake.grow(segments, 0.85, 0.9)
    assert tips() == [1, 2, 3, 4]
    lake.refresh(1)
    assert tips() == [3, 4]
    # Spark processes data that is too large for this process.
    monkeypatch.setattr(here, "MOST_BYTES", 1_000)
    assert not here.stitch_locally(lake.root, 2)


def test_batches_that_come_while_gold_is_made_change_nothing_of_it(
    tmp_path: Path, segments: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = [Lake(tmp_path / name) for name in ("alone", "busy")]

    def take(*lakes: Lake, parts: tuple[float, float]) -> None:
        write(tmp_path / "journals", segments, parts)
        for lake in lakes:
            lake.take(tmp_path / "journals")

    for parts in ((0.3, 0.35), (0.45, 0.5)):
        take(*lakes, parts=parts)
    alone, busy = lakes
    last_batch = GoldDirectory.last_batch

    def and_further_ones(store: GoldDirectory) -> int:
        last = last_batch(store)
        for parts in ((0.7, 0.75), (0.9, 0.95)):
            take(busy, parts=parts)
        return last

    gold = alone.refresh()
    monkeypatch.setattr(GoldDirectory, "last_batch", and_further_ones)
    assert busy.refresh() == gold
    monkeypatch.undo()
    assert busy.refresh(1) == busy.at_once() != gold


def test_gold_is_of_the_last_batch_when_the_clock_was_set_back(
    tmp_path: Path, segments: dict[str, bytes]
) -> None:
    lake = Lake(tmp_path / "lake")
    for part, minute in ((0.3, 10), (1.0, 1)):
        write(tmp_path / "journals", segments, (part, 0.9))
        lake.take(tmp_path / "journals")
        lake.refresh(minute)
    assert newest(lake.store)[0] == 1
    assert lake.held() == lake.at_once()


def test_a_batch_that_is_made_again_is_not_whole(
    tmp_path: Path, segments: dict[str, bytes]
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.grow(segments, 0.3, 1.0)
    assert lake.store.last_batch() == 1
    (lake.root / "silver" / "batch=1" / "_SUCCESS").unlink()
    assert lake.store.last_batch() == 0


@pytest.mark.parametrize(
    ("name", "at"),
    [("findings", -7), ("traffic", 40), ("summary", -7), ("summary", 40), (MARK, 40)],
)
def test_gold_that_is_damaged_is_said_and_made_anew(
    tmp_path: Path, segments: dict[str, bytes], name: str, at: int
) -> None:
    """Cut off, or empty in places, as a power cut leaves files."""
    lake = Lake(tmp_path / "lake")
    lake.grow(segments, 1.0)
    gold = lake.refresh()
    for file in lake.root.glob(f"gold/{name}/**/*.parquet"):
        data = file.read_bytes()
        file.write_bytes(data[:at] + (b"" if at < 0 else bytes(40) + data[at + 40 :]))
    if name in SCHEMAS:
        with pytest.raises(NoTablesError, match=f"{name!r}: it is damaged"):
            lake.held()
    assert lake.refresh(1) == gold


def test_silver_that_is_damaged_is_said(tmp_path: Path, segments: dict[str, bytes]) -> None:
    lake = Lake(tmp_path / "lake")
    lake.grow(segments, 1.0)
    for file in lake.root.glob("silver/batch=0/part=summary/**/*.parquet"):
        file.write_bytes(b"")
    with pytest.raises(NoTablesError, match=r"part=summary.*; remake silver"):
        lake.refresh()


@pytest.mark.parametrize("name", ["silver", "stitched"])
def test_silver_that_is_missing_is_said(
    tmp_path: Path, segments: dict[str, bytes], name: str
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.grow(segments, 0.3, 0.6, 1.0)
    rmtree(lake.root / name / "batch=1")
    with pytest.raises(DamagedTablesError, match=rf"{name}/batch=1': it is missing; remake silver"):
        lake.refresh()


def test_events_that_are_damaged_are_said(tmp_path: Path, segments: dict[str, bytes]) -> None:
    lake = Lake(tmp_path / "lake")
    lake.grow(segments, 1.0)
    for file in lake.root.glob("silver/batch=0/part=event/**/*.parquet"):
        file.write_bytes(b"PAR1")
    with pytest.raises(DamagedTablesError, match="; remake silver with `parley pipeline run`"):
        list(lake.store.scan(["session"], 0))


@pytest.mark.parametrize("again", [(1.0,), (0.4, 0.7, 1.0)])
def test_gold_of_batches_that_were_made_again_is_made_anew(
    tmp_path: Path, segments: dict[str, bytes], again: tuple[float, ...]
) -> None:
    """The numbers of batches are the same, but not their contents."""
    journals, root = tmp_path / "journals", tmp_path / "lake"
    first = Lake(root)
    for minute, part in enumerate((0.2, 0.5)):
        write(journals, segments, (part, part))
        first.take(journals)
        first.refresh(minute)
    for name in ("silver", "stitched"):
        rmtree(root / name)
    second, gold = Lake(root), {}
    for minute, part in enumerate(again):
        write(journals, segments, (part, part))
        second.take(journals)
        gold = second.refresh(minute + 2)
        assert gold == second.at_once()
    whole = Lake(tmp_path / "whole")
    whole.take(journals)
    assert gold == whole.refresh()


def test_tables_of_an_earlier_version_are_not_taken_for_empty_ones(tmp_path: Path) -> None:
    store = GoldDirectory(tmp_path)
    store.write(MARK, 0, pa.table({MARK: [START]}))
    for use in (read_all_gold, lambda store: refresh(store, CHECK_KEY, START)):
        with pytest.raises(NoTablesError, match="earlier version"):
            use(store)


def test_files_that_a_killed_task_left_are_nobodys(
    tmp_path: Path, segments: dict[str, bytes]
) -> None:
    lake = Lake(tmp_path / "lake")
    write(tmp_path / "journals", segments, (0.6, 0.9))
    lake.take(tmp_path / "journals")
    for path in list(lake.root.rglob("*.parquet")):
        path.with_name(f".{path.name}").write_bytes(b"PAR1")
    (lake.root / "checks").mkdir()
    (lake.root / "checks" / "_part.parquet").write_bytes(b"PAR1")
    (lake.root / "checks" / "part.parquet").touch()
    assert local_check_key(lake.root) == local_check_key(lake.root)
    assert lake.refresh() == lake.at_once()
    lake.grow(segments, 1.0)
    assert lake.refresh(1) == lake.at_once()


def altered(data: bytes) -> bytes:
    """With another byte in its middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
