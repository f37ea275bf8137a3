"""Stitching in one pass over sorted rows.

The rows are sorted by journal: first its segments, then each session's spans and pending events. A
task holds the spans of only one session in memory.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from parley._crypto.randomness import random_bytes
from parley._pipeline.arrow_rows import other_batch
from parley._pipeline.schema import (
    EVENT,
    FINDING,
    MADE,
    PENDING,
    SEGMENT,
    SPAN,
    SPAN_FIELDS,
    TIP,
    WALKED,
    WALKED_ARROW,
)
from parley._pipeline.stitch.runs import Runs
from parley._pipeline.stitch.spans import LinkedSpan, Row, link
from parley._pipeline.summarise import append_summaries

_MANY: Final = 4_096  # maximum number of buffered output rows


def stitch(walked: DataFrame, before: DataFrame) -> DataFrame:
    """Return the stitched rows of a batch, with the columns of `WALKED`.

    `walked` are the batch's rows of silver, and `before` the stitched rows of the previous batch
    (possibly empty). The value of `part` identifies final events, findings and summaries. It also
    identifies the pending events, tips and segments for the next batch.
    """
    rows = walked.where(f.col("part").isin(SEGMENT, SPAN, PENDING)).unionByName(
        before.where(f.col("part").isin(SEGMENT, TIP, PENDING))
    )
    # Segments have no session, so they sort first.
    order = "journal", "session", f.col("part") == PENDING, "direction", "segment", "offset"
    return rows.repartition("journal").sortWithinPartitions(*order).mapInArrow(stitch_rows, WALKED)


def stitch_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return append_summaries(_stitched(batches))


def _stitched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    journal = _Journal("")
    for batch in batches:
        for start, stop in _groups(batch):
            rows = batch.slice(start, stop - start)
            name = rows.column("journal")[0].as_py()
            if name != journal.name:
                yield from journal.end()
                journal = _Journal(name)
            session, part = rows.column("session")[0].as_py(), rows.column("part")[0].as_py()
            if part == PENDING:
                yield journal.apply_verdict(session, rows)
            else:
                journal.add(session, part, rows.column("other").to_pylist())
            if journal.has_many:
                yield from journal.take()
    yield from journal.end()


class _Journal:
    """The rows of one journal: its segments and the current session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._runs = Runs(name)
        self._session: str | None = None
        self._spans: list[tuple[Row, bool]] = []
        self._linked: dict[tuple[str, str], LinkedSpan] = {}  # by direction and position
        self._found: list[dict[str, Any]] = []
        self._tips: list[dict[str, Any]] = []

    @property
    def has_many(self) -> bool:
        return len(self._found) + len(self._tips) >= _MANY

    def add(self, session: str | None, part: str, others: list[str]) -> None:
        self._turn_to(session)
        for row in map(json.loads, others):
            if part == SEGMENT:
                self._runs.add(row["run"], row["number"], row["first"], row.get("block"))
            else:
                self._spans.append((row, part == SPAN))

    def apply_verdict(self, session: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the verdict of later spans to the pending events of one span."""
        self._turn_to(session)
        self._link()
        direction, where = rows.column("direction")[0].as_py(), rows.column("other")[0].as_py()
        span = self._linked.get((direction, where))
        if span is not None and span.waits:
            return rows
        count = rows.num_rows
        given = {"part": pa.repeat(EVENT, count), "other": pa.nulls(count, pa.string())}
        if span is None or span.seal_ns is None:
            given["status"] = pa.repeat("unsealed", count)
        else:
            times = rows.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
            given["seal_delay_us"] = pa.array(span.seal_ns // 1000 - times)
        arrays = [given.get(name, rows.column(name)) for name in rows.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._found:
            yield other_batch(self._found, FINDING)
        if self._tips:
            yield other_batch(self._tips, TIP)
        self._found, self._tips = [], []

    def end(self) -> Iterator[pa.RecordBatch]:
        self._link()
        self._found += self._runs.findings()
        yield from self.take()
        segments = list(self._runs.rows())
        if segments:
            yield other_batch(segments, SEGMENT)

    def _turn_to(self, session: str | None) -> None:
        if session == self._session:
            return
        self._link()
        self._session, self._linked = session, {}

    def _link(self) -> None:
        if not self._spans:
            return
        verdict = link(self._spans, self._runs)
        self._spans = []
        self._linked = {(one.span["direction"], one.where): one for one in verdict.spans}
        self._found += verdict.findings
        self._tips += [
            {name: one.span.get(name) for name in SPAN_FIELDS}
            for one in verdict.spans
            if one.is_tip
        ]


def _groups(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield the bounds of groups of rows.

    A group is a journal's segments, a session's spans, or the pending events of one span.
    """
    if not batch.num_rows:
        return
    cut = _changes(batch, "journal") | _changes(batch, "session") | _changes(batch, "part")
    pending = pc.equal(batch.column("part"), PENDING).to_numpy(zero_copy_only=False)
    cut |= pending[1:] & (_changes(batch, "direction") | _changes(batch, "other"))
    yield from pairwise([0, *(np.flatnonzero(cut) + 1).tolist(), batch.num_rows])


def _changes(batch: pa.RecordBatch, name: str) -> Any:
    """Return which rows, except the first, differ from the previous row in a column."""
    numbers = batch.column(name).dictionary_encode().indices.fill_null(-1)
    values = numbers.to_numpy(zero_copy_only=False)
    return values[1:] != values[:-1]


_TOKEN_SIZE: Final = 16


def batch_token_row() -> pa.RecordBatch:
    """Return a row of part `made` with a new random token in `other`.

    The token identifies this version of a batch, because its number is reused if it is made again.
    """
    row = {"part": MADE, "other": random_bytes(_TOKEN_SIZE).hex(), "date": date(1970, 1, 1)}
    return pa.RecordBatch.from_pylist([row], WALKED_ARROW)
