"""The runs of one journal, as far as batches have told of their segments.

A run's numbers begin with the first segment that was read, since older ones may have been pruned;
a number that is missing behind that is missing. Nothing here knows tables or Spark.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from parley._node.journal.segments import CLOSED, SegmentName, parse_name


class Runs:
    """The runs of `journal` (a node id as text) by their start."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        self._firsts: dict[str, int] = {}
        self._blocks: dict[str, tuple[int, int]] = {}  # the last whole one: number and offset
        self._last = ""

    def add(self, run: str, number: int, first: int, block: Sequence[int] | None = None) -> None:
        """A segment of a run whose first segment is `first`, as far as is known.

        `block` are the number of a segment and the offset in it of a block of the run of which
        all checkpoints are there.
        """
        if block is not None:
            self._blocks[run] = max((block[0], block[1]), self._blocks.get(run, (0, 0)))
        self._numbers[run].add(number)
        self._last = max(self._last, run)
        self._firsts[run] = min(first, self._firsts.get(run, first))

    def is_over(self, segment: str) -> bool:
        """Whether a later run than that of a segment (its stem) has begun."""
        return _named(segment).start < self._last

    def goes_past(self, segment: str, offset: int) -> bool:
        """Whether the run goes on behind an offset of a segment: with a whole block, in which
        all sessions are that were open there."""
        name = _named(segment)
        return self._blocks.get(name.start, (-1, 0)) >= (name.number, offset)

    def is_whole_behind(self, segment: str) -> bool:
        """Whether no segment is missing between a segment and the run's last whole block."""
        name = _named(segment)
        last, _ = self._blocks.get(name.start, (name.number, 0))
        return all(one in self._numbers[name.start] for one in range(name.number + 1, last + 1))

    def begins_with(self, segment: str) -> bool:
        """Whether what was before a segment was pruned: it is the first of its run that there
        is, and not the run's first."""
        name = _named(segment)
        return 0 < name.number == self._firsts.get(name.start)

    def findings(self) -> Iterator[dict[str, Any]]:
        """What is missing between segments."""
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
        """For the next batch: each run's last number, as `segment_row` has them."""
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
    """The row of a segment (its stem) that a task found the beginning of, or a whole block in,
    whose offset is `block`."""
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
        raise ValueError(f"{segment} is not a segment's stem")
    return name
