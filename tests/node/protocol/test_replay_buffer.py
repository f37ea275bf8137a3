"""Tests of the limits of resumption: stored bytes, acknowledgements, and timeouts."""

from contextlib import suppress

import pytest

from parley._lbm import keys
from parley._node.protocol.codes import CONNECTION, RECEIVED, SIM, CloseCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.limits import (
    CLOSED_PATIENCE,
    IDLE_EVENTS,
    LEAST_RESUME_BUFFER,
    OWN_KEY_UPDATES,
    RESPONDER_PATIENCE,
    RESUME_EXEMPT,
    RESUME_TIMEOUT,
    TELL_ALONE,
    TELL_BYTES,
    TELL_INTERVAL,
)
from parley._node.protocol.reports import Suspended
from parley._node.protocol.states import State
from tests.node.protocol.cut_pair import CutPair, M, cut_pair
from tests.node.protocol.pair import ALICE, ALIVE, Side, make_config

SMALL = {"resume_buffer": LEAST_RESUME_BUFFER}


def say(side: Side, size: int = 10) -> None:
    side.core.send(1, 0, SIM, 4, bytes(size), lbm=False)


# Negotiated values.


def test_how_long_a_session_may_be_kept() -> None:
    assert make_config(ALICE, resume=600.0).resume == 600.0
    for seconds in (-0.1, 600.1):
        with pytest.raises(ValueError, match="resume"):
            make_config(ALICE, resume=seconds)


def test_the_least_that_may_be_kept() -> None:
    assert make_config(ALICE, **SMALL).resume_buffer == LEAST_RESUME_BUFFER
    with pytest.raises(ValueError, match="resume_buffer"):
        make_config(ALICE, resume_buffer=LEAST_RESUME_BUFFER - 1)


# Stored bytes.


def test_a_full_buffer_holds_back_all_but_stream_0_and_open() -> None:
    pair = cut_pair(b=SMALL)
    for _ in range(40):
        say(pair.b, 60_000)
    pair.b.take(pair.now)
    resumption = pair.b.core.resumption
    assert resumption is not None
    full = resumption.held
    assert LEAST_RESUME_BUFFER <= full < LEAST_RESUME_BUFFER + 70_000
    pair.b.core.open_stream("app/x")
    assert pair.b.take(pair.now)
    say(pair.b)
    assert pair.b.take(pair.now) == b""
    # It continues after an acknowledgement.
    pair.deliver(pair.a, bytes(pair.b.wire))
    pair.pump()
    assert sum(map(len, pair.a.payloads)) == 40 * 60_000 + 10


def test_what_is_not_held_back_has_a_bound_as_well() -> None:
    pair = cut_pair(b=SMALL, seal_events=65_536, max_streams=1_000)
    for _ in range(40):
        say(pair.b, 60_000)
    pair.b.take(pair.now)
    control = pair.b.session.control_buffer
    opened = 0
    while pair.b.code == ALIVE and opened < 1_000:
        pair.b.core.open_stream("x" * 40_000)
        opened += 1
        pair.b.take(pair.now)
        pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.OVERLOADED
    assert opened * 40_000 > RESUME_EXEMPT + control


# Acknowledgements.


