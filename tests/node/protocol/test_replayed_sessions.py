"""Tests of cut sessions in which an attacker replays, modifies or races Resumes and Resumeds: at
worst, the transport is cut again.
"""

from collections.abc import Iterable, Iterator
from random import Random  # noqa: TID251 - where to cut, and which messages
from typing import Any, Final

import pytest

from parley._lbm import keys
from parley._node.protocol.codes import CLOSE, CONNECTION, REJECT, RESUMED
from parley._node.protocol.event import parse_raw
from parley._node.protocol.resume_attempt import ResumeAttempt
from tests.node.protocol.cut_session import CutSession, check, uncut
from tests.node.protocol.pair import Side, raw_frame

# Cuts of a session, and the number of tested sessions.
CUTS: Final = 5
NEAR: Final = 300  # bytes
SOME_BITS, EVERY_BIT = 10, 5
STOLEN, MANY_STOLEN = 20, 2_000

CLOSE_IN_PLAIN: Final = (CLOSE, {keys.CODE: 0})


def places(random: Random) -> list[int]:
    """Return where to cut; two of the positions are in Resume and Resumed after another cut."""
    found = [random.randrange(1, uncut()[1]) for _ in range(CUTS - 2)]
    return found + [random.choice(found) + random.randrange(1, NEAR) for _ in range(2)]


def state(side: Side) -> tuple[Any, ...]:
    """Return all state of a side that a Resume or Resumed could change."""
    core, wire, reports = side.core, len(side.wire), len(side.reports)
    resumption = core.resumption
    if resumption is None:
        return core.state, wire, reports
    kept = resumption.kept
    positions = resumption.received, kept.sent, kept.told, len(kept.again)
    return core.state, wire, reports, core.is_suspended, resumption.count, *positions


class Replayed(CutSession):
    """Both sides get copies of earlier events: the responder at every moment, the initiator in
    every attempt. With `every_bit`, they are also sent with each bit flipped, otherwise with one.
    """

    def __init__(self, cuts: Iterable[int], random: Random, *, every_bit: bool) -> None:
        super().__init__(cuts, journals=True)
        self._random = random
        self._every_bit = every_bit
        self.replays = 0

    def use(self, side: Side) -> None:
        super().use(side)
        self._replay_resumes()

    def dial(self) -> None:
        self._replay_resumes()
        self._replay_answers()
        super().dial()
        self._replay_resumes()

    def _replay_resumes(self) -> None:
        """Replay each on a separate transport."""
        pair = self.pair
        before = state(pair.b)
        for old in self.resumes:
            for said in (old, *self._changed(old)):
                fresh, asked = pair.listen(said)
                assert_rejected(pair.answer(fresh, asked))
                self.replays += 1
        assert state(pair.b) == before

    def _replay_answers(self) -> None:
        """Replay each to another attempt of the initiator."""
        pair = self.pair
        before = state(pair.a)
        for old in self.answers:
            for said in (old, *self._changed(old[: 4 + int.from_bytes(old[:4])])):
                attempt = pair.a.core.start_attempt(pair.now)
                attempt.data_to_send(pair.now)
                attempt.receive_data(said, pair.now)
                assert attempt.outcome in ("failed", "rejected", None)
                self.replays += 1
        assert state(pair.a) == before

    def answer(self, attempt: ResumeAttempt, data: bytes) -> None:
        """First return the expected answer with one bit flipped."""
        pair, accept = self.pair, attempt.accept
        assert accept is not None
        before = state(pair.a)
        for said in self._changed(data[: 4 + int.from_bytes(data[:4])]):
            again = ResumeAttempt(b"", accept, pair.now)
            again.receive_data(said, pair.now)
            assert again.outcome != "resumed"
        assert state(pair.a) == before
        super().answer(attempt, data)

    def _changed(self, frame: bytes) -> Iterator[bytes]:
        bits = range(32, 8 * len(frame))  # all but its length
        for bit in bits if self._every_bit or not bits else self._random.choices(bits):
            changed = bytearray(frame)
            changed[bit // 8] ^= 1 << bit % 8
            yield bytes(changed)


def assert_rejected(answer: bytes) -> None:
    """Check that the answer is only a Reject."""
    assert len(answer) == 4 + int.from_bytes(answer[:4])
    assert parse_raw(answer[4:]).head[2:] == (CONNECTION, REJECT)


class Stolen(CutSession):
    """An attacker copies Resumes and sends some before the initiator does; the answers to it are
    lost.
    """

    def __init__(self, cuts: Iterable[int], random: Random) -> None:
        super().__init__(cuts, journals=True)
        self._random = random
        self.thefts = 0

    def ask(self, attempt: ResumeAttempt, resume: bytes) -> None:
        if self._random.random() < 0.6:
            self._steal(resume)
        super().ask(attempt, resume)

    def _steal(self, resume: bytes) -> None:
        pair, core = self.pair, self.pair.b.core
        answer = pair.answer(*pair.listen(resume))
        if answer[10:12] == bytes((CONNECTION, RESUMED)):
            self.thefts += 1
        if core.is_suspended or core.ended:
            return  # it was closed, so there are no further events
        sent = bytes(pair.a.wire)
        place = self._random.randrange(len(sent))
        said = (
            b"",
            self._random.randbytes(100),
            (60_000).to_bytes(4) + bytes(100),
            sent[place : place + 300],  # from the middle of a frame
            raw_frame(*CLOSE_IN_PLAIN),
            resume,
        )
        pair.deliver(pair.b, self._random.choice(said))
        if self._random.random() < 0.5:
            core.receive_eof(pair.now)  # otherwise it stays open silently


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whatever_is_said_again_has_no_effect(every_cut: bool) -> None:
    replays = 0
    for seed in range(EVERY_BIT if every_cut else SOME_BITS):
        random = Random(seed)
        session = Replayed(places(random), random, every_bit=every_cut)
        check(session)
        replays += session.replays
    print(f"{replays:,} replays")
    assert replays > 3_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whoever_is_quicker_with_a_copied_resume_gains_a_further_cut(every_cut: bool) -> None:
    thefts = 0
    for seed in range(MANY_STOLEN if every_cut else STOLEN):
        random = Random(seed)
        session = Stolen(places(random), random)
        check(session)
        thefts += session.thefts
    print(f"{thefts:,} Resumes were stolen")
    assert thefts > 50
