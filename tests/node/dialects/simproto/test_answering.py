"""What we are asked: one response each, with a code that the document has."""

import pytest

from node.dialects.simproto.codec import RESPONSE, RPC, SUBSCRIBE, serialise_message
from node.dialects.simproto.requests import response_code
from node.protocol.codes import ResultCode
from tests.node.dialects.simproto.sides import TIGHT, Side, request


def test_an_answer_that_is_too_long_is_a_failure() -> None:
    side = Side(TIGHT)
    side.receive(request(RPC, "wait", dialog=3))
    answer = side.sim.incoming.answer
    assert not answer(side.pending[0], ResultCode.ACCEPTED, b"x" * 256, 0.0)
    assert side.said() == serialise_message(RESPONSE, 3, b"\x01")


def test_an_id_is_free_once_it_is_answered() -> None:
    side = Side()
    side.receive(request(RPC, "wait", dialog=5))
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"x", 0.0)
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"again", 0.0)
    assert side.said() == serialise_message(RESPONSE, 5, b"\0x")
    assert side.receive(request(RPC, "echo", dialog=5)) == serialise_message(RESPONSE, 5, b"\0")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 16, 20, 64, 2**32 - 1])
def test_codes_are_the_documents(code: int) -> None:
    assert response_code(RPC, code) == (1 if code else 0)
    assert response_code(SUBSCRIBE, code) == min(code, 3)
