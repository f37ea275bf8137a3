"""Tests of node/messaging/requests.py."""

import math

from parley._node.protocol.codes import LOST, CloseCode
from tests.node.messaging.fake import Shell, call_event, cancel_event, result_event


def test_the_deadlines_of_both_sides() -> None:
    shell = Shell()
    assert shell.calls.deadlines.earliest == math.inf
    asked = shell.ask(2.0)
    shell.receive(call_event("x", 5, deadline=1000))
    assert 1.0 <= shell.calls.deadlines.earliest < 1.1
    shell.calls.expire_calls(1.1)
    assert shell.stopped == shell.started
    assert not asked.done
    assert 2.0 <= shell.calls.deadlines.earliest < 2.1
    shell.calls.expire_calls(2.1)
    assert asked.done


def test_what_nobody_took_on_either_side() -> None:
    shell = Shell()
    shell.receive(result_event(9, 0))
    shell.receive(call_event("nobody", 0))
    shell.receive(cancel_event("x"))
    assert shell.connection.dropped == 3


def test_the_end_of_the_connection_ends_all() -> None:
    shell = Shell()
    asked = [shell.ask(1.0), shell.ask()]
    given_up = shell.ask()
    shell.outgoing.cancel(given_up)
    for async_id in (5, 0):
        shell.receive(call_event("x", async_id))
    shell.connection.closed = True
    shell.calls.connection_ended(CloseCode.GOING_AWAY, "bye")
    for call in asked:
        assert (call.code, call.close_code, call.close_text) == (LOST, 1, "bye")
    assert shell.woken == 2
    assert set(shell.stopped) == set(shell.started)
    for incoming in shell.started:
        shell.incoming.answer(incoming, 0)
    shell.calls.expire_calls(9.0)
    assert shell.waiting() == []
    assert shell.woken == 2
