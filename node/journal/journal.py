"""`Journal`: records everything that a node sends and receives, encrypted to its auditors.

A run closes segments that earlier runs left open, and never appends to them (docs/journal.md).
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Unpack

import anyio

from parley._crypto.identity import Identity
from parley._node.errors import ParleyError, os_reason
from parley._node.federation.dials import TunnelRecord
from parley._node.journal import keys
from parley._node.journal.errors import JournalBusyError, JournalFailedError
from parley._node.journal.options import (
    Auditor,
    Clock,
    JournalOptions,
    OnFailure,
    WriteOptions,
    parse_auditors,
)
from parley._node.journal.record_types import JoinedTunnel
from parley._node.journal.recovery import Recovered
from parley._node.journal.run import Run
from parley._node.journal.session_log import SessionLog
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family
from parley._node.transport.backend import Backend
from parley._node.transport.transport import WriteBarrier

logger = logging.getLogger("parley.journal")

# How long a closing node waits for a disk that does not respond, in seconds.
CLOSE_TIMEOUT: Final = 30.0


class JournalMetrics(NamedTuple):
    """The counters of a run.

    `records` and `segments` are the numbers written, `size` the bytes written, `waiting` the bytes
    not written yet, and `sessions` the number of open sessions.
    """

    records: int
    size: int
    waiting: int
    segments: int
    sessions: int


class Journal:
    """A node's journal in a directory, created with `Journal.open` and passed to `Node(journal=)`.

    One node in one process can write a journal at a time. `failed` is the error that ended the
    journal early. `recovered` lists the segments of earlier runs that were closed when this run
    began.

    Example:

        from parley import Identity, Node
        from parley.journal import AuditorPrivateKey, Journal

        auditor = AuditorPrivateKey.create()
        journal = Journal.open("journal", auditor.public)
        async with Node(Identity.create(), journal=journal) as server:
            address = await server.listen("tcp://127.0.0.1:0")
            await node.connect(address)
            await journal.sync()
    """

    def __init__(
        self, settings: JournalOptions, on_alarm: Callable[[JournalFailedError], None] | None = None
    ) -> None:
        """Use `open` instead, which checks the settings."""
        self.settings = settings
        self.on_alarm = on_alarm
        self.failed: JournalFailedError | None = None
        self.recovered: list[Recovered] = []
        self._run: Run | None = None  # Set while a run is active.
        self._taken = False
        self._local_keys: list[list[str | bytes | None]] = []
        self._on_stop: Callable[[], None] = _nothing

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        auditor: Auditor | Iterable[Auditor],
        *,
        on_failure: OnFailure = "alarm",
        on_alarm: Callable[[JournalFailedError], None] | None = None,
        clock: Clock = time.time_ns,
        **options: Unpack[WriteOptions],
    ) -> "Journal":
        """Check the settings and create the directory, readable by its owner only.

        `auditor` is one or more public keys (AuditorKey, 32 bytes or text). The owner of any one of
        them can decrypt the journal. `clock` returns nanoseconds since the epoch. `on_alarm` is
        called in the loop's thread when the journal fails.

        Raises:
            ConfigError: a setting is out of range, or there is no auditor.
            InvalidKeyError: an auditor's key is malformed.
            JournalFailedError: the directory cannot be created.
        """
        settings = JournalOptions(
            directory=Path(directory),
            auditors=parse_auditors(auditor),
            on_failure=on_failure,
            clock=clock,
            **options,
        )
        try:
            settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            text = f"cannot create the directory '{settings.directory}': {os_reason(error)}"
            raise JournalFailedError(text) from error
        return cls(settings, on_alarm)

    def __repr__(self) -> str:
        return f"<Journal in {self.directory}>"

    @property
    def directory(self) -> Path:
        """The directory of the journal's segments."""
        return self.settings.directory

    @property
    def is_running(self) -> bool:
        """Whether a node is writing the journal."""
        return self._run is not None

    @property
    def stops_node(self) -> bool:
        """Whether the journal failed and stops its node (`on_failure="stop"`)."""
        return self.failed is not None and self.settings.on_failure == "stop"

    @property
    def path(self) -> Path | None:
        """The segment being written; None if no node is writing the journal."""
        run = self._run
        return None if run is None else self.directory / f"{run.log.name}.open"

    @property
    def metrics(self) -> JournalMetrics:
        """The counters of this run; zeros if no node is writing the journal."""
        run = self._run
        if run is None:
            return JournalMetrics(0, 0, 0, 0, 0)
        buffer = run.buffer
        return JournalMetrics(
            buffer.records, buffer.written, buffer.waiting, buffer.segments, run.log.sessions
        )

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics of this run."""
        done = self.metrics
        yield family(catalogue.JOURNAL_RECORDS, done.records)
        yield family(catalogue.JOURNAL_WRITTEN, done.size)
        yield family(catalogue.JOURNAL_WAITING, done.waiting)
        yield family(catalogue.JOURNAL_LIMIT, self.settings.buffer_size)
        yield family(catalogue.JOURNAL_SEGMENTS, done.segments)
        yield family(catalogue.JOURNAL_SESSIONS, done.sessions)
        yield family(catalogue.JOURNAL_FAILED, int(self.failed is not None))

    async def sync(self) -> None:
        """Wait until everything sent and received so far is on the disk.

        Raises:
            JournalFailedError: the journal cannot be written.
            ParleyError: no node is writing the journal.
        """
        await self._require_run().sync()
        if self.failed is not None:
            raise self.failed

    async def failure(self) -> JournalFailedError:
        """Wait until the journal fails. Raises ParleyError if its node closes first."""
        await self._require_run().over()
        if self.failed is None:
            raise ParleyError(f"the journal in '{self.directory}' was closed without a failure")
        return self.failed

    async def begin(
        self, identity: Identity, backend: Backend, on_stop: Callable[[], None]
    ) -> None:
        """Lock the journal, recover earlier segments and begin a run.

        A thread accesses the disk. `on_stop` is called when the journal fails and must stop its
        node.

        Raises:
            JournalBusyError: the journal is already in use.
            JournalFailedError: the disk cannot be written.
        """
        if self._taken:
            raise JournalBusyError(
                f"cannot use the journal in '{self.directory}': another node is using this object; "
                "open another one"
            )
        self._taken = True
        run = Run(self.settings, identity.node_id, backend, self._has_failed)
        try:
            await anyio.to_thread.run_sync(run.prepare)
        except BaseException as error:
            self._taken = False
            run.unlock()
            if isinstance(error, OSError):
                text = f"cannot write the journal in '{self.directory}': {os_reason(error)}"
                raise JournalFailedError(text) from error
            raise
        self._run, self.failed = run, None
        self.recovered = run.recovered
        self._local_keys = identity.cells()
        self._on_stop = on_stop
        run.log.begin()

    async def end(self) -> None:
        """Write buffered records, close the segment and unlock the journal."""
        run = self._run
        if run is None:
            return
        run.end()
        ended = await anyio.to_thread.run_sync(run.writer.join, CLOSE_TIMEOUT)
        run.finish()
        if ended:
            run.unlock()
        else:  # Keep the lock, because the thread may still write to the segment.
            logger.critical(
                "cannot finish the journal: its disk does not respond",
                extra={"event": "journal.end-lost"},
            )
        self._run, self._taken = None, False

    @property
    def barrier(self) -> WriteBarrier:
        """Makes connections wait while the buffer is full, or for the disk (`fsync="always"`)."""
        return self._require_run().barrier

    def session_log(self, address: str) -> SessionLog:
        """Return the observer of a new connection to `address`."""
        log = self._require_run().log
        return SessionLog(log, self.settings.auditors, self._local_keys, address)

    def tunnel(self, record: TunnelRecord) -> None:
        """Record a tunnel through this node after it ended; do nothing if no node is writing."""
        run = self._run
        if run is not None:
            run.log.record(keys.TUNNEL, JoinedTunnel.of(record).encode())

    def _require_run(self) -> Run:
        if self._run is None:
            raise ParleyError(
                f"cannot use the journal in '{self.directory}': no node is writing it; "
                "start a node with journal="
            )
        return self._run

    def _has_failed(self, failed: JournalFailedError) -> None:
        self.failed = failed
        logger.critical("%s", failed, extra={"event": "journal.failed"})
        if self.stops_node:
            self._on_stop()
        if self.on_alarm is not None:
            try:
                self.on_alarm(failed)
            except Exception:
                logger.exception(
                    "the journal's on_alarm function failed",
                    extra={"event": "journal.alarm-failed"},
                )


def _nothing() -> None:
    return
