"""Tests of node/messaging/application_events.py: ids, answers, cancels, ends; without a network."""

import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.messaging.application_events import (
    IncomingRequest,
    OutgoingRequest,
    StreamRequests,
)
from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.protocol.codes import CALL, CANCEL, EMIT, NAMED, RESULT, SIM
from parley._node.protocol.errors import LocalProtocolError, RemoteProtocolError, violation
from parley._node.protocol.event import Event
from tests.node.messaging.fake import FakeConnection, Sent

NEVER = float("inf")


class Shell:
    """Requests over a recorded connection; `taken` are ids that calls use."""

    def __init__(self, count_limit: int = 3) -> None:
        self.connection = FakeConnection()
        self.taken: set[tuple[int, int]] = set()
        self.woken: list[str] = []
        self.deadlines: DeadlineQueue[OutgoingRequest] = DeadlineQueue()
        self.requests = StreamRequests(
            self.connection.as_connection,
            self.deadlines,
            self.require_free,
            count_limit=count_limit,
        )

    def handle_deadline(self, now: float) -> None:
        for request in self.deadlines.pop_due(now):
            self.requests.expire(request)

    def require_free(self, stream: int, async_id: int) -> None:
        if (stream, async_id) in self.taken:
            raise violation("taken")

    def ask(
        self, stream: int = 3, timeout: float | None = None, name: str = "asker"
    ) -> OutgoingRequest:
        return self.requests.ask(
            stream, 64, 1, b"?", False, 10.0, timeout, lambda: self.woken.append(name)
        )

    def asked(self, stream: int, async_id: int) -> IncomingRequest:
        request = self.requests.request_received(stream, async_id, 100)
        assert request is not None
        return request


def event(stream: int, async_id: int, category: int, subcategory: int, payload: bytes) -> Event:
    return Event(stream, async_id, category, subcategory, payload, 0)


def app(stream: int, async_id: int) -> Event:
    return Event(stream, async_id, 64, 2, b"!", 65)


def cancel(stream: int, async_id: int) -> Event:
    return event(stream, 0, SIM, CANCEL, encode({keys.REQUEST: async_id}))


def is_done(request: OutgoingRequest) -> bool:
    """Its word of the moment."""
    return request.done


def cancels(shell: Shell) -> list[tuple[int, int, object]]:
    sent: list[Sent] = shell.connection.sent
    return [
        (one.stream, one.async_id, one.cells[keys.REQUEST])
        for one in sent
        if (one.category, one.subcategory) == (SIM, CANCEL)
    ]


def test_a_request_and_its_answer() -> None:
    shell = Shell()
    request = shell.ask()
    assert [sent[:5] for sent in shell.connection.sent] == [(3, 1, 64, 1, b"?")]
    assert repr(shell.requests) == "<StreamRequests: 1 outgoing, 0 incoming>"
    assert not shell.requests.answer_received(app(5, 1))
    assert not shell.requests.answer_received(app(3, 2))
    assert shell.requests.answer_received(app(3, 1))
    assert request.answer == app(3, 1)
    assert shell.woken == ["asker"]
    assert not shell.requests.answer_received(app(3, 1))
    assert not len(shell.requests)


def test_what_cannot_be_sent_takes_no_id() -> None:
    shell = Shell()
    shell.connection.gone.add(3)
    with pytest.raises(LocalProtocolError):
        shell.ask()
    assert not len(shell.requests)


def test_who_gives_up_keeps_the_id_until_the_answer() -> None:
    shell = Shell()
    request = shell.ask(timeout=5)
    shell.requests.cancel(request)
    shell.requests.cancel(request)
    assert cancels(shell) == [(3, 0, 1)]
    assert shell.ask().async_id == 2
    assert len(shell.deadlines) == 0
    assert shell.requests.answer_received(app(3, 1))
    assert request.answer is None
    assert shell.woken == []


def test_a_deadline() -> None:
    shell = Shell()
    late, other = shell.ask(timeout=1, name="late"), shell.ask(timeout=NEVER, name="other")
    assert 11 < shell.deadlines.earliest < 11.1
    shell.handle_deadline(10.9)
    assert not is_done(late)
    shell.handle_deadline(11.1)
    assert late.late
    assert is_done(late)
    assert not is_done(other)
    assert shell.woken == ["late"]
    assert cancels(shell) == [(3, 0, 1)]
    assert len(shell.requests) == 2
    assert shell.requests.answer_received(app(3, 1))
    assert late.answer is None


