"""The writer's thread: takes records from the buffer, writes and syncs segments.

A segment has complete records only. After a write that failed, the part of a record
that it left is cut off, and nothing is written after it.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Final

from parley._node.journal import keys
from parley._node.journal.bodies import SegmentEnd
from parley._node.journal.buffer import RecordBuffer, Turn
from parley._node.journal.names import LIVE, SegmentName
from parley._node.journal.options import JournalOptions
from parley._node.journal.records import encode_record
from parley._node.journal.segments import walk_heads

logger = logging.getLogger("parley.journal")

# How many pieces one system call takes: at least 16 by POSIX, 1,024 on Linux and macOS.
AT_ONCE: Final = min(1024, max(16, os.sysconf("SC_IOV_MAX")))
# Seconds for which the writer lets records gather: each time it wakes it takes the interpreter
# from the loop, and one long write costs the system less than several short ones.
LINGER: Final = 0.01
# Items of at most so many bytes, on average, are joined before they are written: below that a
# copy takes less time than another piece in the system call.
_SMALL: Final = 1024

_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class Writer:
    """The thread of one run, and the segment that it writes.

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
        self._count = 0  # of items in the segment
        self._parts = 0  # the buffer's, when the segment began
        self._ended = False
        self._synced_at = 0.0
        self._thread = Thread(target=self._run, name="parley journal", daemon=True)

    def start(self, first: SegmentName) -> None:
        """Create the first segment and start the thread; raises OSError."""
        self._open(first)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until the last segment is closed; returns whether it is."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # The thread.

    def _run(self) -> None:
        try:
            self._work()
        except OSError as error:
            self._failed(error)
        except Exception as error:
            logger.exception("internal error of the journal", extra={"event": "journal.bug"})
            self._failed(OSError(f"internal error: {error!r}"))

    def _work(self) -> None:
        buffer, pending = self._buffer, self._buffer.pending
        while not self._ended:
            items = pending[:AT_ONCE]
            if items:
                del pending[: len(items)]
                self._take(items)
            synced = self._sync_is_due()
            if synced:
                self._sync()
            if buffer.watched and (items or synced):
                self._on_progress()
            if len(items) == AT_ONCE or self._ended:
                continue
            if items and self._fsync != "always":
                buffer.sleep(LINGER)  # less if it is woken
                continue
            buffer.idle = True
            if not pending and buffer.sync_wanted <= buffer.synced:
                buffer.sleep(self._until_sync())
            buffer.idle = False

    def _take(self, items: "list[bytes | Turn]") -> None:
        # Turns are rare: they are looked for only if there is one.
        try:
            self._write(items)  # type: ignore[arg-type] # a Turn has no length
        except TypeError:
            records: list[bytes] = []
            for item in items:
                if isinstance(item, Turn):
                    self._write(records)
                    records = []
                    self._turn(item)
                else:
                    records.append(item)
            self._write(records)

    def _write(self, records: Sequence[bytes]) -> None:
        count = len(records)
        pieces = self._joined(records)
        size = sum(map(len, pieces))
        if not size:
            return
        try:
            done = os.writev(self._file, pieces)
            if done < size:
                self._write_rest(pieces, done)
        except OSError:
            self._cut()
            raise
        self._count += count
        buffer = self._buffer
        buffer.items += count
        buffer.written += size

    def _joined(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """The records, in one piece if they are small."""
        # Judged by all that waits: adding up their lengths would cost half of the gain.
        buffer = self._buffer
        small = buffer.waiting <= _SMALL * (len(records) + len(buffer.pending))
        return (b"".join(records),) if small else records

    def _write_rest(self, pieces: Sequence[bytes], done: int) -> None:
        """Write what is left: a full disk takes a part, and fails only at the next call."""
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _cut(self) -> None:
        """After a write that failed: leave complete records only, if the system lets us."""
        try:
            os.ftruncate(self._file, walk_heads(self._path).end)
        except OSError:
            logger.exception(
                "the journal's segment may end in part of a record", extra={"event": "journal.torn"}
            )

    # Segments.

    def _turn(self, turn: Turn) -> None:
        self._close(turn)
        if turn.following is None:
            self._ended = True
        else:
            self._open(turn.following)

    def _open(self, name: SegmentName) -> None:
        self._path = self._directory / str(name._replace(state=LIVE))
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._count = 0
        self._buffer.segments += 1
        self._sync_directory()

    def _close(self, turn: Turn) -> None:
        body = SegmentEnd(self._count - (turn.parts - self._parts), turn.blocks).encode()
        self._parts = turn.parts
        written = self._buffer.written
        self._write([encode_record(keys.SEGMENT_END, self._clock(), body)])
        self._buffer.written = written  # positions count what the loop's thread appended
        if self._fsync != "never":
            self._sync()
        os.close(self._file)
        self._file = -1
        self._path.rename(self._path.with_suffix(""))
        self._sync_directory()

    # Syncing.

    def _sync_is_due(self) -> bool:
        buffer = self._buffer
        if buffer.synced >= buffer.written:
            return False
        if self._fsync == "always" or buffer.sync_wanted > buffer.synced:
            return True
        return self._fsync == "interval" and self._until_sync() == 0

    def _until_sync(self) -> float | None:
        """Seconds until what is written has to be synced; None if nothing has."""
        if self._fsync == "never" or self._buffer.synced >= self._buffer.written:
            return None
        return max(0.0, self._synced_at + self._interval - _monotonic())

    def _sync(self) -> None:
        written = self._buffer.written
        if self._file >= 0:
            _sync_data(self._file)
        self._synced_at = _monotonic()
        self._buffer.synced = written

    def _sync_directory(self) -> None:
        """Sync the directory: a new name, too, is on the disk only then."""
        if self._fsync == "never":
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # Failure.

    def _failed(self, error: OSError) -> None:
        """Write nothing more."""
        buffer = self._buffer
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        buffer.failed = error
        self._on_failed()


def _monotonic() -> float:
    # The loop's time cannot be asked for in another thread.
    return time.monotonic()  # noqa: TID251 - see above
