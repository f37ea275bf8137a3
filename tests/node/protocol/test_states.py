"""Tests of the table of states: complete, reachable, and final where it should be."""

from itertools import product

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.states import (
    AWAITING_DECISION,
    HANDSHAKE,
    LIVE,
    NEXT,
    READING,
    SUSPENDED,
    Signal,
    State,
    next_state,
)


def test_every_pair_is_in_the_table_or_our_mistake() -> None:
    for state, signal in product(State, Signal):
        if (state, signal) in NEXT:
            assert next_state(state, signal) is NEXT[state, signal]
        else:
            with pytest.raises(RemoteProtocolError) as caught:
                next_state(state, signal)
            assert caught.value.code == CloseCode.INTERNAL_ERROR


def test_every_state_can_end_and_ended_is_final() -> None:
    for state in State:
        assert NEXT[state, Signal.END] is State.ENDED
    assert {nxt for (state, _), nxt in NEXT.items() if state is State.ENDED} == {State.ENDED}


def reachable(start: State) -> set[State]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for (state, _), nxt in NEXT.items():
            if state is here and nxt not in found:
                found.add(nxt)
                todo.append(nxt)
    return found


def test_both_sides_reach_all_but_the_others_first_state() -> None:
    everything = set(State)
    assert reachable(State.EXPECT_HELLO) == everything - {State.EXPECT_REPLY}
    asked = {State.EXPECT_HELLO, State.RESUMING}
    assert reachable(State.EXPECT_REPLY) == everything - asked


def test_an_encrypted_connection_opens_only_by_a_decision() -> None:
    into_open = {pair for pair, nxt in NEXT.items() if nxt is State.OPEN}
    assert into_open == {
        (State.EXPECT_HELLO, Signal.PLAINTEXT_REPLY),
        (State.EXPECT_REPLY, Signal.PLAINTEXT_REPLY),
        (State.DECIDING, Signal.ACCEPT),
        (State.SUSPENDED, Signal.TRANSPORT_RESUMED),
    }
    into_suspended = {state for (state, _), nxt in NEXT.items() if nxt is State.SUSPENDED}
    assert into_suspended == {State.OPEN}


def test_nothing_is_read_while_deciding_suspended_or_closing() -> None:
    assert set(State) - AWAITING_DECISION - SUSPENDED - {State.CLOSING, State.ENDED} == READING
    assert HANDSHAKE.isdisjoint(LIVE)
    for state, signal in NEXT:
        if state is State.CLOSING:
            assert signal is Signal.END
