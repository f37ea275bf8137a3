"""Tests of node/messaging/incoming_requests.py: a call has one answer."""

from parley._node.messaging.outgoing_requests import OutgoingCall
from parley._node.protocol.codes import LOST


def test_the_first_answer_is_the_answer() -> None:
    woken: list[str] = []
    call = OutgoingCall(lambda: woken.append("done"))
    assert not call.done
    call.finish(0, "first")
    call.finish(16, "second")
    assert (call.done, call.code, call.data, woken) == (True, 0, "first", ["done"])


def test_no_code_of_the_wire_means_lost() -> None:
    assert LOST < 0
