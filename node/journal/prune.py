"""Removal of old segments from a directory of journals.

Each node's oldest segments are removed first, so that the remaining ones have no gap. A segment
being written stays. Torn ends are removed with their segments.
"""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from parley._node.journal.segments import (
    CLOSED,
    LOCK,
    SegmentFile,
    SegmentName,
    list_segments,
    list_torn,
    read_end,
    sync_directory,
)


class Pruned(NamedTuple):
    """A file that was or would be removed. `last` is the time when its segment ended, in ns."""

    path: Path
    name: SegmentName
    size: int
    last: int


class _Old(NamedTuple):
    """A segment and the bytes cut off its end, which are removed together."""

    last: int
    files: list[SegmentFile]


def prune(
    directory: str | Path,
    *,
    now: int,
    older_than: float | None = None,
    max_size: int | None = None,
    dry_run: bool = False,
) -> list[Pruned]:
    """Remove segments that ended more than `older_than` seconds before `now` (ns).

    Then removes the oldest segments until all journals together have at most `max_size` bytes.
    Returns the removed files, oldest first; with `dry_run`, the files that would be removed.

    The end of a segment is the time of its `segment end`, or else of its file. An open segment is
    removed only if its journal's lock is free; the lock is then held during the removal.

    Raises OSError. Files removed before an error stay removed.

    Example:

        import time
        from pathlib import Path
        from parley.journal import prune

        Path("journal").mkdir()
        for file in prune("journal", now=time.time_ns(), older_than=30 * 86_400, dry_run=True):
            print(file.path)
    """
    files = [*list_segments(directory), *list_torn(directory)]
    excess = 0 if max_size is None else sum(file.size for file in files) - max_size
    removed: list[Pruned] = []
    with ExitStack() as locks:
        queues = [
            _removable(Path(directory), [file for file in files if file.name.node == node], locks)
            for node in sorted({file.name.node for file in files})
        ]
        while waiting := [queue for queue in queues if queue]:
            queue = min(waiting, key=lambda queue: queue[0].last)
            oldest = queue[0]
            aged = older_than is not None and oldest.last < now - older_than * 1e9
            if not aged and excess <= 0:
                break
            queue.pop(0)
            for path, name, size in oldest.files:
                if not dry_run:
                    path.unlink(missing_ok=True)
                excess -= size
                removed.append(Pruned(path, name, size, oldest.last))
        if removed and not dry_run:
            sync_directory(Path(directory))
    return removed


def _removable(directory: Path, files: list[SegmentFile], locks: ExitStack) -> list[_Old]:
    """The removable files of one node, in order, up to the segment being written."""
    found: list[_Old] = []
    for stem in sorted({file.name.stem for file in files}):
        one = [file for file in files if file.name.stem == stem]  # The segment comes first.
        if one[0].is_live and not _locked(directory / (one[0].name.node + LOCK), locks):
            break
        # The last bytes of an open segment, or of a torn end, may have been chosen by a peer.
        record = read_end(one[0].path) if one[0].name.state == CLOSED else None
        found.append(_Old(record.time if record else one[0].path.stat().st_mtime_ns, one))
    return found


def _locked(path: Path, locks: ExitStack) -> bool:
    """Lock a journal until `locks` are closed; return False if it is locked already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    locks.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
