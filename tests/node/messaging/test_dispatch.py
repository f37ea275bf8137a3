"""Tests of node/messaging/dispatch.py: where each event goes, and its answer."""

import pytest

from parley._lbm import keys
from parley._lbm.codec import Encodable
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import (
    CALL,
    CHUNK,
    DATA,
    EMIT,
    END,
    ERROR,
    NAMED,
    NOTES,
    NOTIFY,
    REPLY_EVENT,
    RESULT,
    SIM,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.protocol.request_ids import LAST_ASYNC_ID
from tests.node.messaging.fake import FakeConnection, Handlers, call_event, event, find


class Shell:
    """Return a dispatch whose streams accept events on stream 4 only."""

    def __init__(self) -> None:
        self.connection = FakeConnection()
        connection = self.connection.as_connection
        self.started: list[IncomingCall] = []
        self.data: list[bytes] = []
        self.calls = RequestMux(connection, Handlers(find, self.started.append))
        self.topics = Topics(connection, self.calls.incoming, ["known"].__contains__)
        self.dispatch = Dispatch(connection, self.calls, self.topics, self.take)

    @property
    def dropped(self) -> int:
        return self.connection.dropped

    def take(self, event: Event) -> bool:
        if event.stream != 4:
            return False
        self.data.append(event.payload)
        return True


def test_calls_go_to_calls() -> None:
    shell = Shell()
    shell.dispatch.receive(call_event("x", 5, cost=100), 0.0)
    assert [call.topic for call in shell.started] == ["x"]
    assert shell.connection.consumed == []
    assert shell.dropped == 0


def test_data_goes_to_its_reader_who_keeps_its_credit() -> None:
    shell = Shell()
    for stream in (4, 6, 1):
        shell.dispatch.receive(
            event(DATA, b"abc", category=STREAM, stream=stream, cost=67 * (stream > 1)), 0.0
        )
    assert shell.data == [b"abc"]
    assert shell.connection.consumed == [(6, 67)]
    assert shell.dropped == 2


@pytest.mark.parametrize(
    ("subcategory", "code"),
    [
        (SUBSCRIBE, ResultCode.TOPIC_NOT_FOUND),
        (UNSUBSCRIBE, ResultCode.TOPIC_NOT_FOUND),
        (NOTIFY, ResultCode.NOT_SUBSCRIBED),
    ],
)
def test_requests_of_topics_are_answered(subcategory: int, code: int) -> None:
    shell = Shell()
    for cells, expected in [
        ({keys.TOPIC: "nobody"}, code),
        ({keys.TOPIC: 5}, ResultCode.MALFORMED),
    ]:
        shell.dispatch.receive(event(subcategory, cells, async_id=7, stream=4, cost=9), 0.0)  # type: ignore[arg-type]  # cells
        (sent,) = shell.connection.take()
        assert sent[:4] == (4, 7, SIM, RESULT)
        assert sent.cells == {keys.CODE: expected}
    assert shell.connection.consumed == [(4, 9), (4, 9)]
    shell.dispatch.receive(event(subcategory, {keys.TOPIC: "nobody"}), 0.0)
    assert shell.connection.sent == []


@pytest.mark.parametrize(
    ("cells", "subcategory"),
    [
        ({keys.NAME: "x"}, END),
        ({keys.NAME: "x", keys.NAMESPACE: "y"}, END),
        ({}, ERROR),
        ({keys.NAME: 5}, ERROR),
        (b"junk", ERROR),
    ],
)
def test_an_emit_is_answered_if_it_wants_to_be(
    cells: dict[int, Encodable] | bytes, subcategory: int
) -> None:
    shell = Shell()
    shell.dispatch.receive(event(EMIT, cells, async_id=7, category=NAMED), 0.0)
    shell.dispatch.receive(event(EMIT, cells, category=NAMED), 0.0)
    (sent,) = shell.connection.take()
    assert sent[:4] == (1, 7, NAMED, subcategory)
    # Ignored events count; a refusal is an answer, and an unwanted one counts.
    assert shell.dropped == (2 if subcategory == END else 1)


@pytest.mark.parametrize(
    ("category", "subcategory"),
    [(SIM, CHUNK), (SIM, NOTES), (SIM, 99), (NAMED, REPLY_EVENT), (NAMED, 99), (5, 1), (64, 1)],
)
def test_everything_else_is_dropped_and_counted(category: int, subcategory: int) -> None:
    shell = Shell()
    shell.dispatch.receive(
        event(subcategory, b"x", category=category, async_id=7, stream=6, cost=65), 0.0
    )
    assert shell.dropped == 1
    assert shell.connection.sent == []
    assert shell.connection.consumed == [(6, 65)]


@pytest.mark.parametrize(("category", "subcategory"), [(SIM, SUBSCRIBE), (NAMED, EMIT)])
def test_the_id_of_an_unanswered_call_is_no_one_else_s(category: int, subcategory: int) -> None:
    shell = Shell()
    shell.dispatch.receive(call_event("x", 7), 0.0)
    cells: dict[int, Encodable] = {keys.TOPIC: "x", keys.NAME: "x"}
    with pytest.raises(RemoteProtocolError) as caught:
        shell.dispatch.receive(event(subcategory, cells, category=category, async_id=7), 0.0)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(("category", "subcategory"), [(SIM, SUBSCRIBE), (NAMED, EMIT)])
def test_answers_that_nobody_reads_end_the_connection(category: int, subcategory: int) -> None:
    shell = Shell()
    shell.connection.unwritten[1] = LAST_ASYNC_ID + 1
    cells: dict[int, Encodable] = {keys.TOPIC: "nobody", keys.NAME: "x"}
    with pytest.raises(RemoteProtocolError) as caught:
        shell.dispatch.receive(event(subcategory, cells, category=category, async_id=7), 0.0)
    assert caught.value.code == CloseCode.OVERLOADED


def test_a_closing_connection_answers_nothing() -> None:
    shell = Shell()
    shell.connection.closed = True
    shell.dispatch.receive(event(EMIT, {keys.NAME: "x"}, async_id=7, category=NAMED), 0.0)
    shell.dispatch.receive(event(SUBSCRIBE, {keys.TOPIC: "x"}, async_id=8), 0.0)
    assert shell.connection.sent == []


def test_what_counts_against_the_allowance_is_what_the_other_side_does_wrong() -> None:
    shell = Shell()
    for wrong in (
        event(CALL, {keys.TOPIC: "nobody"}),
        event(CALL, b"malformed"),
        event(99, {}),
        event(RESULT, {keys.CODE: 0}, async_id=7),
        Event(1, 0, 9, 1, b"", 0),
        Event(1, 0, 64, 1, b"", 0),
    ):
        shell.dispatch.receive(wrong, 0.0)
    assert shell.connection.charged == [True] * 6


def test_what_is_dropped_for_a_reason_of_ours_does_not() -> None:
    """Events without capacity, a cancelled answer, and an event without a handler."""
    shell = Shell()
    call = shell.calls.outgoing.call("x", None, 0.0, None, lambda: None)
    shell.calls.outgoing.cancel(call)
    shell.dispatch.receive(event(CHUNK, {}, async_id=call.async_id), 0.0)
    shell.dispatch.receive(event(EMIT, {keys.NAME: "unheard"}, category=NAMED), 0.0)
    assert shell.connection.charged == [False] * 2
    for _ in range(UNANSWERED_REQUESTS + 3):
        shell.dispatch.receive(call_event("x", 0), 0.0)
    assert shell.connection.charged == [False] * 5
