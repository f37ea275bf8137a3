"""Tests of fair scheduling: waiting bytes stay in order, and connections share the loop."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.transport.fair_reads import ROUND_TIME, TURN_TIME, FairScheduler, ReadBuffer


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9), st.integers(0, 9))
def test_what_was_put_is_taken_in_its_order(
    pieces: list[bytes], size: int, taken_between: int
) -> None:
    turns = ReadBuffer()
    taken = b""
    for piece in pieces:
        turns.put(piece)
        turns.size = taken_between
        part = turns.take()
        assert len(part) <= taken_between
        taken += part
    turns.size = size
    while turns.waiting:
        part = turns.take()
        assert 0 < len(part) <= size
        taken += part
    assert taken == b"".join(pieces)


@pytest.mark.parametrize("how", ["never put", "taken", "forgotten"])
def test_nothing_waits_that_is_not_kept(how: str) -> None:
    turns = ReadBuffer()
    if how != "never put":
        turns.put(b"some")
    if how == "taken":
        assert turns.take() == b"some"
    elif how == "forgotten":
        turns.clear()
    assert not turns.waiting
    assert turns.take() == b""


class Worker:
    """A connection with some work; `cost` is the time of one step."""

    def __init__(self, scene: "Loop", name: str, steps: int, cost: float) -> None:
        self.scene, self.name, self.steps, self.cost = scene, name, steps, cost
        self.reads = ReadBuffer()

    def read(self, data: bytes, now: float, end: float) -> bool:
        while self.steps:
            self.steps -= 1
            self.scene.time += self.cost
            self.scene.done.append(self.name)
            if self.scene.time >= end:
                break
        return bool(self.steps)

    def step(self, more: bool) -> None:
        if more:
            self.scene.scheduler.queue(self)

    def come(self) -> None:
        """Receive work: run now, or wait for a turn."""
        if not self.scene.scheduler.run(self):
            self.scene.scheduler.queue(self)


class Loop:
    """A scheduler, a clock, and a log of the work done."""

    def __init__(self) -> None:
        self.time = 5.0
        self.done: list[str] = []
        self.due: list[Callable[[], None]] = []
        self.scheduler = FairScheduler(lambda: self.time, self.due.append)

    def turn(self) -> None:
        due, self.due[:] = list(self.due), []
        assert len(due) <= 1
        for callback in due:
            callback()


def test_those_who_wait_share_a_round_however_many_they_are() -> None:
    loop = Loop()
    workers = [Worker(loop, str(number), 40, TURN_TIME / 4) for number in range(20)]
    for worker in workers:
        loop.scheduler.queue(worker)
    for _ in range(10):
        start, before = loop.time, len(loop.done)
        loop.turn()
        assert loop.time - start <= ROUND_TIME + TURN_TIME / 4
        assert len(loop.done) > before
    while loop.due:
        loop.turn()
        left = [worker.steps for worker in workers if worker.steps]
        assert not left or max(left) - min(left) <= 8
    assert not any(worker.steps for worker in workers)


def test_who_waits_alone_has_the_whole_round() -> None:
    loop = Loop()
    worker = Worker(loop, "a", 100, TURN_TIME / 4)
    loop.scheduler.queue(worker)
    loop.turn()
    assert loop.time == pytest.approx(5.0 + ROUND_TIME)


def test_who_took_long_comes_after_those_who_took_little() -> None:
    """Independent of the cause: a step that takes twenty turns counts in full."""
    loop = Loop()
    long, short = Worker(loop, "long", 9, 20 * TURN_TIME), Worker(loop, "s", 100, TURN_TIME / 2)
    long.come()
    short.come()
    while loop.due and short.steps:
        loop.turn()
    assert loop.done[0] == "long"
    assert set(loop.done[1:40]) == {"s"}
    assert 2 <= loop.done[1:].count("long") <= 3


def test_in_one_turn_of_the_loop_one_long_step_is_let_pass() -> None:
    loop = Loop()
    for number in range(20):
        Worker(loop, str(number), 1, 20 * TURN_TIME).come()
    assert loop.done == ["0"]
    light = Worker(loop, "light", 1, TURN_TIME / 10)
    loop.turn()
    assert loop.done == ["0", "1"]
    light.come()
    assert loop.done[-1] == "light"  # the one with little work doesn't wait for the others
    while loop.due:
        loop.turn()
    assert [name for name in loop.done if name != "light"] == [str(n) for n in range(20)]


def test_who_was_silent_has_no_claim_to_the_time_of_others() -> None:
    loop = Loop()
    busy, silent = (Worker(loop, name, 400, TURN_TIME) for name in ("busy", "silent"))
    loop.scheduler.queue(busy)
    while busy.steps > 200:
        loop.turn()
    loop.scheduler.queue(silent)
    before = len(loop.done)
    while len(loop.done) < before + 100:
        loop.turn()
    assert 45 <= loop.done[before:].count("busy") <= 55


def test_a_turn_that_fails_keeps_nobody_waiting() -> None:
    loop = Loop()
    bad, good = Worker(loop, "bad", 1, 0.0), Worker(loop, "good", 1, 0.0)

    def fail(data: bytes, now: float, end: float) -> bool:
        raise ZeroDivisionError

    bad.read = fail  # type: ignore[method-assign]  # to fail
    loop.scheduler.queue(bad)
    loop.scheduler.queue(good)
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.turn()
    assert loop.done == ["good"]
