"""Summaries of the rows that a task produces, inserted among those rows."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from parley._pipeline.arrow_rows import summary_batch
from parley._pipeline.schema import EVENT, PENDING, SUMMARY, WAITING
from parley._pipeline.summary.facts import NEEDED, summary_of

# Limits on the rows and bytes buffered before they are summarised. A row takes some 500 bytes, or 8
# KiB with the longest topic and label.
MANY_ROWS: Final = 2**18
MANY_BYTES: Final = 2**27


def with_summaries(
    batches: Iterable[pa.RecordBatch], check_key: bytes | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an audit and, if there is a checksum key, summaries of their events.

    Events that no seal covers yet are counted as well: later batches only change their status.
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
    """Yield the batches of stitching, and summaries of the events whose final status they
    contain.
    """
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
    """A buffer of event columns that are not summarised yet."""

    def __init__(self, check_key: bytes = b"") -> None:
        self._check_key = check_key
        self._batches: list[tuple[pa.RecordBatch, bool, bool]] = []
        self._rows = self._size = 0

    @property
    def has_many(self) -> bool:
        """Return whether the buffer is large enough to be summarised."""
        return self._rows >= MANY_ROWS or self._size >= MANY_BYTES

    def add(self, batch: pa.RecordBatch, *, counted: bool, final: bool) -> None:
        """Add a batch; `counted` and `final` are whether its events are new and have their final
        status.
        """
        batch = batch.select(NEEDED)
        self._batches.append((batch, counted, final))
        self._rows += batch.num_rows
        self._size += batch.nbytes

    def take(self, part: str) -> Iterator[pa.RecordBatch]:
        """Yield the summary of the buffered events, if any, and empty the buffer."""
        if not self._batches:
            return
        first = self._batches[0][0].column("time")[0].value
        yield summary_batch(summary_of(self._batches, self._check_key), part, first)
        self._batches, self._rows, self._size = [], 0, 0
