"""What the loop's thread and the writer's share: one list of records and a few positions.

Each value is set by one thread only, so that no event takes a lock; appending to a
list and cutting off its head are atomic under the interpreter's own. Positions count the bytes
of records from the beginning of the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from parley._node.journal.names import SegmentName

NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Turn:
    """A mark between two records: the segment ends here, and `following` begins, if any.

    `blocks` are the offsets of the block records of the one that ends, `parts` what the
    buffer's were when it ended.
    """

    blocks: tuple[int, ...]
    parts: int
    following: SegmentName | None


class RecordBuffer:
    """The loop's thread sets `pending` (at its end), `appended`, `mark` and `passed` (which is
    called once `appended` reaches `mark`), `parts`, `watched` and `sync_wanted`; the writer's sets
    `written`, `synced`, `items`, `segments`, `idle` and `failed`."""

    __slots__ = (
        "_wakes",
        "append",
        "appended",
        "failed",
        "idle",
        "items",
        "mark",
        "parts",
        "passed",
        "pending",
        "segments",
        "sync_wanted",
        "synced",
        "watched",
        "written",
    )

    def __init__(self) -> None:
        self.pending: list[bytes | Turn] = []
        self.append: Callable[[bytes | Turn], None] = self.pending.append
        self.appended = 0
        self.mark = NEVER
        self.parts = 0  # how many items of `pending` so far were a record's second part
        self.passed: Callable[[], None] = _nothing
        self.watched = False  # the loop wants to hear of the writer's progress
        self.sync_wanted = 0
        self.written = 0  # handed to the operating system
        self.synced = 0  # on the disk, as the operating system says
        self.items = 0
        self.segments = 0
        self.idle = False  # the writer sleeps until it is woken
        self.failed: OSError | None = None
        self._wakes: SimpleQueue[None] = SimpleQueue()

    @property
    def records(self) -> int:
        """About how many records are written."""
        return max(0, self.items - self.parts)

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return max(0, self.appended - self.written)

    def put(self, record: bytes) -> None:
        """Append a record and wake the writer; `SessionLog.event` has the same by hand."""
        self.append(record)
        self.appended += len(record)
        if self.idle:
            self.wake()

    def close(self) -> None:
        """Discard what is appended from now on."""
        self.append = _ignore

    def wake(self) -> None:
        """Wake the writer: from the loop's thread."""
        self.idle = False
        self._wakes.put(None)

    def sleep(self, timeout: float | None) -> None:
        """Wait until `wake`, at most `timeout` seconds: from the writer's thread."""
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return


def _ignore(record: bytes | Turn) -> None:
    return


def _nothing() -> None:
    return
