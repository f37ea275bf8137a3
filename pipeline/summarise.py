"""Summaries of the rows that a task gives out, as rows among them."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from parley._pipeline.arrow_rows import summary_batch
from parley._pipeline.schema import EVENT, PENDING, SUMMARY, WAITING
from parley._pipeline.summary.facts import NEEDED, summary_of

# Rows of which columns are held until they are summed up, and their bytes: each has some 500, and
# with the longest topic and label 8 KiB.
MANY_ROWS: Final = 2**18
MANY_BYTES: Final = 2**27


def with_summaries(
    batches: Iterable[pa.RecordBatch], check_key: bytes | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a walk, and what they sum up to unless there is no key of checksums.

    Events that no seal has vouched for yet are counted too: what is said of them later is only
    their status.
    """
    held = EventGroup(check_key or b"")
    for batch in batches:
        part = batch.column("part")[0].as_py() if batch.num_rows else None
        if check_key is not None and part in (EVENT, PENDING):
            held.add(batch, counted=True, final=part == EVENT)
        yield batch
        if held.has_many:
            yield from held.take(SUMMARY)
    yield from held.take(SUMMARY)


def append_summaries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of stitching, and summaries of what they say of events that were counted."""
    final, waiting = EventGroup(), EventGroup()
    for batch in batches:
        part = batch.column("part")[0].as_py() if batch.num_rows else None
        if part == EVENT:
            final.add(batch, counted=False, final=True)
        elif part == PENDING:
            status = batch.schema.get_field_index("status")
            unsealed = pa.repeat("unsealed", batch.num_rows)
            waiting.add(batch.set_column(status, "status", unsealed), counted=False, final=True)
        yield batch
        for held, name in ((final, SUMMARY), (waiting, WAITING)):
            if held.has_many:
                yield from held.take(name)
    yield from final.take(SUMMARY)
    yield from waiting.take(WAITING)


class EventGroup:
    """Columns of events that are not summed up yet."""

    def __init__(self, check_key: bytes = b"") -> None:
        self._check_key = check_key
        self._batches: list[tuple[pa.RecordBatch, bool, bool]] = []
        self._rows = self._size = 0

    @property
    def has_many(self) -> bool:
        """Whether it is time to take them."""
        return self._rows >= MANY_ROWS or self._size >= MANY_BYTES

    def add(self, batch: pa.RecordBatch, *, counted: bool, final: bool) -> None:
        """Hold the rows of a batch: whether they are counted now, and have their last status."""
        batch = batch.select(NEEDED)
        self._batches.append((batch, counted, final))
        self._rows += batch.num_rows
        self._size += batch.nbytes

    def take(self, part: str) -> Iterator[pa.RecordBatch]:
        """Their summary, if there are any."""
        if not self._batches:
            return
        first = self._batches[0][0].column("time")[0].value
        yield summary_batch(summary_of(self._batches, self._check_key), part, first)
        self._batches, self._rows, self._size = [], 0, 0
