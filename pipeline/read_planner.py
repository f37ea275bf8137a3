"""The input of a read of journals: the files, the progress in each, and the next ranges.

The rows between two offsets of a stream are always the same, even if a segment was renamed or a run
was killed in between. This module is independent of Spark.
"""

from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

from parley._node.journal.segments import (
    CLOSED,
    LIVE,
    RecordRange,
    SegmentFile,
    SegmentName,
    list_segments,
    parse_name,
    plan_ranges,
)
from parley._pipeline.errors import PipelineError
from parley._pipeline.segment_reader import SegmentRange


class Position(NamedTuple):
    """The offset up to which a segment was read, and the offset of the block before it."""

    offset: int = 0
    block: int = 0


@dataclass(slots=True)
class _Run:
    """The segments that were read in one run of a node's journal."""

    done: list[tuple[int, int]] = field(default_factory=list)  # ascending, disjoint
    at: dict[int, Position] = field(default_factory=dict)


class Progress:
    """A stream's progress in the segments of journals; also its offset in Spark, as JSON.

    A segment, identified by its stem, is done, read up to some record, or not started. Completed
    segments are stored as ranges of numbers, so an offset's size depends on the number of runs, not
    of segments.
    """

    def __init__(self, offset: dict[str, Any] | None = None) -> None:
        """Continue from the value that `as_offset` returned."""
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
        run = self._runs.get(_run_name(name))
        return Position() if run is None else run.at.get(name.number, Position())

    def advance(self, name: SegmentName, position: Position) -> None:
        self._runs.setdefault(_run_name(name), _Run()).at[name.number] = position

    def finish(self, name: SegmentName) -> None:
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
        """Return the segments read since `start` in order: their start and end offsets (None: the
        end).
        """
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
        return tuple(self._foreign)

    def add_foreign(self, name: str) -> None:
        self._foreign[name] = None


def _run_name(name: SegmentName) -> str:
    return f"{name.node}-{name.start}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of journals at one moment; `foreign` files only have the names of segments."""

    directory: str
    segments: tuple[SegmentFile, ...]
    foreign: tuple[str, ...]

    @classmethod
    def of(cls, path: str) -> "Listing":
        """List the files of one directory, or of all directories that match a pattern.

        If a segment is in several directories, a closed copy is preferred, then the longer one.

        Raises:
            PipelineError: There is no such directory.
        """
        directories = sorted(glob(path)) if has_magic(path) else [path]
        found: dict[str, SegmentFile] = {}
        foreign: set[str] = set()
        try:
            for directory in directories:
                if not Path(directory).is_dir() and has_magic(path):
                    continue
                for file in list_segments(directory):
                    known = found.get(file.name.stem)
                    if known is None or _rank(file) > _rank(known):
                        found[file.name.stem] = file
                foreign.update(_foreign_names(directory))
        except OSError as error:
            raise PipelineError(f"cannot list the journals in {path!r}: {error}") from error
        segments = tuple(found[stem] for stem in sorted(found))
        return cls(directories[0] if directories else path, segments, tuple(sorted(foreign)))


class Budget:
    """The remaining capacity of a batch; the first range is always accepted."""

    def __init__(self, max_bytes: int | None = None, max_files: int | None = None) -> None:
        self._bytes = max_bytes
        self._files = max_files

    @property
    def is_spent(self) -> bool:
        return (self._bytes is not None and self._bytes <= 0) or self._files == 0

    def take(self, size: int) -> None:
        if self._bytes is not None:
            self._bytes -= size

    def take_file(self) -> None:
        if self._files is not None:
            self._files -= 1


def whole_ranges(file: SegmentFile, target: int) -> list[SegmentRange]:
    """Return the whole current content of a segment, including the torn end of a live segment."""
    try:
        ranges = plan_ranges(file.path, file.size, target=target)
    except OSError:
        ranges = [RecordRange(0, file.size, 0, ())]  # the reading task reports the reason
    if file.is_live and file.size:
        last = ranges.pop() if ranges else RecordRange(0, 0, 0, ())
        ranges.append(last._replace(end=file.size))
    if not ranges and not file.is_live:
        ranges = [RecordRange(0, 0, 0, ())]  # even the first record is incomplete; a row reports it
    path = str(file.path)
    return [SegmentRange(path, file.name, range_, file.is_live) for range_ in ranges]


def read_on(file: SegmentFile, progress: Progress, budget: Budget, target: int) -> None:
    """Advance `progress` over the new part of a segment, within the budget."""
    name = file.name
    if progress.is_done(name):
        return
    position = progress.position(name)
    try:
        ranges = plan_ranges(file.path, file.size, position.offset, position.block, target)
    except OSError:
        if not file.is_live:
            progress.finish(name)  # reported when it is read
            budget.take_file()
        return
    for range_ in ranges:
        if budget.is_spent:
            # All ranges except the first start at a block.
            progress.advance(name, Position(range_.start, range_.block))
            break
        budget.take(range_.end - range_.start)
    else:
        if not file.is_live:
            progress.finish(name)
        elif ranges:
            last = ranges[-1]
            block = last.blocks[-1] if last.blocks else last.block
            progress.advance(name, Position(last.end, block))
    if ranges:
        budget.take_file()


def ranges_between(
    before: Progress, after: Progress, listing: Listing, target: int
) -> list[SegmentRange]:
    """Return the ranges that were read between two offsets."""
    files = {file.name.stem: file for file in listing.segments}
    parts: list[SegmentRange] = []
    for name, start, end in after.since(before):
        file = files.get(name.stem)
        if file is None:
            # The file has been deleted since: reading it produces a row that reports this.
            path = str(Path(listing.directory) / str(name))
            until = start.offset if end is None else end.offset
            parts.append(
                SegmentRange(path, name, RecordRange(start.offset, until, start.offset, ()))
            )
            continue
        size = file.size if end is None else end.offset
        try:
            ranges = plan_ranges(file.path, size, start.offset, start.block, target)
        except OSError:
            ranges = [RecordRange(start.offset, size, start.offset, ())]
        if not ranges and (size < start.offset or size == 0):
            ranges = [RecordRange(start.offset, size, start.offset, ())]  # truncated
        parts += [SegmentRange(str(file.path), name, range_) for range_ in ranges]
    return parts


def _rank(file: SegmentFile) -> tuple[bool, int]:
    return not file.is_live, file.size


def _foreign_names(directory: str) -> list[str]:
    return [
        path.name
        for path in Path(directory).iterdir()
        if path.name.endswith((CLOSED, LIVE)) and parse_name(path) is None and path.is_file()
    ]
