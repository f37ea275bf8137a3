"""The thread that writes, syncs and closes segments, and the buffer from which it takes records.

A segment contains only complete records. After a failed write, a partial record is cut off and
nothing more is written.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from parley._node.journal import keys
from parley._node.journal.options import JournalOptions
from parley._node.journal.record_types import SegmentEnd
from parley._node.journal.records import encode_record
from parley._node.journal.segments import LIVE, SegmentName, scan_segment, sync_directory

logger = logging.getLogger("parley.journal")

# The most pieces per system call: at least 16 by POSIX, 1,024 on Linux and macOS.
AT_ONCE: Final = min(1024, max(16, os.sysconf("SC_IOV_MAX")))
# How long the writer gathers records, in seconds. Each time that it wakes, it takes the GIL from
# the loop, and one long write is cheaper than several short ones.
LINGER: Final = 0.01
# Items of at most this average size are joined before they are written, because a copy is then
# faster than another piece in the system call.
_SMALL: Final = 1024

_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)

NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class SegmentBoundary:
    """A mark between two records: a segment ends here, and `following` begins, if any.

    `blocks` are the offsets of the block records in the segment that ends. `parts` is the buffer's
    count when it ended.
    """

    blocks: tuple[int, ...]
    parts: int
    following: SegmentName | None


class RecordBuffer:
    """The records and positions that the loop's thread and the writer's thread share.

    Each attribute is set by one thread only, so that no event takes a lock. Appending to a list and
    deleting its head are atomic in CPython. The loop's thread sets `pending` (at its end),
    `appended`, `mark`, `on_mark_reached`, `parts`, `watched` and `sync_wanted`. The writer's thread
    sets `written`, `synced`, `items`, `segments`, `idle` and `failed`. Positions count the bytes of
    records since the beginning of the run.
    """

    def __init__(self) -> None:
        self.pending: list[bytes | SegmentBoundary] = []
        self.append: Callable[[bytes | SegmentBoundary], None] = self.pending.append
        self.appended = 0
        self.mark = NEVER
        self.parts = 0  # How many items of `pending` so far were a record's second part.
        self.on_mark_reached: Callable[[], None] = _nothing
        self.watched = False  # Whether the loop is notified of the writer's progress.
        self.sync_wanted = 0
        self.written = 0  # Passed to the operating system.
        self.synced = 0  # On the disk.
        self.items = 0
        self.segments = 0
        self.idle = False  # Whether the writer sleeps until it is woken.
        self.failed: OSError | None = None
        self._wakes: SimpleQueue[None] = SimpleQueue()

    @property
    def records(self) -> int:
        """The approximate number of records written."""
        return max(0, self.items - self.parts)

    @property
    def waiting(self) -> int:
        return max(0, self.appended - self.written)

    def put(self, record: bytes) -> None:
        """Append a record and wake the writer. `SessionLog.event` inlines this."""
        self.append(record)
        self.appended += len(record)
        if self.idle:
            self.wake()

    def close(self) -> None:
        self.append = _ignore

    def wake(self) -> None:
        """Wake the writer, from the loop's thread."""
        self.idle = False
        self._wakes.put(None)

    def sleep(self, timeout: float | None) -> None:
        """Wait for `wake` in the writer's thread, for at most `timeout` seconds."""
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return


def _ignore(record: bytes | SegmentBoundary) -> None:
    return


def _nothing() -> None:
    return


