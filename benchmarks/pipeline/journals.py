"""Journals of any size, made by real cores and the journal's own writer, without a network.

The files are the same as two nodes would write; only the transport, the loop and the writer's
thread are left out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from parley import Identity
from parley._lbm import keys as cells
from parley._node.journal import keys
from parley._node.journal.options import JournalOptions
from parley._node.journal.record_log import RecordLog
from parley._node.journal.record_types import SegmentEnd, SegmentHead
from parley._node.journal.segment_writer import RecordBuffer, SegmentBoundary
from parley._node.journal.segments import LIVE, SegmentName
from parley._node.journal.session_log import SessionLog
from parley._node.messaging.notes import encode_note, notes_payload
from parley._node.protocol.codes import CALL, NOTES, SIM
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.reports import PeerIdentified
from parley.journal import AuditorPrivateKey, encode_record
from parley.protocol import encode

PAYLOAD: Final = 128
NOTES_IN_EVENT: Final = 64
_BEGIN: Final = 1_780_000_000_000_000_000
_STEP: Final = 20_000  # ns between two events: 50,000 a second
_BATCH: Final = 512  # events between two flushes


class _Loop:
    """Only `call_soon` does anything, and that when `run` is called."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def now(self) -> float:
        return 0.0

    def call_at(self, when: float, callback: Callable[[], None]) -> "_Loop":
        return self

    def cancel(self) -> None:
        """As a timer."""

    def run(self) -> None:
        due, self._due = self._due, []
        for callback in due:
            callback()


class _FileJournal:
    """The journal of one side, written on request."""

    def __init__(
        self,
        directory: Path,
        identity: Identity,
        auditor: AuditorPrivateKey,
        clock: Callable[[], int] | None,
    ) -> None:
        self._directory = directory
        self._identity = identity
        self._time = _BEGIN
        self._loop = _Loop()
        self._feed = RecordBuffer()
        self._auditors = (auditor.public,)
        settings = JournalOptions(
            directory,
            self._auditors,
            2**26,
            1e9,
            2**23,
            "never",
            1.0,
            "alarm",
            clock or self._clock,
        )
        head = SegmentHead(identity.node_id, _BEGIN, 0, (bytes(auditor.public),), "benchmark")
        loop: Any = self._loop
        self._log = RecordLog(self._feed, head, loop, settings)
        self._log.begin()
        self._path = directory / str(self._log.name._replace(state=LIVE))
        self._file = self._path.open("wb")
        self._records = 0

    def _clock(self) -> int:
        self._time += _STEP
        return self._time

    def observer(self) -> SessionLog:
        return SessionLog(self._log, self._auditors, self._identity.cells(), "memory")

    def flush(self) -> None:
        """Take the loop's turn, and write what there is."""
        self._loop.run()
        pending = self._feed.pending
        for piece in pending:
            if isinstance(piece, SegmentBoundary):
                self._close(piece)
            else:
                self._file.write(piece)
                self._records += 1
        pending.clear()
        if not self._file.closed:
            self._file.flush()

    def end(self) -> None:
        self._log.end()
        self.flush()

    def _close(self, turn: SegmentBoundary) -> None:
        end = SegmentEnd(self._records, turn.blocks).encode()
        self._file.write(encode_record(keys.SEGMENT_END, self._time, end))
        self._file.close()
        self._path.rename(self._path.with_suffix(""))
        self._records = 0
        if turn.following is not None:
            self._path = self._directory / str(_live(turn.following))
            self._file = self._path.open("wb")


def _live(name: SegmentName) -> SegmentName:
    return name._replace(state=LIVE)


class Talk:
    """A session whose first side writes a journal of its sent events: calls, or coalesced notes.

    `clock` returns ns since the epoch; by default, each event is 20 us after the last.
    """

    def __init__(
        self,
        directory: Path,
        auditor: AuditorPrivateKey,
        *,
        notes: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        identities = Identity.create(), Identity.create()
        self._journal = _FileJournal(directory, identities[0], auditor, clock)
        observers = self._journal.observer(), None
        self._sender, self._receiver = (
            Connection(
                CoreConfig(identity=identity, algorithms={"kex": ("x25519",)}),
                initiator=not index,
                now=0.0,
                observer=observers[index],
            )
            for index, identity in enumerate(identities)
        )
        self._meet()
        _, many = notes_payload([encode_note(bytes(PAYLOAD))] * NOTES_IN_EVENT)
        call = encode({cells.TOPIC: "prices/eur", cells.DATA: bytes(PAYLOAD)})
        self._event = (NOTES, many) if notes else (CALL, call)
        self._notes = notes
        self._sent = 0

    def send(self, events: int) -> None:
        """Send so many, and have them in the files."""
        subcategory, payload = self._event
        for first in range(0, events, _BATCH):
            for _ in range(first, min(first + _BATCH, events)):
                self._sent += 1
                async_id = 0 if self._notes else self._sent % 60_000 + 1
                self._sender.send(1, async_id, SIM, subcategory, payload)
            while self._sender.data_to_send(0.0):
                pass
            self._sender.reports()
            self._journal.flush()

    def end(self) -> None:
        """Close the session, and the journal."""
        self._sender.close(0.0, 0)
        self._sender.data_to_send(0.0)
        self._journal.end()

    def _meet(self) -> None:
        both = self._sender, self._receiver
        for one, other in (both, both[::-1]) * 4:
            other.receive_data(one.data_to_send(0.0), 0.0)
            for core in both:
                if any(isinstance(report, PeerIdentified) for report in core.reports()):
                    core.accept_peer(0.0)


def make_journals(directory: Path, events: int, *, notes: bool = False) -> AuditorPrivateKey:
    """Write the journal of a session of so many events of 128-byte payload.

    With `notes` each event is 64 coalesced notes. Returns the auditor's key.
    """
    auditor = AuditorPrivateKey.create()
    talk = Talk(directory, auditor, notes=notes)
    talk.send(events)
    talk.end()
    return auditor
