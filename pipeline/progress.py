"""How far a stream has read the segments of journals: an offset of Spark's, as JSON.

A segment is known by its stem, whatever its file is called at the time. It is done, read up to some
record, or not begun. Segments that are done are kept as ranges of their numbers, so that an offset
grows with the runs of nodes and not with their segments.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parley._node.journal.segments import SegmentName


class Position(NamedTuple):
    """Up to where a segment was read, and the offset of the block that is in."""

    offset: int = 0
    block: int = 0


@dataclass(slots=True)
class _Run:
    """What was read of the segments of one run of a node's journal."""

    done: list[tuple[int, int]] = field(default_factory=list)  # first and last, rising, apart
    at: dict[int, Position] = field(default_factory=dict)


class Progress:
    """What was read; `advance` and `finish` go on from there."""

    __slots__ = ("_foreign", "_runs")

    def __init__(self, offset: dict[str, Any] | None = None) -> None:
        """From what `as_offset` gave; nothing read yet without."""
        offset = offset or {}
        self._runs = {
            name: _Run(
                [(first, last) for first, last in run["done"]],
                {int(number): Position(*at) for number, at in run["at"].items()},
            )
            for name, run in offset.get("runs", {}).items()
        }
        self._foreign: dict[str, None] = dict.fromkeys(offset.get("foreign", []))

    def as_offset(self) -> dict[str, Any]:
        """For Spark: only maps, lists, texts and numbers."""
        return {
            "runs": {
                name: {
                    "done": [list(range_) for range_ in run.done],
                    "at": {str(number): list(at) for number, at in sorted(run.at.items())},
                }
                for name, run in sorted(self._runs.items())
            },
            "foreign": sorted(self._foreign),
        }

    def is_done(self, name: SegmentName) -> bool:
        """Whether a segment was closed and read to its end."""
        run = self._runs.get(_run_name(name))
        return run is not None and any(first <= name.number <= last for first, last in run.done)

    def position(self, name: SegmentName) -> Position:
        """Up to where a segment that is not done was read."""
        run = self._runs.get(_run_name(name))
        return Position() if run is None else run.at.get(name.number, Position())

    def advance(self, name: SegmentName, position: Position) -> None:
        """A segment was read further, and will be read on."""
        self._runs.setdefault(_run_name(name), _Run()).at[name.number] = position

    def finish(self, name: SegmentName) -> None:
        """A segment was read to its end."""
        run = self._runs.setdefault(_run_name(name), _Run())
        run.at.pop(name.number, None)
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*run.done, (name.number, name.number)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        run.done = joined

    def since(self, start: "Progress") -> list[tuple[SegmentName, Position, Position | None]]:
        """The segments read since `start`, in order: from where, up to where (None: the end)."""
        read: list[tuple[SegmentName, Position, Position | None]] = []
        for run_name, run in sorted(self._runs.items()):
            ends: dict[int, Position | None] = dict(run.at)
            ends.update((n, None) for first, last in run.done for n in range(first, last + 1))
            node, _, run_start = run_name.partition("-")
            for number, end in sorted(ends.items()):
                name = SegmentName(node, run_start, number)
                before = start.position(name)
                if end != before and not start.is_done(name):
                    read.append((name, before, end))
        return read

    @property
    def foreign(self) -> tuple[str, ...]:
        """Files that are not segments and were reported."""
        return tuple(self._foreign)

    def add_foreign(self, name: str) -> None:
        """A file that is not a segment was reported."""
        self._foreign[name] = None


def _run_name(name: SegmentName) -> str:
    return f"{name.node}-{name.start}"