class SegmentWriter:
    """The thread of one run and the segment that it writes.

    `on_progress` and `on_failed` are called in this thread.
    """

    def __init__(
        self,
        buffer: RecordBuffer,
        settings: JournalOptions,
        on_progress: Callable[[], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._buffer = buffer
        self._directory = settings.directory
        self._clock = settings.clock
        self._fsync = settings.fsync
        self._interval = settings.fsync_interval
        self._on_progress = on_progress
        self._on_failed = on_failed
        self._file = -1
        self._path = settings.directory
        self._count = 0  # The number of items in the segment.
        self._parts = 0  # The buffer's `parts` when the segment began.
        self._ended = False
        self._synced_at = 0.0
        self._worker = Thread(target=self._run, name="parley journal", daemon=True)

    def start(self, first: SegmentName) -> None:
        """Create the first segment and start the thread; raises OSError."""
        self._open_segment(first)
        self._worker.start()

    def join(self, timeout: float) -> bool:
        """Wait until the last segment is closed; return False on timeout."""
        self._worker.join(timeout)
        return not self._worker.is_alive()

    def _run(self) -> None:
        try:
            self._work()
        except OSError as error:
            self._failed(error)
        except Exception as bug:
            logger.exception("internal error of the journal", extra={"event": "journal.bug"})
            self._failed(OSError(f"internal error: {bug!r}"))

    def _work(self) -> None:
        buffer, pending = self._buffer, self._buffer.pending
        while not self._ended:
            items = pending[:AT_ONCE]
            if items:
                del pending[: len(items)]
                self._write_items(items)
            synced = self._sync_is_due()
            if synced:
                self._sync()
            if buffer.watched and (items or synced):
                self._on_progress()
            if len(items) == AT_ONCE or self._ended:
                continue
            if items and self._fsync != "always":
                buffer.sleep(LINGER)  # Ends early if the writer is woken.
                continue
            buffer.idle = True
            if not pending and buffer.sync_wanted <= buffer.synced:
                buffer.sleep(self._until_sync())
            buffer.idle = False

    def _write_items(self, items: list[bytes | SegmentBoundary]) -> None:
        # Boundaries are rare, so they are searched for only if there is one.
        try:
            self._write(items)  # type: ignore[arg-type] # a boundary has no length
        except TypeError:
            records: list[bytes] = []
            for item in items:
                if isinstance(item, SegmentBoundary):
                    self._write(records)
                    records = []
                    self._rotate(item)
                else:
                    records.append(item)
            self._write(records)

    def _write(self, records: Sequence[bytes]) -> None:
        count = len(records)
        pieces = self._join_records(records)
        size = sum(map(len, pieces))
        if not size:
            return
        try:
            done = os.writev(self._file, pieces)
            if done < size:
                self._write_rest(pieces, done)
        except OSError:
            self._truncate()
            raise
        self._count += count
        buffer = self._buffer
        buffer.items += count
        buffer.written += size

    def _join_records(self, records: Sequence[bytes]) -> Sequence[bytes]:
        # The size is estimated from the whole buffer, because adding up the lengths would cost half
        # of the gain.
        buffer = self._buffer
        small = buffer.waiting <= _SMALL * (len(records) + len(buffer.pending))
        return (b"".join(records),) if small else records

    def _write_rest(self, pieces: Sequence[bytes], done: int) -> None:
        """Write the remaining bytes: a full disk accepts a part and fails at the next call."""
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _truncate(self) -> None:
        """Cut off a partial record after a failed write."""
        try:
            os.ftruncate(self._file, scan_segment(self._path).end)
        except OSError:
            logger.exception(
                "cannot cut off a partial record at the end of the journal's segment",
                extra={"event": "journal.torn"},
            )

    def _rotate(self, boundary: SegmentBoundary) -> None:
        self._close_segment(boundary)
        if boundary.following is None:
            self._ended = True
        else:
            self._open_segment(boundary.following)

    def _open_segment(self, name: SegmentName) -> None:
        self._path = self._directory / str(name._replace(state=LIVE))
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._count = 0
        self._buffer.segments += 1
        self._sync_directory()

    def _close_segment(self, boundary: SegmentBoundary) -> None:
        body = SegmentEnd(self._count - (boundary.parts - self._parts), boundary.blocks).encode()
        self._parts = boundary.parts
        written = self._buffer.written
        self._write([encode_record(keys.SEGMENT_END, self._clock(), body)])
        self._buffer.written = written  # Positions count the bytes that the loop's thread appended.
        if self._fsync != "never":
            self._sync()
        os.close(self._file)
        self._file = -1
        self._path.rename(self._path.with_suffix(""))
        self._sync_directory()

    def _sync_is_due(self) -> bool:
        buffer = self._buffer
        if buffer.synced >= buffer.written:
            return False
        if self._fsync == "always" or buffer.sync_wanted > buffer.synced:
            return True
        return self._fsync == "interval" and self._until_sync() == 0

    def _until_sync(self) -> float | None:
        """Return the seconds until the next sync is due, or None if there is nothing to sync."""
        if self._fsync == "never" or self._buffer.synced >= self._buffer.written:
            return None
        return max(0.0, self._synced_at + self._interval - _now())

    def _sync(self) -> None:
        written = self._buffer.written
        if self._file >= 0:
            _sync_data(self._file)
        self._synced_at = _now()
        self._buffer.synced = written

    def _sync_directory(self) -> None:
        if self._fsync != "never":
            sync_directory(self._directory)

    def _failed(self, error: OSError) -> None:
        buffer = self._buffer
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        buffer.failed = error
        self._on_failed()


def _now() -> float:
    # The loop's clock belongs to another thread.
    return time.monotonic()  # noqa: TID251 - see above
