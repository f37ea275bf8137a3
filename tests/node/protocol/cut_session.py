"""A session with all kinds of traffic, whose transports are cut after given numbers of bytes.

It has calls, notes, streams in both directions, key updates, a rekey, credit, idle time, and a
Close by the responder. Bytes are counted over all transports, so that a cut can follow any byte,
including those of a Resume or of retransmissions.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from parley._node.protocol.codes import CHUNK, NOTIFY, RESULT, SIM, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event
from parley._node.protocol.reports import (
    ConnectionEnded,
    KeysUpdated,
    PongReceived,
    Report,
    Resumed,
    ResumeRequested,
    StreamWritable,
    Suspended,
)
from parley._node.protocol.resume_attempt import ResumeAttempt
from tests.node.journal.memory_journal import AUDITOR, MemoryJournal, audit_of
from tests.node.protocol.cut_pair import CutPair, resuming
from tests.node.protocol.pair import ALICE, BOB, Side, make_config

# Reports that a cut can change or add.
OF_CUTS = (Suspended, Resumed, StreamWritable)


class CutSession:
    """A session that is cut at `cuts`, which are counts of delivered bytes of both directions, or
    of the one that `there` selects. `resumes` are the received Resumes, `answers` the responses to
    each.
    """

    def __init__(
        self, cuts: Iterable[int], *, there: bool | None = None, journals: bool = False, **more: Any
    ) -> None:
        self.journals = (MemoryJournal(ALICE), MemoryJournal(BOB)) if journals else None
        observers = tuple(journal.observer() for journal in self.journals or ())
        settings = resuming(stream_window=1024, **more)
        self.pair = CutPair(
            make_config(ALICE, **settings),
            make_config(BOB, **settings),
            observers=(observers[0], observers[1]) if journals else (None, None),
        )
        self.pair.pump()
        self._turns()
        for side in self.pair.sides:
            side.reports.clear()
        self._cuts = sorted(cuts, reverse=True)
        self._there = there
        self.carried = 0
        self.resumes: list[bytes] = []
        self.answers: list[bytes] = []

    # Delivery.

    def _part_of(self, data: bytes, *, there: bool) -> tuple[bytes, bool]:
        """Return the part of the data that is delivered, and whether the transport is cut after
        it.
        """
        if self._there is not None and self._there is not there:
            return data, False
        left = self._cuts[-1] - self.carried if self._cuts else len(data) + 1
        if left > len(data):
            self.carried += len(data)
            return data, False
        self._cuts.pop()
        self.carried += left
        return data[:left], True

    def pump(self) -> None:
        """Deliver all bytes, however often the transport is cut."""
        pair = self.pair
        for _ in range(1000):
            moved = False
            for side in pair.sides:
                sent = side.take(pair.now)
                data, cut = self._part_of(sent, there=side is pair.a)
                if data:
                    moved = True
                    pair.deliver(pair.other(side), data)
                if cut:
                    self._lose()
                    moved = True
                while side.collect(pair.now):
                    pass
                self.use(side)
            if not moved:
                self._turns()
                return
        raise AssertionError("the two never fall quiet")

    def _lose(self) -> None:
        """End the transport for both sides, and let the initiator dial until one works."""
        pair = self.pair
        for side in pair.sides:
            side.core.receive_eof(pair.now)
        while pair.a.core.is_suspended:
            self.dial()

    def dial(self) -> None:
        attempt = self.pair.a.core.start_attempt(self.pair.now)
        self.ask(attempt, attempt.data_to_send(self.pair.now))

    def ask(self, attempt: ResumeAttempt, resume: bytes) -> None:
        pair = self.pair
        data, cut = self._part_of(resume, there=True)
        fresh = Connection(pair.b.core.config, initiator=False, now=pair.now)
        fresh.receive_data(data, pair.now)
        asked = [report for report in fresh.reports() if isinstance(report, ResumeRequested)]
        if cut and not asked:
            attempt.receive_eof(pair.now)
            return
        answer = pair.answer(fresh, asked[0])
        self.resumes.append(resume)
        self.answers.append(answer)
        data, lost = self._part_of(answer, there=False) if not cut else (b"", True)
        self.answer(attempt, data)
        if attempt.outcome == "resumed":
            pair.deliver(pair.a, attempt.unread_bytes)
        if lost:
            attempt.receive_eof(pair.now)
            for side in pair.sides:
                side.core.receive_eof(pair.now)

    def answer(self, attempt: ResumeAttempt, data: bytes) -> None:
        attempt.receive_data(data, self.pair.now)

    def use(self, side: Side) -> None:
        """Process received events as the application."""
        for report in side.reports:
            if isinstance(report, Event) and report.cost:
                side.core.consume(report.stream, report.cost)
                report.cost = 0

    def _turns(self) -> None:
        for journal in self.journals or ():
            journal.loop.run()

    # The session.

    def run(self) -> "CutSession":
        """Run the whole session until both sides have ended."""
        for step in (self._calls, self._streams, self._keys, self._notes, self._answers):
            step()
            self.pump()
            self._pass(0.5)
        self.pair.b.core.send(1, 0, SIM, NOTIFY, b"the last note", lbm=False)
        self.pair.b.core.close(self.pair.now, CloseCode.GOING_AWAY, "bye")
        self.pump()
        for side in self.pair.sides:
            side.core.receive_eof(self.pair.now)
            side.collect(self.pair.now)
        for journal in self.journals or ():
            self._turns()
            journal.log.end()
        return self

    def _pass(self, seconds: float) -> None:
        pair, end = self.pair, self.pair.now + seconds
        while (due := min(side.core.next_deadline() for side in pair.sides)) <= end:
            pair.now = max(pair.now, due)
            for side in pair.sides:
                side.core.handle_deadline(pair.now)
            self.pump()
        pair.now = end

    def _calls(self) -> None:
        for number in range(1, 4):
            self.pair.a.core.send(1, number, SIM, 1, b"call %d" % number, lbm=False)
            self.pump()
            self.pair.b.core.send(1, number, SIM, RESULT, b"answer %d" % number, lbm=False)

    def _streams(self) -> None:
        for side, text in ((self.pair.a, b"up"), (self.pair.b, b"down")):
            stream = side.core.open_stream("s")
            for number in range(3):
                side.core.send_data(stream, text * (60 + number))
            side.core.finish_stream(stream)

    def _keys(self) -> None:
        self.pair.a.core.update_keys(self.pair.now)
        self.pair.b.core.rekey(self.pair.now)

    def _notes(self) -> None:
        for number in range(3):
            self.pair.b.core.send(1, 0, SIM, NOTIFY, b"note %d" % number, lbm=False)
        self.pair.a.core.ping(self.pair.now)

    def _answers(self) -> None:
        for number in range(2):
            self.pair.b.core.send(1, 9, SIM, CHUNK, b"chunk %d" % number, lbm=False, seal=True)
            self.pump()

    # Results.

    def told(self) -> list[list[str]]:
        """Return what each application received, in order. A cut may reorder it relative to the
        application's own events.
        """
        return [_told(side.reports) for side in self.pair.sides]

    def findings(self) -> list[Any]:
        """Return the findings of an auditor in either journal."""
        found = []
        for journal in self.journals or ():
            found += audit_of(journal.segments, AUDITOR).take_findings()
        return found


def _told(reports: Iterable[Report]) -> list[str]:
    told, pongs = [], 0
    for report in reports:
        own = isinstance(report, KeysUpdated) and report.sent
        if isinstance(report, PongReceived):
            pongs += 1
        elif isinstance(report, ConnectionEnded):
            told.append(f"ended {report.code} {report.text}")
        elif not own and not isinstance(report, OF_CUTS):
            told.append(str(report))
    return [*told, f"{pongs} Pongs"]


@cache
def uncut() -> tuple[list[list[str]], int]:
    """Return what is received without a cut, and the number of delivered bytes."""
    session = CutSession(()).run()
    return session.told(), session.carried


def check(session: CutSession) -> None:
    """Run the session and check that the result is the same as without a cut, and that journals
    verify.
    """
    assert session.run().told() == uncut()[0]
    assert session.findings() == []
    assert not session.pair.a.core.is_suspended
