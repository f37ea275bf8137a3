"""Tests of node/messaging/idempotency.py: remembered calls and their limits."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from parley._crypto.identity import NodeId
from parley._lbm.codec import Encodable
from parley._node.messaging.call_codec import encode_result
from parley._node.messaging.idempotency import (
    NOT_REMEMBERED,
    ONCE_ID_WEIGHT,
    ONCE_WEIGHT,
    IdempotencyCache,
    IdempotentCall,
    fingerprint,
)
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import ONCE_KEPT, ONCE_RESULT
from parley._node.protocol.memory_budget import MemoryBudget

ALICE, BOB = NodeId(bytes([1] * 32)), NodeId(bytes([2] * 32))
QUESTION = fingerprint("order", "tea")
# What one call takes while it runs, without its request.
RUNNING = ONCE_WEIGHT + ONCE_RESULT


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def new_memory(
    results: int = 1_000,
    peer_memory: int = 1 << 30,
    memory: int = 1 << 30,
    on_ended: Callable[[], None] = lambda: None,
) -> IdempotencyCache:
    return IdempotencyCache(
        bytes(8), results=results, peer_memory=peer_memory, memory=memory, on_ended=on_ended
    )


def begin(
    memory: IdempotencyCache, number: int = 1, who: NodeId = ALICE, weight: int = 0
) -> IdempotentCall:
    call = memory.begin(who, key(number), QUESTION, weight)
    assert call is not None
    return call


def finish(memory: IdempotencyCache, call: IdempotentCall, code: int = 0, now: float = 0.0) -> None:
    memory.answer(call, code, encode_result(code), now)
    memory.end(call)


# Requests.


def test_a_question_is_its_topic_and_its_data() -> None:
    questions: list[tuple[str, Encodable]] = [
        ("order", "tea"),
        ("order", b"tea"),
        ("order", None),
        ("order", ["tea"]),
        ("ordert", "ea"),
        ("", "tea"),
    ]
    assert len({fingerprint(*question) for question in questions}) == len(questions)
    assert fingerprint("order", {"a": 1, "b": 2}) == fingerprint("order", {"b": 2, "a": 1})


def test_a_call_is_found_by_node_id_key_and_question() -> None:
    memory = new_memory()
    assert memory.find(ALICE, key(1), QUESTION, 0.0) is None
    call = begin(memory)
    assert memory.find(ALICE, key(1), QUESTION, 0.0) is call
    assert memory.find(BOB, key(1), QUESTION, 0.0) is None
    assert memory.find(ALICE, key(2), QUESTION, 0.0) is None
    assert memory.find(ALICE, key(1), bytes(32), 0.0) is ResultCode.MALFORMED
    finish(memory, call)
    assert memory.find(ALICE, key(1), QUESTION, 0.0) is call
    assert memory.find(ALICE, key(1), bytes(32), 0.0) is ResultCode.MALFORMED


def test_the_first_answer_is_the_answer() -> None:
    memory = new_memory()
    call = begin(memory)
    woken: list[int] = []
    call.waiting.add(lambda: woken.append(1))
    memory.answer(call, 17, encode_result(17), 5.0)
    assert woken == [1]
    memory.answer(call, 0, encode_result(0, "late"), 6.0)
    assert (call.code, call.answer, call.answered_at) == (17, encode_result(17), 5.0)
    assert memory.running == 1
    memory.end(call)
    memory.end(call)
    assert memory.running == 0


@pytest.mark.parametrize("code", [0, 1, 2, 3, 16, 17, 18, 64, 2**32 - 1])
def test_what_a_handler_answers_is_remembered(code: int) -> None:
    memory = new_memory()
    finish(memory, begin(memory), code)
    assert len(memory) == 1


@pytest.mark.parametrize("code", [19, 20, 21, 22, 23, 26, 27, 63])
def test_that_it_did_nothing_is_not_remembered(code: int) -> None:
    memory = new_memory()
    call = begin(memory)
    finish(memory, call, code)
    assert call.code == code
    assert code in NOT_REMEMBERED
    assert (len(memory), memory.held) == (0, 0)


def test_a_handler_that_was_stopped_with_its_node_said_nothing() -> None:
    ended: list[int] = []
    memory = new_memory(on_ended=lambda: ended.append(memory.running))
    call = begin(memory)
    memory.end(call)
    assert call.answer is not None
    assert (call.code, ended) == (ResultCode.OVERLOADED, [0])
    assert (len(memory), memory.held) == (0, 0)


# How long.


def test_a_result_is_remembered_for_ten_minutes_from_the_answer_on() -> None:
    memory = new_memory()
    first, second = begin(memory, 1), begin(memory, 2)
    finish(memory, second, now=1.0)
    finish(memory, first, now=100.0)
    assert memory.find(ALICE, key(2), QUESTION, ONCE_KEPT + 0.9) is second
    assert memory.find(ALICE, key(2), QUESTION, ONCE_KEPT + 1.0) is None
    assert memory.find(ALICE, key(1), QUESTION, ONCE_KEPT + 99.0) is first
    assert memory.find(BOB, key(1), QUESTION, ONCE_KEPT + 100.0) is None
    assert (len(memory), memory.held) == (0, 0)


def test_what_runs_is_never_forgotten() -> None:
    memory = new_memory()
    call = begin(memory)
    assert memory.find(ALICE, key(1), QUESTION, 1e9) is call


def test_a_handler_that_lingers_is_charged_for_what_it_was_given() -> None:
    memory = new_memory()
    call = begin(memory, weight=5_000)
    memory.answer(call, 17, encode_result(17), 0.0)
    assert memory.find(ALICE, key(1), QUESTION, ONCE_KEPT) is None
    assert memory.held == ONCE_ID_WEIGHT + 5_000
    # Its node ID returns in the meantime.
    other = begin(memory, 2)
    memory.end(call)
    assert memory.held == ONCE_ID_WEIGHT + RUNNING
    finish(memory, other, 19)
    assert memory.held == 0


# How much.


def test_so_many_of_a_node_id() -> None:
    memory = new_memory(results=3)
    for number in range(3):
        finish(memory, begin(memory, number), now=float(number))
    assert memory.find(ALICE, key(3), QUESTION, 599.0) is None
    assert memory.begin(ALICE, key(3), QUESTION, 0) is None
    assert not memory.may_wait(ALICE)
    finish(memory, begin(memory, 3, BOB))
    assert memory.find(ALICE, key(3), QUESTION, 600.0) is None  # the oldest is forgotten
    begin(memory, 3)
    assert memory.begin(ALICE, key(4), QUESTION, 0) is None


def test_so_many_bytes_of_a_node_id() -> None:
    answer = encode_result(0, bytes(1_000))
    kept = ONCE_WEIGHT + len(answer[2])
    memory = new_memory(peer_memory=ONCE_ID_WEIGHT + 5 * kept + RUNNING + 100)
    for number in range(5):
        call = begin(memory, number, weight=100)
        memory.answer(call, 0, answer, 0.0)
        memory.end(call)
        assert memory.held == ONCE_ID_WEIGHT + (number + 1) * kept
    assert memory.begin(ALICE, key(5), QUESTION, 101) is None
    begin(memory, 5, weight=100)
    assert memory.begin(ALICE, key(6), QUESTION, 0) is None
    assert memory.may_wait(ALICE)
    begin(memory, 6, BOB)


def test_so_many_bytes_of_all_node_ids() -> None:
    total = MemoryBudget(1 << 30)
    memory = IdempotencyCache(
        bytes(8),
        results=10,
        peer_memory=1 << 30,
        memory=3 * (ONCE_ID_WEIGHT + RUNNING),
        total=total,
    )
    calls = [begin(memory, 1, NodeId(bytes([number] * 32))) for number in range(3)]
    stranger = NodeId(bytes([99] * 32))
    assert memory.begin(stranger, key(1), QUESTION, 0) is None
    assert not memory.may_wait(stranger)
    assert total.held == memory.held == 3 * (ONCE_ID_WEIGHT + RUNNING)
    for call in calls:
        finish(memory, call, 19)
    assert total.held == memory.held == 0
    begin(memory, 1, stranger)
    memory.clear()
    assert total.held == memory.held == len(memory) == 0


def test_a_few_node_ids_do_not_use_up_the_memory_of_all() -> None:
    memory = new_memory(peer_memory=1 << 23, memory=1 << 26)
    answer = ResultCode.ACCEPTED, 5, bytes(ONCE_RESULT)
    for number in range(16):
        hostile, count = NodeId(bytes([number] * 32)), 0
        while (call := memory.begin(hostile, key(count), QUESTION, 0)) is not None:
            memory.answer(call, 0, answer, 0.0)
            memory.end(call)
            count += 1
        assert count >= 10
    good = NodeId(bytes([99] * 32))
    for number in range(20):
        finish(memory, begin(memory, number, good))
    # The result is kept all the same, for ten minutes.
    found = memory.find(NodeId(bytes([0] * 32)), key(0), QUESTION, 599.0)
    assert isinstance(found, IdempotentCall)
    assert found.answer == answer


def test_a_node_id_alone_gets_all_that_is_its_own() -> None:
    memory = new_memory(peer_memory=1 << 23, memory=1 << 26)
    count = 0
    while memory.begin(ALICE, key(count), QUESTION, 0) is not None:
        count += 1
    assert count == ((1 << 23) - ONCE_ID_WEIGHT) // RUNNING


def test_it_is_a_part_of_what_the_node_may_hold() -> None:
    memory = IdempotencyCache(
        bytes(8), results=10, peer_memory=1 << 30, memory=1 << 30, total=MemoryBudget(RUNNING)
    )
    assert memory.begin(ALICE, key(1), QUESTION, 0) is None
    assert memory.held == 0


def test_those_for_whom_there_is_no_room_are_woken_one_by_one() -> None:
    memory = new_memory(peer_memory=ONCE_ID_WEIGHT + RUNNING + 64)
    woken: list[str] = []
    wakes: dict[str, Callable[[], None]] = {
        name: lambda name=name: woken.append(name)  # type: ignore[misc]  # bound now
        for name in ("first", "second", "third", "fourth")
    }
    call = begin(memory)
    assert memory.may_wait(ALICE)
    for wake in wakes.values():
        memory.queue(ALICE, wake)
    memory.leave_line(ALICE, wakes["second"])  # it was cancelled in the line
    assert woken == []
    memory.answer(call, 19, encode_result(19), 0.0)
    assert woken == ["first"]
    memory.leave_line(ALICE, wakes["first"])  # cancelled when it had been woken
    assert woken == ["first", "third"]
    memory.end(call)
    assert woken == ["first", "third", "fourth"]
    memory.leave_line(ALICE, wakes["fourth"])
    assert (memory.held, len(memory)) == (0, 0)


@pytest.mark.parametrize("node_ids", [1, 200])
def test_it_weighs_no_less_than_it_takes(node_ids: int) -> None:
    who = [NodeId(number.to_bytes(32, "big")) for number in range(node_ids)]
    memory = new_memory()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(200):
            question = fingerprint("order", number)
            call = memory.begin(who[number % node_ids], key(number), question, 5_000)
            assert call is not None
            memory.answer(call, 0, encode_result(0, bytes(number)), 0.0)
            memory.end(call)
            del call
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.held / 3 < after - before <= memory.held


class Memories(RuleBasedStateMachine):
    """Compare the memory with a simple model: no limit is exceeded, and no call runs twice."""

    @initialize(results=st.integers(1, 4), kept=st.integers(0, 3))
    def start(self, results: int, kept: int) -> None:
        self.results = results
        self.peer_memory = ONCE_ID_WEIGHT + RUNNING + kept * (ONCE_WEIGHT + 200) + 300
        self.total = 2 * self.peer_memory
        self.memory = IdempotencyCache(
            bytes(8), results=results, peer_memory=self.peer_memory, memory=self.total
        )
        self.now = 0.0
        self.running: list[IdempotentCall] = []
        self.ran: dict[tuple[NodeId, bytes], float | None] = {}  # when it was answered

    @rule(who=st.integers(0, 3), number=st.integers(0, 5), weight=st.integers(0, 300))
    def ask(self, who: int, number: int, weight: int) -> None:
        place = NodeId(bytes([who] * 32)), key(number)
        found = self.memory.find(*place, QUESTION, self.now)
        known = place in self.ran
        answered = self.ran.get(place)
        if known and (answered is None or self.now < answered + ONCE_KEPT):
            assert isinstance(found, IdempotentCall)
            return
        assert found is None
        call = self.memory.begin(*place, QUESTION, weight)
        if call is not None:
            self.running.append(call)
            self.ran[place] = None

    @rule(data=st.data(), code=st.sampled_from([0, 16, 17, 19, 64]), size=st.integers(0, 180))
    def answer(self, data: st.DataObject, code: int, size: int) -> None:
        if not self.running:
            return
        call = data.draw(st.sampled_from(self.running))
        place = call.asker.node_id, call.key
        if call.answer is None:
            if code == 19:
                del self.ran[place]
            else:
                self.ran[place] = self.now
        self.memory.answer(call, code, encode_result(code, bytes(size)), self.now)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if not self.running:
            return
        call = data.draw(st.sampled_from(self.running))
        self.running.remove(call)
        if call.answer is None:
            del self.ran[call.asker.node_id, call.key]
        self.memory.end(call)

    @rule(seconds=st.sampled_from([1.0, 299.0, 300.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "memory"):
            return
        memory = self.memory
        assert memory.running == len(self.running)
        assert memory.held <= self.total
        assert memory.held == sum(a.account.held for a in memory.askers.values())
        for asker in memory.askers.values():
            assert len(asker.calls) <= self.results
            assert asker.account.held <= self.peer_memory
            assert asker.running == sum(call.asker is asker for call in self.running)

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            for call in self.running:
                self.memory.end(call)
            self.memory.find(ALICE, key(0), QUESTION, self.now + ONCE_KEPT)
            assert (len(self.memory), self.memory.held) == (0, 0)


TestMemories = Memories.TestCase
