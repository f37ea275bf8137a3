"""Requests: cancelled calls, and the single response to each request."""

import pytest

from parley._node.dialects.simproto.codec import RESPONSE, RPC, SUBSCRIBE, serialise_message
from parley._node.dialects.simproto.requests import response_code
from parley._node.protocol.codes import ResultCode
from tests.node.dialects.simproto.sides import TIGHT, Side, call, request


def test_a_caller_may_be_shorter_of_patience() -> None:
    side = Side(TIGHT)
    answer, other = call(side, timeout=1.0), call(side, timeout=30.0)
    assert 1.0 <= side.sim.next_deadline() < 1.1
    side.at(1.1)
    assert answer == [ResultCode.DEADLINE_EXCEEDED, None]
    assert side.ended is None
    assert side.sim.next_deadline() == float("inf")  # the other one has the timeout of all dialogs
    side.receive(serialise_message(RESPONSE, 1, b"\0late"))
    assert side.ended is None
    side.receive(serialise_message(RESPONSE, 2, b"\0x"))
    assert other == [0, b"x"]


def test_a_late_response_is_ignored_after_cancellation() -> None:
    side = Side(TIGHT)
    done: list[int] = []
    asked = side.sim.outgoing.call("echo", b"", 0.0, 5.0, lambda: done.append(1))
    side.sim.outgoing.cancel(asked)
    assert side.core.free_dialogs == TIGHT.requests - 1
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert side.ended is None
    assert not done
    assert side.core.free_dialogs == TIGHT.requests


def test_an_answered_call_leaves_no_deadline() -> None:
    side = Side(TIGHT)
    call(side, timeout=5.0)
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert len(side.sim.outgoing.deadlines) == 0


def test_an_answer_that_is_too_long_is_a_failure() -> None:
    side = Side(TIGHT)
    side.receive(request(RPC, "wait", dialog=3))
    answer = side.sim.incoming.answer
    assert not answer(side.pending[0], ResultCode.ACCEPTED, b"x" * 256, 0.0)
    assert side.said() == serialise_message(RESPONSE, 3, b"\x01")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 16, 20, 64, 2**32 - 1])
def test_codes_are_the_documents(code: int) -> None:
    assert response_code(RPC, code) == (1 if code else 0)
    assert response_code(SUBSCRIBE, code) == min(code, 3)


def test_an_id_is_free_once_it_is_answered() -> None:
    side = Side()
    side.receive(request(RPC, "wait", dialog=5))
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"x", 0.0)
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"again", 0.0)
    assert side.said() == serialise_message(RESPONSE, 5, b"\0x")
    assert side.receive(request(RPC, "echo", dialog=5)) == serialise_message(RESPONSE, 5, b"\0")
