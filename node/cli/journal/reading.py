"""Going through journals from the command line: which segments, and a bar for people.

One rule: memory is bounded however long a journal is; what is looked for in the records is
the caller's concern.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from node.errors import ConfigError, FileError
from node.journal.records import Record
from node.journal.segments import RecordRange, SegmentFile, list_segments, plan_ranges, read_range

SHORTEST_ID: Final = 4  # characters of a node id that may stand for all of it
_STEP: Final = 1 << 20  # bytes between two moves of the bar


def find_segments(directory: Path, node: str | None) -> dict[str, list[SegmentFile]]:
    """The segments in a directory, node id to its own in their order.

    Raises:
        FileError: there are none. ConfigError: `node` fits none or several. OSError.
    """
    found = {
        text: list(segments)
        for text, segments in groupby(list_segments(directory), key=lambda each: each.name.node)
    }
    if not found:
        raise FileError(f"there is no journal in {directory}")
    if node is None:
        return found
    fitting = [text for text in found if text.startswith(node)]
    if len(node) < SHORTEST_ID or len(fitting) != 1:
        which = "no" if not fitting else "more than one, or too short for one,"
        raise ConfigError(f"--node {node} fits {which} node id with a journal in {directory}")
    return {fitting[0]: found[fitting[0]]}


class Bar:
    """How far a command is, on standard error, if that is a terminal."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While it lasts, the bar moves."""
        with self._progress:
            yield

    def about(self, text: str) -> None:
        """What is being read."""
        self._progress.update(self._task, description=text)

    def advance(self, size: int) -> None:
        """So many bytes more are read."""
        self._progress.advance(self._task, size)


def read_segment(segment: SegmentFile, bar: Bar) -> Iterator[Record]:
    """All records of a segment; of a live one those that are wholly there. Raises OSError."""
    waiting = done = 0
    for part in plan_ranges(segment.path, segment.size) or [RecordRange(0, 0, 0, ())]:
        for record in read_range(segment.path, part.start, part.end, part.blocks):
            yield record
            waiting += record.size
            if waiting >= _STEP:
                bar.advance(waiting)
                done, waiting = done + waiting, 0
    bar.advance(segment.size - done)
