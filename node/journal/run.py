"""One run of a journal, from the time a node begins to write it until the node closes.

Blocking work runs in other threads (`prepare`, the writer); everything else runs in the loop's
thread.
"""

import fcntl
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.journal.errors import JournalBusyError, JournalFailedError
from parley._node.journal.options import JournalOptions
from parley._node.journal.record_log import RecordLog
from parley._node.journal.record_types import SegmentHead
from parley._node.journal.recovery import Recovered, recover_left
from parley._node.journal.segment_writer import NEVER, RecordBuffer, SegmentWriter
from parley._node.journal.segments import lock_name, parse_name, run_start
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Waiter
from parley._node.transport.transport import WriteBarrier

SOFTWARE: Final = "parley"


class Run:
    """One run of the journal of the node `node_id`.

    `on_failed` is called in the loop's thread when the disk can no longer be written.
    """

    def __init__(
        self,
        settings: JournalOptions,
        node_id: NodeId,
        backend: Backend,
        on_failed: Callable[[JournalFailedError], None],
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._backend = backend
        self._on_failed = on_failed
        self._most, self._least = settings.buffer_size, settings.buffer_size // 2
        self._holding = settings.fsync == "always"
        self._descriptor = -1
        self._over = False
        self._syncs: list[tuple[int, Waiter]] = []
        self._ends: list[Waiter] = []
        self.recovered: list[Recovered] = []
        self.buffer = buffer = RecordBuffer()
        buffer.watched = self._holding
        if self._holding:
            self.barrier = WriteBarrier(lambda: buffer.appended, lambda: buffer.synced)
        else:
            self.barrier = WriteBarrier()
        self.writer = SegmentWriter(
            buffer,
            settings,
            partial(backend.call_soon_threadsafe, self._progress),
            partial(backend.call_soon_threadsafe, self._failed),
        )
        self.log: RecordLog

    # Called in a thread.

    def prepare(self) -> None:
        """Lock the journal, recover earlier segments and create the first segment.

        Raises:
            JournalBusyError: the journal is locked.
            JournalFailedError: an open segment cannot be closed.
            OSError: the disk cannot be written.
        """
        settings, node = self._settings, self._node_id.text
        lock = settings.directory / lock_name(self._node_id)
        self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalBusyError(
                f"cannot lock '{lock}': another process or node is writing this journal"
            ) from error
        now = settings.clock()
        self.recovered = recover_left(settings.directory, node, now)
        start = _start_after(settings.directory, node, now)
        head = SegmentHead(self._node_id, start, 0, tuple(map(bytes, settings.auditors)), SOFTWARE)
        self.log = RecordLog(self.buffer, head, self._backend, settings, self._mark)
        self.writer.start(self.log.name)

    # Called in the loop's thread.

    def unlock(self) -> None:
        """Unlock the journal, but keep the file: removing it could let two processes lock it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def end(self) -> None:
        self.log.end()
        self.barrier.retire()

    async def sync(self) -> None:
        """Wait until all appended records are synced, or the journal fails."""
        buffer = self.buffer
        position = buffer.appended
        if buffer.synced >= position or buffer.failed is not None:
            return
        waiter = self._backend.waiter()
        entry = position, waiter
        self._syncs.append(entry)
        buffer.sync_wanted = max(buffer.sync_wanted, position)
        buffer.watched = True
        buffer.wake()
        try:
            await waiter
        finally:
            if entry in self._syncs:
                self._syncs.remove(entry)

    async def over(self) -> None:
        if self._over:
            return
        waiter = self._backend.waiter()
        self._ends.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._ends:
                self._ends.remove(waiter)

    def finish(self) -> None:
        self._over = True
        for waiter in [waiter for _, waiter in self._syncs] + self._ends:
            waiter.wake()
        self._syncs.clear()
        self._ends.clear()

    def _progress(self) -> None:
        buffer = self.buffer
        for entry in [entry for entry in self._syncs if entry[0] <= buffer.synced]:
            self._syncs.remove(entry)
            entry[1].wake()
        self.barrier.release()
        if not self.barrier.open and buffer.waiting <= self._least:
            self.barrier.reopen()
            self.log.plan()
        buffer.watched = bool(self._syncs) or self._holding or not self.barrier.open

    def _mark(self) -> int:
        """Close the barrier if the buffer is full; return the position at which it will be full."""
        buffer, barrier = self.buffer, self.barrier
        full = buffer.written + self._most
        if barrier.open and buffer.appended >= full:
            barrier.shut()
            buffer.watched = True
            buffer.wake()  # The writer may be gathering records.
            if buffer.waiting <= self._least:  # The writer wrote on before it read `watched`.
                self._backend.call_soon(self._progress)
        return full if barrier.open else NEVER

    def _failed(self) -> None:
        error = self.buffer.failed
        directory = self._settings.directory
        failed = JournalFailedError(f"cannot write the journal in '{directory}': {error}")
        failed.__cause__ = error
        self.log.stop()
        self._on_failed(failed)
        self.finish()
        self.barrier.retire()


def _start_after(directory: Path, node: str, now: int) -> int:
    """Return a start time after all earlier runs, even if the clock was set back."""
    names = [name for name in map(parse_name, os.listdir(directory)) if name is not None]
    last = max((name.start for name in names if name.node == node), default="")
    if run_start(now) > last:
        return now
    moment = datetime.strptime(last, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000) * 1000 + 1000