def test_closing_a_parted_session_with_more_than_that_ends_it() -> None:
    pair = cut_pair(resume_buffer=LEAST_RESUME_BUFFER, max_streams=8_192)
    pair.cut()
    core = pair.b.core
    for _ in range(5_000):
        core.reset_stream(core.open_stream("x" * 5_000), 100, "y" * 1_000)
    core.close(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.OVERLOADED
    assert core.state is State.ENDED


def test_so_many_bytes_are_told_at_once() -> None:
    pair = cut_pair()
    for _ in range(5):
        say(pair.a, TELL_BYTES // 5)
    pair.pump()
    resumption = pair.a.core.resumption
    assert resumption is not None
    assert resumption.kept.told >= TELL_BYTES
    assert resumption.held < 1_000


def test_little_is_told_with_something_else_after_a_second() -> None:
    pair = cut_pair()
    resumption = pair.a.core.resumption
    assert resumption is not None
    pair.now += TELL_INTERVAL / 2
    say(pair.a)
    pair.pump()
    before = resumption.kept.told
    say(pair.b)
    pair.pump()
    assert resumption.kept.told == before
    pair.now += TELL_INTERVAL
    say(pair.b)
    pair.pump()
    assert resumption.kept.told > before


def test_little_is_told_alone_after_ten_seconds() -> None:
    pair = cut_pair(idle_before_ping=1e6)
    resumption = pair.a.core.resumption
    assert resumption is not None
    say(pair.a)
    pair.pump()
    told = resumption.kept.told
    pair.run(TELL_ALONE - 0.5)
    assert resumption.kept.told == told
    pair.run(1)
    assert resumption.kept.told > told
    # An acknowledgement isn't acknowledged.
    wire = len(pair.a.wire) + len(pair.b.wire)
    pair.run(100)
    assert len(pair.a.wire) + len(pair.b.wire) - wire < 400


def test_an_idle_session_wakes_to_tell_once_for_each_exchange_and_never_again() -> None:
    woken = [count_wakes(cut_pair(idle_before_ping=1e6, resume=resume)) for resume in (0.0, M)]
    # Each side acknowledges the event and its answer once, and the rekey after 15 minutes once. A
    # Received is sealed, so no timer for a seal of it fires.
    assert woken[1] - woken[0] == 4


def count_wakes(pair: CutPair) -> int:
    """Return how often both sides wake for more than freeing keys in the 1,000 s after an event and
    its answer.
    """
    say(pair.a)
    pair.pump()
    say(pair.b)
    pair.pump()
    end, wakes = pair.now + 1_000, 0
    while (due := min(side.core.next_deadline() for side in pair.sides)) <= end:
        pair.now = due
        for side in pair.sides:
            woken = side.core.next_deadline() <= due
            wakes += woken and not side.session.keepalive.rest_due(due)
            side.core.handle_deadline(due)
        pair.pump()
    return wakes


def test_telling_little_too_often_is_overloaded() -> None:
    pair = cut_pair()
    for number in range(int(IDLE_EVENTS.burst) + 2):
        assert pair.b.code == ALIVE, number
        pair.inject(pair.a, 0, CONNECTION, RECEIVED, {keys.RECEIVED: 0}, sealed=True)
    assert pair.b.code == CloseCode.OVERLOADED


# Timeouts.


def test_a_parted_session_has_its_time() -> None:
    pair = cut_pair()
    pair.cut()
    pair.advance(M - 0.1)
    assert pair.a.core.is_suspended
    pair.advance(0.2)
    assert pair.a.code == CloseCode.CONNECTION_LOST
    pair.advance(RESPONDER_PATIENCE - 0.2)
    assert pair.b.core.is_suspended
    pair.advance(0.2)
    assert pair.b.code == CloseCode.CONNECTION_LOST


def test_key_updates_of_a_parted_session_are_no_flood_when_they_come() -> None:
    """They arrive together, so the rate limit isn't refilled in the meantime."""
    pair = cut_pair(resume=600.0)
    pair.cut()
    made = 0
    for _ in range(200):
        pair.now += 1.0
        with suppress(LocalError):
            pair.b.core.update_keys(pair.now)
            made += 1
    assert made == OWN_KEY_UPDATES.burst
    assert pair.come_back().outcome == "resumed"
    for _ in range(made):  # and as many as are allowed now
        pair.b.core.update_keys(pair.now)
    pair.pump()
    assert (pair.a.code, pair.b.code) == (ALIVE, ALIVE)


def test_an_attempt_has_five_seconds() -> None:
    pair = cut_pair()
    pair.cut()
    attempt = pair.a.core.start_attempt(pair.now)
    outcomes = []
    for seconds in (RESUME_TIMEOUT - 0.1, RESUME_TIMEOUT):
        attempt.handle_deadline(pair.now + seconds)
        outcomes.append(attempt.outcome)
    assert outcomes == [None, "failed"]
    assert pair.a.core.is_suspended


def test_what_is_left_of_a_closed_session_has_five_seconds() -> None:
    pair = cut_pair()
    pair.cut()
    resumes = [pair.ask()[-1] for _ in range(2)]
    pair.b.core.close(pair.now)
    remains = pair.b.core.take_closed_session()
    assert remains is not None
    answers = [
        remains.answer(asked.resume, pair.now + seconds)
        for asked, seconds in zip(resumes, (CLOSED_PATIENCE - 0.1, CLOSED_PATIENCE), strict=True)
        if asked is not None
    ]
    assert [answer is not None for answer in answers] == [True, False]


def test_what_is_left_of_a_closed_session_is_not_kept_by_its_core() -> None:
    """A handler that outlives its session may hold a reference to the core for an hour."""
    pair = cut_pair()
    pair.cut()
    pair.b.core.close(pair.now)
    assert pair.b.core.take_closed_session() is not None
    assert pair.b.core.take_closed_session() is None


def test_silence_before_a_seal_that_is_overdue_parts_the_session() -> None:
    pair = cut_pair(idle_before_ping=1e6)
    say(pair.a)
    sent = pair.a.take(pair.now)
    pair.deliver(pair.b, sent)  # unsealed, and its seal never arrives
    reasons: list[str] = []
    for _ in range(100):
        pair.now = pair.b.core.next_deadline()
        pair.b.core.handle_deadline(pair.now)
        pair.b.take(pair.now)
        pair.b.collect(pair.now)
        reasons = [report.reason for report in pair.b.all(Suspended)]
        if reasons or pair.b.code != ALIVE:
            break
    assert len(reasons) == 1
    assert pair.b.code == ALIVE
