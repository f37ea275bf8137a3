"""Tests of node/messaging/logins.py: one Answer to each Login and Logout, on stream 1 alone."""

from collections.abc import Sequence

import pytest

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import (
    ACCOUNT,
    ACCOUNT_ANSWER,
    CANCEL,
    LOGIN,
    LOGOUT,
    LOST,
    RESULT,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import (
    ConnectionClosedError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from tests.node.messaging.fake import (
    MAX_PAYLOAD,
    FakeConnection,
    Handlers,
    Sent,
    call_event,
    event,
    find,
)

EMPTY = encode({})


class Shell:
    """Both sides of one connection: `decided` are the exports of logins, None for a Logout."""

    def __init__(self, code: ResultCode = ResultCode.ACCEPTED) -> None:
        self.code = code
        self.connection = FakeConnection()
        self.decided: list[Sequence[str] | None] = []
        self.woken = 0
        core = self.connection.as_connection
        self.calls = RequestMux(core, Handlers(find, login=self.decide))
        self.logins = self.calls.logins
        topics = Topics(core, self.calls.incoming, [].__contains__)
        self.dispatch = Dispatch(core, self.calls, topics, lambda event: False)

    def decide(self, exports: Sequence[str] | None) -> ResultCode:
        self.decided.append(exports)
        return self.code

    def wake(self) -> None:
        self.woken += 1

    def receive(
        self, subcategory: int, payload: bytes = b"", async_id: int = 7, stream: int = 1
    ) -> list[Sent]:
        came = event(subcategory, payload, async_id=async_id, category=ACCOUNT, stream=stream)
        self.dispatch.receive(came, 0.0)
        return self.connection.take()

    def answer(self, payload: bytes, async_id: int = 1) -> None:
        self.receive(ACCOUNT_ANSWER, payload, async_id)


def answer(code: int, async_id: int = 7) -> Sent:
    return Sent(1, async_id, ACCOUNT, ACCOUNT_ANSWER, encode({keys.CODE: code}))


# Theirs.


@pytest.mark.parametrize("code", [ResultCode.ACCEPTED, ResultCode.NOT_AUTHORISED])
def test_each_gets_one_answer(code: ResultCode) -> None:
    shell = Shell(code)
    exports: Encodable = ["shop.*", "news"]
    assert shell.receive(LOGIN, encode({keys.EXPORTS: exports})) == [answer(code)]
    assert shell.receive(LOGIN, EMPTY) == [answer(code)]
    assert shell.receive(LOGIN) == [answer(code)]
    assert shell.receive(LOGOUT, EMPTY) == shell.receive(LOGOUT) == [answer(code)]
    assert shell.decided == [["shop.*", "news"], (), (), None, None]
    assert shell.connection.dropped == 0


def test_cells_of_others_are_as_good_as_absent() -> None:
    shell = Shell()
    shell.receive(LOGIN, encode({keys.ENVELOPES: [b"later"], keys.TOPIC: "x"}))
    shell.receive(LOGOUT, encode({keys.EXPORTS: ["x"]}))
    assert shell.decided == [(), None]


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        encode({keys.EXPORTS: "shop.*"}),
        encode({keys.EXPORTS: [1]}),
        encode({keys.EXPORTS: ["x"] * 65}),
        encode({keys.EXPORTS: ["x" * 257]}),
        encode({keys.ENVELOPES: b"one"}),
    ],
)
def test_what_is_malformed_is_told_so(payload: bytes) -> None:
    shell = Shell()
    assert shell.receive(LOGIN, payload) == [answer(ResultCode.MALFORMED)]
    assert shell.decided == []


@pytest.mark.parametrize("subcategory", [LOGIN, LOGOUT])
def test_nothing_else_is_answered(subcategory: int) -> None:
    shell = Shell()
    assert shell.receive(subcategory, async_id=0) == []
    assert shell.receive(subcategory, stream=3) == []
    assert shell.receive(9) == []
    assert shell.decided == []
    assert shell.connection.dropped == 3


@pytest.mark.parametrize("subcategory", [LOGIN, LOGOUT])
def test_an_id_that_is_taken(subcategory: int) -> None:
    shell = Shell()
    shell.dispatch.receive(call_event("x", 7), 0.0)
    with pytest.raises(RemoteProtocolError, match="used twice"):
        shell.receive(subcategory)
    assert shell.decided == []


def test_a_connection_without_accounts() -> None:
    connection = FakeConnection()
    core = connection.as_connection
    calls = RequestMux(core, Handlers(find))
    calls.logins.login_received(event(LOGIN, EMPTY, async_id=7, category=ACCOUNT), 0.0)
    assert connection.take() == [answer(ResultCode.NOT_AUTHORISED)]


# Ours.


def test_we_log_in_and_out() -> None:
    shell = Shell()
    first = shell.logins.login(["shop.*"], 0.0, 5.0, shell.wake)
    second = shell.logins.login([], 0.0, None, shell.wake)
    third = shell.logins.logout(0.0, None, shell.wake)
    assert shell.connection.take() == [
        Sent(1, 1, ACCOUNT, LOGIN, encode({keys.EXPORTS: ["shop.*"]})),
        Sent(1, 2, ACCOUNT, LOGIN, EMPTY),
        Sent(1, 3, ACCOUNT, LOGOUT, EMPTY),
    ]
    shell.answer(encode({keys.CODE: 0, keys.TEXT: "welcome"}), 1)
    shell.answer(encode({keys.CODE: 20}), 2)
    shell.answer(encode({keys.TEXT: "what?"}), 3)
    assert [call.done for call in (first, second, third)] == [True] * 3
    assert [call.code for call in (first, second, third)] == [0, 20, ResultCode.MALFORMED]
    assert shell.woken == 3
    shell.answer(encode({keys.CODE: 0}), 1)  # The request is not awaited.
    assert shell.connection.dropped == 1


def test_an_answer_of_another_kind_is_malformed() -> None:
    shell = Shell()
    ours = shell.logins.login([], 0.0, None, shell.wake)
    result = event(RESULT, encode({keys.CODE: 0}), async_id=ours.async_id)
    shell.dispatch.receive(result, 0.0)
    assert ours.code == ResultCode.MALFORMED


def test_a_login_has_its_time() -> None:
    shell = Shell()
    ours = shell.logins.login([], 0.0, 5.0, shell.wake)
    shell.calls.expire_calls(4.9)
    assert not ours.done
    shell.calls.expire_calls(5.1)
    assert (ours.done, ours.code) == (True, ResultCode.DEADLINE_EXCEEDED)
    assert shell.connection.take()[-1].subcategory == CANCEL


def test_a_login_ends_with_its_connection() -> None:
    shell = Shell()
    ours = shell.logins.login([], 0.0, 5.0, shell.wake)
    shell.calls.connection_ended(CloseCode.GOING_AWAY, "bye")
    assert (ours.code, ours.close_code, ours.close_text) == (LOST, CloseCode.GOING_AWAY, "bye")


def test_what_cannot_be_sent() -> None:
    shell = Shell()
    with pytest.raises(PayloadTooLargeError):
        shell.logins.login(["x" * 256] * (MAX_PAYLOAD // 256 + 1), 0.0, 5.0, shell.wake)
    shell.connection.closed = True
    with pytest.raises(ConnectionClosedError):
        shell.logins.logout(0.0, 5.0, shell.wake)
    assert len(shell.calls.outgoing) == 0
