"""Rows of bronze for an audit: an Arrow batch's columns as lists, split into runs of events.

Checks that apply to whole columns run in C.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parley._node.journal.keys import EVENT
from parley._node.journal.records import OK, Record

# The columns of bronze that an audit reads.
NEEDED: Final = (
    "segment",
    "offset",
    "size",
    "kind",
    "time_ns",
    "body",
    "range_start",
    "status",
    "lead",
)


class BronzeRows:
    """A batch of rows with the columns of `NEEDED` as lists.

    `whole` is true for each row that is an undamaged record of an event. A missing time is 0.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name) for name in NEEDED}
        offsets, sizes = (_numbers(columns[name]) for name in ("offset", "size"))
        self.offsets: list[int] = offsets.tolist()
        self.sizes: list[int] = sizes.tolist()
        self.starts: list[int] = _numbers(columns["range_start"]).tolist()
        leads = columns["lead"].fill_null(False).to_numpy(zero_copy_only=False)
        self.leads: list[bool] = leads.tolist()
        self.segments = _texts(columns["segment"])
        self.bodies: list[bytes] = columns["body"].to_pylist()
        self._statuses = _texts(columns["status"])
        kinds, times = _numbers(columns["kind"]), _numbers(columns["time_ns"])
        self._kinds: list[int] = kinds.tolist()
        self.times: list[int] = times.tolist()
        undamaged = pc.equal(columns["status"], OK).fill_null(False)
        whole = (kinds == EVENT) & (times != 0) & undamaged.to_numpy(zero_copy_only=False)
        self.whole: list[bool] = whole.tolist()
        follows = (offsets[1:] == offsets[:-1] + sizes[:-1]) & (leads[1:] == leads[:-1])
        if not _is_one(columns["segment"]):
            same = pc.equal(columns["segment"][1:], columns["segment"][:-1]).fill_null(False)
            follows &= same.to_numpy(zero_copy_only=False)
        self.cuts: list[int] = [0, *(np.flatnonzero(~(whole[1:] & follows)) + 1).tolist()]

    def __len__(self) -> int:
        return len(self.offsets)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive rows.

        All rows of a run but the first are whole events, and each begins where the previous row
        ends.
        """
        return pairwise([*self.cuts, len(self)])

    def status(self, at: int) -> str | None:
        return self._statuses[at]

    def record(self, at: int) -> Record:
        return Record(
            self.offsets[at],
            self.sizes[at],
            self._kinds[at],
            self.times[at],
            self.bodies[at],
            self._statuses[at],
        )


def _numbers(column: pa.Array) -> Any:
    return column.fill_null(0).to_numpy(zero_copy_only=False)


def _is_one(column: pa.Array) -> bool:
    """Return whether all values of a column are equal."""
    if not len(column) or column.null_count:
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _texts(column: pa.Array) -> Sequence[str]:
    """Return a column of strings, converting a single value if all are equal, as is usual."""
    if _is_one(column):
        return [column[0].as_py()] * len(column)
    texts: list[str] = column.to_pylist()
    return texts
