"""Two cores with journals in memory: real records without threads, files or a clock.

The records are those of the production code; only the loop is replaced by a list.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from parley._crypto.auditor import AuditorKey, AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.options import JournalOptions
from parley._node.journal.record_log import RecordLog
from parley._node.journal.record_types import SegmentEnd, SegmentHead
from parley._node.journal.records import Record, encode_record, read_records
from parley._node.journal.segment_writer import RecordBuffer, SegmentBoundary
from parley._node.journal.segments import SegmentName, run_start
from parley._node.journal.session_log import SessionLog
from tests.node.protocol.pair import ALICE, BOB, FAST, Pair, make_config

NOW: Final = 1_800_000_000_000_000_000
STEP: Final = 1_000_000  # The clock advances by a millisecond at each reading.
AUDITOR: Final = AuditorPrivateKey.create()


class ListedLoop:
    """A loop that only implements `soon`, and runs the callbacks on request."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def now(self) -> float:
        return 0.0

    def call_at(self, when: float, callback: Callable[[], None]) -> "ListedLoop":
        return self

    def cancel(self) -> None:
        """Cancel, like a timer."""

    def run(self) -> None:
        """Run the due callbacks."""
        due, self.due = self.due, []
        for callback in due:
            callback()


class MemoryJournal:
    """A run of a journal, as bytes: `segments` by their stems."""

    def __init__(
        self,
        identity: Identity,
        *,
        auditors: tuple[AuditorKey, ...] = (AUDITOR.public,),
        segment_size: int = 2**26,
    ) -> None:
        self.identity = identity
        self.time = NOW
        self.loop = ListedLoop()
        self.buffer = RecordBuffer()
        self.auditors = auditors
        head = SegmentHead(identity.node_id, NOW, 0, tuple(map(bytes, auditors)), "test")
        loop: Any = self.loop
        settings = JournalOptions(
            Path(), auditors, segment_size, 1e9, 2**23, "never", 1.0, "alarm", self.clock
        )
        self.log = RecordLog(self.buffer, head, loop, settings)
        self.log.begin()

    def clock(self) -> int:
        self.time += STEP
        return self.time

    def observer(self, address: str = "memory") -> SessionLog:
        return SessionLog(self.log, self.auditors, self.identity.cells(), address)

    def roll(self) -> None:
        """Begin a block now."""
        self.log.roll()

    def next_segment(self) -> None:
        """Begin a segment now."""
        self.log.segment_due = 0
        self.log.roll()

    @property
    def segments(self) -> dict[str, bytes]:
        """Everything recorded; the last segment has no end while it is live."""
        found: dict[str, bytes] = {}
        name = SegmentName(self.identity.node_id.text, run_start(NOW), 0)
        records: list[bytes] = []
        for piece in self.buffer.pending:
            if isinstance(piece, SegmentBoundary):
                end = SegmentEnd(len(records), piece.blocks).encode()
                records.append(encode_record(keys.SEGMENT_END, self.time, end))
                found[name.stem] = b"".join(records)
                name, records = name._replace(number=name.number + 1), []
            else:
                records.append(piece)
        if records:
            found[name.stem] = b"".join(records)
        return found


class RecordedPair:
    """A pair of cores, each with a journal; `a` is the initiator."""

    def __init__(
        self,
        *,
        identities: tuple[Identity, Identity] = (ALICE, BOB),
        algorithms: Mapping[str, tuple[str, ...]] = FAST,
        segment_size: int = 2**26,
        auditors: tuple[AuditorKey, ...] = (AUDITOR.public,),
        **settings: Any,
    ) -> None:
        self.journals = tuple(
            MemoryJournal(identity, segment_size=segment_size, auditors=auditors)
            for identity in identities
        )
        self._identities = identities
        self._settings = {"algorithms": algorithms, **settings}
        self.pair = self.meet()

    def meet(self) -> Pair:
        """Begin a new session between them."""
        configs = [make_config(identity, **self._settings) for identity in self._identities]
        self.logs = observers = self.journals[0].observer(), self.journals[1].observer()
        self.pair = Pair(configs[0], configs[1], observers=observers)
        self.pump()
        return self.pair

    def pump(self) -> None:
        """Transfer the waiting bytes, then run the journals' callbacks."""
        self.pair.pump()
        for journal in self.journals:
            journal.loop.run()

    def run(self, seconds: float) -> None:
        """Do the same with time advancing, so that seals are sent."""
        self.pair.run(seconds)
        for journal in self.journals:
            journal.loop.run()

    def end(self, text: str = "") -> None:
        """Close the session, and both journals."""
        self.pair.a.core.close(self.pair.now, 0, text)
        self.pump()
        self.pair.run(5)
        for journal in self.journals:
            journal.log.end()


def audit_of(
    segments: Mapping[str, bytes], *auditors: AuditorPrivateKey, payloads: bool = True
) -> Audit:
    """Return a finished audit of whole segments."""
    audit = Audit(auditors, payloads=payloads)
    for stem, data in segments.items():
        for record in read_records(data):
            audit.record(stem, record)
    audit.finish_pending()
    return audit


def records_of(segments: Mapping[str, bytes]) -> list[tuple[str, Record]]:
    """Return all records, with the stem of their segment."""
    return [(stem, record) for stem, data in segments.items() for record in read_records(data)]
