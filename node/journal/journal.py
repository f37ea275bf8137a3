"""`Journal`: where a node keeps what it sent and received, sealed for its auditors.

One rule: nothing is written before a node begins it, and nothing after that node has
left; what a run finds of earlier ones it closes and never continues (docs/journal.md).
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import anyio

from crypto.auditor import AUDITOR_KEY_SIZE, AuditorKey
from crypto.errors import InvalidKeyError
from crypto.identity import Identity
from node.errors import ConfigError, ParleyError
from node.journal.bodies import SegmentHead
from node.journal.errors import JournalBusyError, JournalFailedError
from node.journal.feed import Feed
from node.journal.log import Clock, Log
from node.journal.names import lock_name, parse_name, run_start
from node.journal.session_log import SessionLog
from node.journal.writer import Fsync, Writer
from node.transport.backend import Backend
from node.transport.loop import Waiter

logger = logging.getLogger("parley.journal")

OnFailure = Literal["alarm", "stop"]
Auditor = AuditorKey | bytes | str

SEGMENT_SIZE: Final = 64 * 2**20
SEGMENT_AGE: Final = 3600.0
BUFFER_SIZE: Final = 8 * 2**20
LEAST_SEGMENT: Final = 4096
LEAST_BUFFER: Final = 64 * 1024
# Seconds that a node which leaves waits for a disk that takes nothing.
END_PATIENCE: Final = 30.0
SOFTWARE: Final = "parley"


class JournalMetrics(NamedTuple):
    """What a run has done so far: `size` in bytes of records written, `waiting` those not
    yet, `sessions` those open."""

    records: int
    size: int
    waiting: int
    segments: int
    sessions: int


class Journal:
    """A node's journal in a directory; made with `Journal.open`, given to `Node(journal=)`.

    One journal serves one node at a time, and one process. `failed` is what it ended of
    before its node did; `recovered` says what the last beginning found of earlier runs.
    """

    def __init__(
        self,
        directory: Path,
        auditors: tuple[AuditorKey, ...],
        settings: "_Settings",
        clock: Clock,
        on_alarm: Callable[[JournalFailedError], None] | None,
    ) -> None:
        self.directory = directory
        self.auditors = auditors
        self.settings = settings
        self.failed: JournalFailedError | None = None
        self.recovered: list[Any] = []
        self.on_alarm = on_alarm
        self._clock = clock
        self._run: _Run | None = None

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        auditor: Auditor | Iterable[Auditor],
        *,
        segment_size: int = SEGMENT_SIZE,
        segment_age: float = SEGMENT_AGE,
        buffer_size: int = BUFFER_SIZE,
        fsync: Fsync = "interval",
        fsync_interval: float = 1.0,
        on_failure: OnFailure = "alarm",
        on_alarm: Callable[[JournalFailedError], None] | None = None,
        clock: Clock = time.time_ns,
    ) -> "Journal":
        """Check the settings and make the directory (for its owner alone).

        `auditor` is a public key (an AuditorKey, its 32 bytes or its text), or several:
        each can open the journal by itself. `segment_size` and `buffer_size` are bytes,
        `segment_age` and `fsync_interval` seconds; `clock` gives ns since the epoch.
        `on_alarm` is called, in the loop's thread, when the journal fails.

        Raises:
            ConfigError: a setting out of range, or no auditor. InvalidKeyError: no key.
            JournalFailedError: the directory cannot be made.
        """
        settings = _Settings(
            segment_size, segment_age, buffer_size, fsync, fsync_interval, on_failure
        )
        settings.check()
        auditors = _auditors(auditor)
        path = Path(directory)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise JournalFailedError(f"cannot make {path}: {error.strerror}") from error
        return cls(path, auditors, settings, clock, on_alarm)

    def __repr__(self) -> str:
        return f"<Journal in {self.directory}>"

    @property
    def is_running(self) -> bool:
        """Whether a node keeps it now."""
        return self._run is not None

    @property
    def stops_node(self) -> bool:
        """Whether it failed and takes its node along (`on_failure="stop"`)."""
        return self.failed is not None and self.settings.on_failure == "stop"

    @property
    def path(self) -> Path | None:
        """The segment that is being written; None while no node keeps it."""
        run = self._run
        return None if run is None else self.directory / f"{run.log.name}.open"

    @property
    def metrics(self) -> JournalMetrics:
        """What this run has done so far; zeros while no node keeps it."""
        run = self._run
        if run is None:
            return JournalMetrics(0, 0, 0, 0, 0)
        feed = run.log.feed
        return JournalMetrics(
            feed.records, feed.written, feed.waiting, feed.segments, run.log.sessions
        )

    async def sync(self) -> None:
        """Wait until all that was sent and received so far is on the disk.

        Raises:
            JournalFailedError: it cannot be written. ParleyError: no node keeps it.
        """
        if self._run is None:
            raise ParleyError("no node keeps this journal")
        await self._run.sync()
        if self.failed is not None:
            raise self.failed

    async def failure(self) -> JournalFailedError:
        """Wait until the journal fails; ParleyError if its node leaves before."""
        run = self._run
        if run is None:
            raise ParleyError("no node keeps this journal")
        await run.over()
        if self.failed is None:
            raise ParleyError("the journal ended")
        return self.failed

    # For the node.

    async def begin(self, identity: Identity, backend: Backend) -> None:
        """Lock, recover and begin a run, on the disk in a thread of its own.

        Raises:
            JournalBusyError: somebody else keeps it, for this node. JournalFailedError:
                the disk refuses. ParleyError: it serves another node.
        """
        if self._run is not None:
            raise JournalBusyError("this journal serves a node already")
        run = _Run(self, identity, backend)
        self._run = run  # also while the thread works: no other node may take it
        try:
            await anyio.to_thread.run_sync(run.prepare)
        except BaseException as error:
            self._run = None
            run.unlock()
            if isinstance(error, OSError):
                text = f"cannot write the journal in {self.directory}: {error.strerror}"
                raise JournalFailedError(text) from error
            raise
        self.failed = None
        run.log.begin()

    async def end(self) -> None:
        """Write what is left, close the segment, and unlock."""
        run = self._run
        if run is None:
            return
        run.log.end()
        ended = await anyio.to_thread.run_sync(run.writer.join, END_PATIENCE)
        if not ended:
            logger.critical("the journal's disk takes nothing: its end is not written")
        run.unlock()
        run.wake_all()
        self._run = None

    def session_log(self, address: str) -> SessionLog:
        """The observer of a new connection; `address` is where the other side was met."""
        run = self._run
        if run is None:
            raise ParleyError("no node keeps this journal")
        return SessionLog(run.log, self.auditors, run.identity.cells(), address)


class _Settings(NamedTuple):
    """What `Journal.open` was told."""

    segment_size: int
    segment_age: float
    buffer_size: int
    fsync: Fsync
    fsync_interval: float
    on_failure: OnFailure

    def check(self) -> None:
        """Raises ConfigError."""
        for name, least in (("segment_size", LEAST_SEGMENT), ("buffer_size", LEAST_BUFFER)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be {least:,} bytes or more")
        for name in ("segment_age", "fsync_interval"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be seconds above 0")
        for name, values in (("fsync", get_args(Fsync)), ("on_failure", get_args(OnFailure))):
            if getattr(self, name) not in values:
                raise ConfigError(f"{name} must be one of {', '.join(values)}")


class _Run:
    """One run of a journal: from a node's beginning to its end."""

    def __init__(self, journal: Journal, identity: Identity, backend: Backend) -> None:
        settings = journal.settings
        self.journal = journal
        self.identity = identity
        self.backend = backend
        self._descriptor = -1
        self._syncs: list[tuple[int, Waiter]] = []
        self._over: list[Waiter] = []
        self.feed = Feed()
        self.writer = Writer(
            self.feed,
            journal.directory,
            journal._clock,
            settings.fsync,
            settings.fsync_interval,
            partial(backend.soon_from_thread, self._progress),
            partial(backend.soon_from_thread, self._failed),
        )
        self.log: Log

    # In a thread.

    def prepare(self) -> None:
        """Lock, recover, make the first segment; raises JournalBusyError, OSError."""
        journal, node_id = self.journal, self.identity.node_id
        lock = journal.directory / lock_name(node_id)
        self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalBusyError(f"{lock} is held by somebody who writes it") from error
        settings = journal.settings
        start = _start_after(journal.directory, node_id.text, journal._clock())
        head = SegmentHead(node_id, start, 0, tuple(map(bytes, journal.auditors)), SOFTWARE)
        self.log = Log(
            self.feed,
            head,
            self.backend,
            journal._clock,
            settings.segment_size,
            settings.segment_age,
        )
        self.writer.start(self.log.name)

    # In the loop's thread.

    def unlock(self) -> None:
        """Let others have it. The file stays: to remove it would give two a lock each."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def sync(self) -> None:
        """Wait until what was appended is synced, or the journal failed."""
        feed = self.feed
        position = feed.appended
        if feed.synced >= position or feed.failed is not None:
            return
        waiter = self.backend.waiter()
        entry = position, waiter
        self._syncs.append(entry)
        feed.sync_wanted = max(feed.sync_wanted, position)
        feed.watched = True
        feed.wake()
        try:
            await waiter.wait()
        finally:
            if entry in self._syncs:
                self._syncs.remove(entry)

    async def over(self) -> None:
        """Wait until the journal has failed or ended."""
        while self.feed.failed is None and self.journal._run is self:
            waiter = self.backend.waiter()
            self._over.append(waiter)
            try:
                await waiter.wait()
            finally:
                if waiter in self._over:
                    self._over.remove(waiter)

    def wake_all(self) -> None:
        """Nobody need wait any more."""
        for _, waiter in self._syncs:
            waiter.wake()
        self._syncs.clear()
        for waiter in self._over:
            waiter.wake()
        self._over.clear()

    def _progress(self) -> None:
        feed = self.feed
        for entry in [entry for entry in self._syncs if entry[0] <= feed.synced]:
            self._syncs.remove(entry)
            entry[1].wake()
        feed.watched = bool(self._syncs)

    def _failed(self) -> None:
        journal, error = self.journal, self.feed.failed
        failed = JournalFailedError(f"the journal in {journal.directory} failed: {error}")
        failed.__cause__ = error
        journal.failed = failed
        logger.critical("%s", failed)
        self.wake_all()
        if journal.on_alarm is not None:
            try:
                journal.on_alarm(failed)
            except Exception:
                logger.exception("on_alarm failed")


def _auditors(given: Auditor | Iterable[Auditor]) -> tuple[AuditorKey, ...]:
    # Bytes and text are iterable too, and one key.
    several = [given] if isinstance(given, (bytes, str)) else list(given)
    keys = tuple(dict.fromkeys(_auditor(one) for one in several))
    if not keys:
        raise ConfigError("a journal needs an auditor's key")
    return keys


def _auditor(given: Auditor) -> AuditorKey:
    if isinstance(given, str):
        return AuditorKey.parse(given)
    if not isinstance(given, bytes):
        raise InvalidKeyError(f"an auditor's key is text or {AUDITOR_KEY_SIZE} bytes")
    return AuditorKey(given)


def _start_after(directory: Path, node: str, now: int) -> int:
    """When this run began: after all runs before it, also where the clock was set back."""
    names = [name for name in map(parse_name, os.listdir(directory)) if name is not None]
    last = max((name.start for name in names if name.node == node), default="")
    if run_start(now) > last:
        return now
    moment = datetime.strptime(last, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000) * 1000 + 1000
