"""Batches of a journal through the pipeline's steps in this process: no Spark, no tables.

Planning, reading, verifying and stitching are the pipeline's own; this module replaces Spark's part
between them: it keeps rows, unites them and sorts them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._node.journal.segments import CLOSED, LIVE, RANGE_SIZE, list_segments, read_range
from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.read_planner import Budget, Listing, Progress, ranges_between, read_on
from parley._pipeline.schema import (
    EVENT,
    FINDING,
    PENDING,
    SEGMENT,
    SESSION,
    SPAN,
    TIP,
    WALKED_ARROW,
)
from parley._pipeline.segment_reader import SegmentRange, read_segment_range
from parley._pipeline.stitch.local import sort_rows
from parley._pipeline.stitch.rows import stitch_rows

_COLUMNS: Final = [name for name in WALKED_ARROW.names if name in EVENT_COLUMNS or name == "time"]


class Told(NamedTuple):
    """The final content of the tables: the events in order, findings, rows of sessions."""

    events: pa.Table
    findings: list[str]
    sessions: list[str]

    def statuses(self) -> list[str]:
        """Of all events."""
        told: list[str] = self.events.column("status").to_pylist()
        return told


class Walks:
    """Verify ranges, each in a separate task, and once: the same bytes have the same rows."""

    def __init__(self, keys: Sequence[bytes], *, range_size: int = RANGE_SIZE) -> None:
        self._walk = make_audit_task(keys, payloads=True)
        self._range_size = range_size
        self._known: dict[object, list[pa.RecordBatch]] = {}

    def told_by(self, places: Iterable[Path]) -> Told:
        """Read the directory of a journal as it is at several times: a batch at each."""
        progress, last = Progress(), Rows()
        walked_all, stitched_all = Rows(), Rows()
        for place in places:
            listing, after = Listing.of(str(place)), Progress(progress.as_offset())
            for file in listing.segments:
                read_on(file, after, Budget(), self._range_size)
            parts = ranges_between(progress, after, listing, self._range_size)
            progress = after
            walked = Rows(batch for part in parts for batch in self._audit_rows(part))
            last = stitched(walked, last)
            walked_all.add(walked)
            stitched_all.add(last)
        return _told(walked_all, stitched_all, last.of(PENDING))

    def _audit_rows(self, part: SegmentRange) -> list[pa.RecordBatch]:
        key = part.name.stem, part.range
        batches = self._known.get(key)
        if batches is None:
            rows = (batch.select(list(NEEDED)) for batch in read_segment_range(part))
            batches = self._known[key] = list(self._walk(rows))
        return batches


class Rows:
    """Rows with the columns of `WALKED`, by their part."""

    def __init__(self, batches: Iterable[pa.RecordBatch] = ()) -> None:
        self._batches: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        for batch in batches:
            if batch.num_rows:
                self._batches[batch.column("part")[0].as_py()].append(batch)

    def add(self, more: "Rows") -> None:
        """Have those as well."""
        for part, batches in more._batches.items():
            self._batches[part] += batches

    def parts(self) -> list[str]:
        """The parts of which there are rows."""
        return list(self._batches)

    def of(self, *parts: str) -> list[pa.RecordBatch]:
        """The rows of some parts."""
        return [batch for part in parts for batch in self._batches[part]]

    def others(self, part: str) -> list[str]:
        """What rows that are no events are."""
        return [text for batch in self.of(part) for text in batch.column("other").to_pylist()]


def growing(journal: Path, place: Path) -> Iterator[Path]:
    """A directory in which a journal's segments are written, as it is behind each record."""
    place.mkdir()
    for file in list_segments(journal):
        data = file.path.read_bytes()
        live = place / (file.name.stem + LIVE)
        for record in read_range(file.path, 0, file.size):
            with live.open("ab") as written:
                written.write(data[record.offset : record.offset + record.size])
            yield place
        live.rename(place / (file.name.stem + CLOSED))


def stitched(walked: Rows, before: Rows) -> Rows:
    """What stitching makes of a batch's rows and of those before, as `pipeline.stitch.stitch`."""
    batches = walked.of(SEGMENT, SPAN, PENDING) + before.of(SEGMENT, TIP, PENDING)
    return Rows(stitch_rows(sort_rows(batches)))


def _told(walked: Rows, stitched: Rows, waiting: list[pa.RecordBatch]) -> Told:
    status = WALKED_ARROW.get_field_index("status")
    unsealed = [
        batch.set_column(status, "status", pa.repeat("unsealed", batch.num_rows))
        for batch in waiting
    ]
    batches = [batch.select(_COLUMNS) for batch in walked.of(EVENT) + stitched.of(EVENT) + unsealed]
    schema = pa.schema([WALKED_ARROW.field(name) for name in _COLUMNS])
    events = pa.Table.from_batches(batches, schema).combine_chunks()
    keys = [(name, "ascending") for name in ("journal", "segment", "offset", "place", "item")]
    findings = walked.others(FINDING) + stitched.others(FINDING)
    # The start of reading is independent of the journal.
    sessions = [row for row in walked.others(SESSION) if json.loads(row)["what"] != "live"]
    return Told(events.take(pc.sort_indices(events, keys)), sorted(findings), sorted(sessions))
