"""Tests of a driver whose core continues without its transport and over another one, without
I/O.
"""

import pytest

from parley._node.transport.transport import WriteBarrier
from tests.node.transport.test_driver import FINISHED, FakeOutlet, Scene


class Parting(Scene):
    """A scene whose core is suspended when it loses its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.core.receive_eof = self.part  # type: ignore[method-assign]

    def part(self, now: float) -> None:
        self.core.told.append("parted")
        self.core.is_suspended = True

    def resume(self) -> FakeOutlet:
        """Resume over a new transport of another driver, which has received bytes already."""
        giver = Scene()
        giver.connect()
        self.core.is_suspended = False
        giver.driver.reads.put(b" kept")
        giver.driver.hand_over(self.driver, b"rest")
        giver.loop.turn()
        assert giver.closed == 1
        assert "close" not in giver.transport.done
        return giver.transport


def test_a_transport_that_is_lost_is_closed_and_another_goes_on() -> None:
    scene = Parting()
    scene.connect()
    assert scene.transport.served is None  # the backend closes it
    scene.driver.ended()
    scene.loop.turn()
    assert scene.transport.done == ["close"]
    assert scene.driver.was_connected
    assert not scene.closed
    scene.core.chunks = [b"later"]
    scene.core.wake()
    scene.loop.turn()
    assert ("data_to_send",) not in scene.core.told[1:]
    transport = scene.resume()
    scene.loop.turn()
    assert transport.served is scene.driver
    assert transport.done == [
        "pause",
        "resume",
        b"later",
    ]  # bytes received before the resumption are processed first
    assert ("receive_data", b"rest kept") in scene.core.told


def test_while_parted_time_goes_on_and_callers_wait() -> None:
    scene = Parting()
    scene.connect()
    scene.driver.ended()
    scene.loop.turn()
    scene.core.deadline = scene.loop.time + 5
    scene.core.queued_bytes = scene.driver.high_water + 1
    assert not scene.driver.can_send
    scene.driver.step()
    scene.loop.turn()
    scene.loop.move(5)
    assert ("handle_deadline", scene.loop.time) in scene.core.told
    scene.core.ended = True
    scene.driver.step()
    assert scene.closed == 1
    assert scene.driver.can_send  # callers don't wait for a connection that has ended


def test_a_core_that_parts_at_a_deadline_or_on_what_came_lets_go() -> None:
    for how in ("deadline", "data", "settle"):
        scene = Parting()
        scene.connect()
        if how == "deadline":
            scene.core.deadline = scene.loop.time + 1
            scene.core.handle_deadline = scene.part  # type: ignore[method-assign]
            scene.driver.step()
            scene.loop.turn()
            scene.loop.move(1)
        elif how == "data":
            scene.core.on_data = lambda one=scene: one.part(0.0)  # type: ignore[misc]  # bound now
            scene.driver.received(b"x")
        else:
            scene.part(0.0)
            scene.driver.step()
        assert scene.transport.done == ["close"], how
        assert not scene.closed


def test_a_live_transport_gives_way_and_what_it_brought_is_forgotten() -> None:
    scene = Parting()
    scene.connect()
    scene.core.wants_data = False
    scene.driver.received(b"old")
    assert scene.driver.reads.waiting
    scene.core.wants_data = True
    transport = scene.resume()
    scene.loop.turn()
    assert scene.transport.done[-1] == "close"
    assert [told for told in scene.core.told if told[0] == "receive_data"] == [
        ("receive_data", b"rest kept")
    ]
    assert transport.done == ["pause", "resume"]


def test_a_transport_that_had_ended_when_it_came_is_lost_again() -> None:
    scene, giver = Parting(), Scene()
    scene.connect()
    scene.driver.ended()
    giver.connect()
    giver.driver.reads.queued = True  # it waits for its turn
    giver.driver.received(b"x")
    giver.driver.ended()
    scene.core.is_suspended = False
    giver.driver.hand_over(scene.driver, b"")
    scene.loop.turn()
    assert scene.core.told.count("parted") == 2
    assert giver.transport.done[-1] == "close"


def test_what_comes_for_a_driver_that_is_closed_is_closed() -> None:
    scene, giver = Parting(), Scene()
    scene.connect()
    scene.core.ended = True
    scene.driver.step()
    giver.connect()
    giver.driver.hand_over(scene.driver, b"")
    assert giver.transport.done == ["close"]
    assert giver.closed == 1


def test_reports_are_handed_on_without_a_transport() -> None:
    scene = Parting()
    scene.connect()
    scene.driver.ended()
    scene.core.happened = [FINISHED]
    scene.core.wake()
    scene.loop.turn()
    assert scene.reports == [FINISHED]


@pytest.mark.parametrize("safe", [False, True])
def test_a_gate_holds_for_the_new_transport_what_it_held_for_the_last(safe: bool) -> None:
    position = {"recorded": 1, "safe": 1 if safe else 0}
    gate = WriteBarrier(lambda: position["recorded"], lambda: position["safe"])
    scene, giver = Parting(), Scene()
    scene.driver.barrier = giver.driver.barrier = gate
    scene.core.chunks = [b"first"]
    scene.connect()
    scene.driver.ended()
    giver.core.chunks = [b"asked"]
    giver.connect()
    scene.core.is_suspended = False
    scene.core.chunks = [b"first"]  # again, because it is unknown whether they arrived
    giver.driver.hand_over(scene.driver, b"")
    scene.loop.turn()
    position["safe"] = 1
    gate.release()
    assert scene.transport.done == ([b"first", "close"] if safe else ["close"])
    assert giver.transport.done == ([b"asked", b"first"] if safe else [b"first"])
    assert not gate.holding