def test_no_cancel_where_nothing_may_be_sent() -> None:
    shell = Shell()
    request = shell.ask(timeout=1)
    shell.connection.gone.add(3)
    shell.handle_deadline(20.0)
    assert request.late
    assert cancels(shell) == []


def test_being_asked_and_answering() -> None:
    shell = Shell()
    request = shell.asked(3, 9)
    ends: list[bool] = []
    request.on_over = lambda: ends.append(request.cancelled)
    shell.requests.answer_sent(request)
    assert ends == [False]
    shell.asked(3, 9)
    request.end(cancelled=True)
    assert ends == [False]


def test_an_id_used_twice_is_a_violation() -> None:
    shell = Shell()
    shell.asked(3, 9)
    shell.asked(5, 9)
    with pytest.raises(RemoteProtocolError, match="twice"):
        shell.asked(3, 9)
    shell.taken.add((3, 4))
    with pytest.raises(RemoteProtocolError, match="taken"):
        shell.asked(3, 4)


def test_the_bound_of_unanswered_requests() -> None:
    shell = Shell(count_limit=2)
    first = shell.asked(3, 1)
    shell.asked(5, 1)
    assert shell.requests.request_received(7, 1, 100) is None
    with pytest.raises(RemoteProtocolError):
        shell.asked(3, 1)
    shell.requests.answer_sent(first)
    shell.asked(7, 1)


@pytest.mark.parametrize("kind", [(SIM, CALL), (NAMED, EMIT)])
def test_requests_of_the_base_protocol_may_not_use_a_taken_id(kind: tuple[int, int]) -> None:
    shell = Shell()
    shell.asked(3, 9)
    for free in ((3, 8), (5, 9)):
        assert not shell.requests.claims(event(*free, *kind, b""))
    with pytest.raises(RemoteProtocolError, match="twice"):
        shell.requests.claims(event(3, 9, *kind, b""))


def test_an_answer_of_the_base_protocol_may_have_any_id() -> None:
    shell = Shell()
    shell.asked(3, 9)
    assert not shell.requests.claims(event(3, 9, SIM, RESULT, b""))


def test_cancel() -> None:
    shell = Shell()
    request = shell.asked(3, 9)
    for other in (cancel(3, 8), cancel(5, 9), event(3, 0, SIM, CANCEL, b"junk")):
        assert not shell.requests.claims(other)
    assert shell.requests.claims(cancel(3, 9))
    assert shell.requests.claims(cancel(3, 9))
    assert request.cancelled
    assert request.over
    with pytest.raises(RemoteProtocolError):
        shell.asked(3, 9)
    shell.requests.answer_sent(request)
    shell.asked(3, 9)


def test_the_end_of_a_direction() -> None:
    shell = Shell()
    theirs, elsewhere = shell.asked(3, 9), shell.asked(5, 9)
    ours, other = shell.ask(3), shell.ask(5)
    shell.requests.local_ended(3)
    assert theirs.cancelled
    assert not is_done(ours)
    shell.requests.remote_ended(3)
    assert is_done(ours)
    assert ours.answer is None
    assert not elsewhere.over
    assert not is_done(other)
    assert cancels(shell) == []


def test_nobody_waits_any_more() -> None:
    shell = Shell()
    given_up, waiting = shell.ask(3), shell.ask(3, timeout=1)
    shell.requests.cancel(given_up)
    shell.requests.abandon(3)
    assert is_done(waiting)
    assert not waiting.late
    assert cancels(shell) == [(3, 0, 1), (3, 0, 2)]
    assert len(shell.deadlines) == 0
    assert not len(shell.requests)


def test_the_end_of_the_connection() -> None:
    shell = Shell()
    ours = [shell.ask(stream, timeout=1) for stream in (3, 5)]
    theirs = [shell.asked(stream, 1) for stream in (3, 5)]
    shell.requests.connection_ended()
    assert all(request.done and not request.late for request in ours)
    assert all(request.cancelled for request in theirs)
    assert not len(shell.requests)
    assert len(shell.deadlines) == 0
