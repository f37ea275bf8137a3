"""Tests of node/messaging/named_events.py: unread replies are bounded."""

import pytest

from parley._node.messaging.named_events import (
    REPLIES_MEMORY,
    REPLIES_SIZE,
    IncomingEmit,
    OutgoingEmit,
    Reply,
)
from parley._node.messaging.payloads import Payload
from parley._node.protocol.codes import EMIT, NAMED
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import REPLY_WEIGHT, MemoryBudget


def test_replies_are_taken_in_their_order() -> None:
    woken: list[int] = []
    emit = OutgoingEmit(lambda: woken.append(1))
    assert all(emit.put(number, 10) for number in range(3))
    assert [emit.take() for _ in range(3)] == [0, 1, 2]
    assert (emit.account.held, len(woken)) == (0, 3)
    with pytest.raises(IndexError):
        emit.take()


def test_no_more_than_the_limit_waits() -> None:
    emit = OutgoingEmit(lambda: None)
    size = REPLIES_MEMORY // 4 - REPLY_WEIGHT
    assert [emit.put(number, size) for number in range(5)] == [True] * 4 + [False]
    assert len(emit.replies) == 4


def test_no_more_than_a_mebibyte_of_cost_waits() -> None:
    emit = OutgoingEmit(lambda: None)
    size = REPLIES_SIZE // 2 - EVENT_COST
    assert [emit.put(number, 0, size) for number in range(3)] == [True, True, False]
    assert (emit.take(), emit.cost) == (0, REPLIES_SIZE // 2)
    assert emit.put(3, 0, size)
    emit.drop_replies()
    assert emit.cost == 0


def test_empty_replies_cost_as_well() -> None:
    emit = OutgoingEmit(lambda: None)
    count = 0
    while emit.put(None, 0):
        count += 1
    assert count == REPLIES_MEMORY // REPLY_WEIGHT


def test_what_is_taken_makes_room() -> None:
    emit = OutgoingEmit(lambda: None)
    all_of_it = REPLIES_MEMORY - REPLY_WEIGHT
    assert emit.put(1, all_of_it)
    assert emit.take() == 1
    assert emit.put(2, all_of_it)
    emit.drop_replies()
    assert emit.put(3, all_of_it)
    assert not emit.put(4, 0)
    assert emit.take() == 3


def test_what_waits_counts_for_its_connection_until_nobody_has_it() -> None:
    connection = MemoryBudget(1_000)
    emits = [OutgoingEmit(lambda: None) for _ in range(2)]
    for emit in emits:
        emit.account = MemoryBudget(REPLIES_MEMORY, connection)
    assert [emit.put(None, 300) for emit in emits] == [True, False]
    assert connection.held == 300 + REPLY_WEIGHT
    del emit, emits
    assert connection.held == 0


def test_a_final_answer_ends_it_once() -> None:
    woken: list[int] = []
    emit = OutgoingEmit(lambda: woken.append(1))
    emit.finish(0, "last")
    emit.finish(500, "late")
    assert (emit.done, emit.code, emit.data, len(woken)) == (True, 0, "last", 1)
    assert emit.category == NAMED


def test_a_reply_shows_its_name_and_no_content() -> None:
    assert repr(Reply(b"secret", None, name="tick", last=True)) == "<Reply 'tick', the last>"
    assert repr(Reply(b"secret", None)) == "<Reply ''>"


def test_an_event_that_came_has_its_own_kinds_of_ends() -> None:
    emit = IncomingEmit("ping", "game", Payload(b"", None), 1, 7, 10, 20)
    assert (emit.topic, emit.namespace, emit.subcategory, emit.cost) == ("ping", "game", EMIT, 20)
    assert emit.category == NAMED
