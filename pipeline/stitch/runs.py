"""The runs of one journal, according to the segments that batches have reported.

A run's numbers begin with the first segment that was read, since older segments may have been
pruned. A later gap is a missing segment. This module uses neither tables nor Spark.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from parley._node.journal.segments import CLOSED, SegmentName, parse_name


class Runs:
    """The runs of `journal` (a node ID as text), keyed by their start time."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        self._firsts: dict[str, int] = {}
        self._blocks: dict[str, tuple[int, int]] = {}  # the last whole block: number and offset
        self._last = ""

    def add(self, run: str, number: int, first: int, block: Sequence[int] | None = None) -> None:
        """Add a segment of a run whose first known segment is `first`.

        `block` is the segment number and offset of a complete block of the run.
        """
        if block is not None:
            self._blocks[run] = max((block[0], block[1]), self._blocks.get(run, (0, 0)))
        self._numbers[run].add(number)
        self._last = max(self._last, run)
        self._firsts[run] = min(first, self._firsts.get(run, first))

    def is_over(self, segment: str) -> bool:
        """Return whether a run has begun after the run of this segment (its stem)."""
        return _named(segment).start < self._last

    def goes_past(self, segment: str, offset: int) -> bool:
        """Return whether the run has a complete block after this offset in the segment."""
        name = _named(segment)
        return self._blocks.get(name.start, (-1, 0)) >= (name.number, offset)

    def is_whole_behind(self, segment: str) -> bool:
        """Return whether all segments between this one and the run's last complete block exist."""
        name = _named(segment)
        last, _ = self._blocks.get(name.start, (name.number, 0))
        return all(one in self._numbers[name.start] for one in range(name.number + 1, last + 1))

    def begins_with(self, segment: str) -> bool:
        """Return whether this is the first existing segment but not number 0: earlier ones were
        pruned.
        """
        name = _named(segment)
        return 0 < name.number == self._firsts.get(name.start)

    def findings(self) -> Iterator[dict[str, Any]]:
        for run, numbers in sorted(self._numbers.items()):
            for before, number in pairwise(sorted(numbers)):
                if number - before > 1:
                    yield {
                        "kind": "missing-segment",
                        "journal": self._journal,
                        "segment": SegmentName(self._journal, run, number).stem,
                        "session": None,
                        "direction": None,
                        "place": None,
                        "time_ns": None,
                        "offset": 0,
                        "count": number - before - 1,
                        "evidence": f"{number - before - 1} segments are missing before this one",
                    }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row with each run's last number for the next batch, as `segment_row` does."""
        for run, numbers in sorted(self._numbers.items()):
            last = max(numbers)
            yield {
                "journal": self._journal,
                "segment": SegmentName(self._journal, run, last).stem,
                "run": run,
                "number": last,
                "first": self._firsts[run],
                "block": self._blocks.get(run),
            }


def segment_row(segment: str, block: int | None = None) -> dict[str, Any]:
    """Return the row of a segment (its stem) whose start, or a complete block at `block`, was
    read.
    """
    name = _named(segment)
    return {
        "journal": name.node,
        "segment": segment,
        "run": name.start,
        "number": name.number,
        "first": name.number,
        "block": None if block is None else (name.number, block),
    }


@lru_cache(1_024)
def _named(segment: str) -> SegmentName:
    name = parse_name(segment + CLOSED)
    if name is None:
        raise ValueError(f"invalid stem of a segment {segment!r}")
    return name
