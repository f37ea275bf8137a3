"""Tests of node/transport/driver.py with a scripted core, transport and loop, without I/O or real
time.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import anyio
import pytest
from anyio import create_task_group, move_on_after

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import FLUSH_SIZE, Connection
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded, Report, StreamFinished
from parley._node.protocol.send_queue import SendQueue
from parley._node.transport.backend import Backend
from parley._node.transport.driver import (
    FLUSH_EVENTS,
    HIGH_WATER,
    LEAST_PAUSE,
    LOW_WATER_PART,
    TUNNEL_FLUSH_EVENTS,
    Driver,
)
from parley._node.transport.fair_reads import ROUND_TIME, FairScheduler
from parley._node.transport.loop import TaskStart
from parley._node.transport.task_scope import current_backend
from parley._node.transport.transport import TransportProtocol
from tests.node.network import started

NEVER = float("inf")


class FakeTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A clock that the test moves, and callbacks that it runs."""

    def __init__(self) -> None:
        self.time = 100.0
        self.due: list[Callable[[], None]] = []
        self.scheduler = FairScheduler(self.now, self.call_soon)
        self.timers: list[FakeTimer] = []
        self.begun: list[TaskStart] = []

    def now(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(when, callback))
        return self.timers[-1]

    @property
    def set_timers(self) -> list[float]:
        return [timer.when for timer in self.timers if not timer.cancelled]

    def start_tasks(self, begun: Iterable[TaskStart]) -> None:
        self.begun += begun

    def turn(self) -> None:
        """Run callbacks that are due, and callbacks scheduled by them."""
        while self.due:
            self.due.pop(0)()

    def move(self, seconds: float) -> None:
        self.time += seconds
        for timer in list(self.timers):
            if timer.when <= self.time and not timer.cancelled:
                self.timers.remove(timer)
                timer.callback()
        self.turn()


class FakeCore:
    """A core that follows a script."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.happened: list[Report] = []
        self.chunks: list[bytes] = []
        self.queued_bytes = 0
        self.outbox = SendQueue(MemoryBudget(1 << 20))
        self.wants_data = True
        self.unread = False
        self.wants_eof = False
        self.ended = False
        self.is_suspended = self.holds_back = False
        self.deadline = NEVER
        self.fail_in = ""
        self.on_data: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Report a queued event."""
        if self.outbox.count >= self.outbox.waker.count:
            self.outbox.waker.wake()

    def _called(self, what: str, *arguments: Any) -> None:
        if self.fail_in == what:
            self.fail_in = ""
            raise ZeroDivisionError(what)
        self.told.append((what, *arguments))

    def receive_some(self, data: bytes, now: float) -> None:
        self.receive_data(data, now)

    def receive_data(self, data: bytes, now: float) -> None:
        self.on_data()
        self._called("receive_data", data)

    def receive_eof(self, now: float) -> None:
        self._called("receive_eof")
        self.ended = True

    def handle_deadline(self, now: float) -> None:
        self._called("handle_deadline", now)

    def abort(self, now: float, code: int, reason: str) -> None:
        self._called("abort", code)
        self.chunks.append(b"close")
        self.happened.append(ConnectionEnded(code, "", False, reason))

    def reports(self) -> list[Report]:
        happened, self.happened = self.happened, []
        return happened

    def data_to_send(self, now: float) -> bytes:
        self._called("data_to_send")
        return self.chunks.pop(0) if self.chunks else b""

    def next_deadline(self) -> float:
        return self.deadline


class FakeOutlet:
    """Accepts bytes until it is full."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.more = True
        self.served: TransportProtocol | None = None

    def serve(self, served: TransportProtocol | None) -> None:
        self.served = served

    def write(self, data: bytes) -> bool:
        self.done.append(data)
        return self.more

    def write_eof(self) -> None:
        self.done.append("eof")

    def close(self) -> None:
        self.done.append("close")

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")


class Scene:
    """A driver with its core, transport and loop."""

    def __init__(self, backend: Backend | None = None) -> None:
        self.loop = FakeLoop()
        self.core = FakeCore()
        self.transport = FakeOutlet()
        self.reports: list[Report] = []
        self.on_report: Callable[[], None] = lambda: None
        self.earliest = NEVER
        self.upper_rang: list[float] = []
        self.closed = 0
        self.driver = Driver(
            cast(Connection, self.core),
            backend or cast(Backend, self.loop),
            self._reported,
            self,
            self.upper_rang.append,
        )
        self.driver.on_closed = self._closed

    def _reported(self, reports: list[Report]) -> None:
        self.reports += reports
        self.on_report()

    def _closed(self) -> None:
        self.closed += 1

    def connect(self) -> None:
        self.driver.connected(self.transport)
        self.loop.turn()


FINISHED = StreamFinished(3)


# Bytes.


def test_it_sends_what_there_is_once_it_is_connected() -> None:
    scene = Scene()
    full = bytes(FLUSH_SIZE)  # a shorter result means that sending must stop for now
    scene.core.chunks = [full, full, b"rest", b"not asked for"]
    scene.core.wake()
    scene.loop.turn()
    assert scene.transport.done == []
    scene.connect()
    assert scene.transport.done == [full, full, b"rest"]


def test_many_wake_ups_make_one_flush() -> None:
    scene = Scene()
    scene.connect()
    for _ in range(10):
        scene.core.wake()
    assert len(scene.loop.due) == 1


def test_much_that_waits_is_written_at_once() -> None:
    scene = Scene()
    scene.connect()
    scene.core.chunks = [b"one"]
    scene.core.wake()
    assert scene.transport.done == []
    scene.core.outbox.count = FLUSH_EVENTS
    scene.core.wake()
    assert scene.transport.done == [b"one"]
    assert len(scene.loop.due) == 1
    scene.transport.more = False
    scene.core.chunks = [b"two", b"three"]
    scene.core.wake()
    scene.core.wake()
    assert scene.transport.done == [b"one", b"two"]


def test_more_may_wait_in_a_tunnel() -> None:
    scene = Scene()
    scene.driver.set_route((), lambda: None)
    scene.connect()
    scene.core.chunks = [b"one"]
    scene.core.wake()
    assert scene.core.outbox.waker.count == TUNNEL_FLUSH_EVENTS
    scene.core.outbox.count = TUNNEL_FLUSH_EVENTS
    scene.core.wake()
    assert scene.transport.done == [b"one"]


def test_what_is_flushed_is_written_now_if_it_is_taken() -> None:
    scene = Scene()
    scene.driver.flush()  # before it has a transport
    scene.connect()
    scene.core.chunks = [b"one"]
    scene.driver.flush()
    assert scene.transport.done == [b"one"]
    scene.transport.more = False
    scene.core.chunks = [b"two", b"three"]
    scene.driver.flush()
    scene.driver.flush()
    assert scene.transport.done == [b"one", b"two"]


def test_no_report_overtakes_another() -> None:
    scene = Scene()
    scene.connect()
    scene.core.outbox.count = FLUSH_EVENTS
    later = StreamFinished(5)

    def ask() -> None:
        if scene.reports == [FINISHED]:
            scene.core.happened = [later]
            scene.core.chunks = [b"asked for"]
            scene.core.wake()
            assert scene.reports == [FINISHED]
            assert scene.transport.done == []

    scene.on_report = ask
    scene.core.happened = [FINISHED]
    scene.driver.received(b"x")
    assert scene.reports == [FINISHED, later]
    assert scene.transport.done == [b"asked for"]


def test_what_reports_set_off_begins_after_all_of_them_also_of_an_outer_connection() -> None:
    """A connection through a tunnel delivers its events while the outer connection does."""
    outer = Scene()
    inner = Scene(cast(Backend, outer.loop))
    handler = cast(TaskStart, "a handler")
    begun_amid_reports: list[TaskStart] = []

    def inner_reports() -> None:
        inner.driver.pending_tasks.append(handler)

    def outer_reports() -> None:
        inner.core.happened.append(FINISHED)
        inner.driver.step()
        begun_amid_reports.extend(outer.loop.begun)

    inner.on_report, outer.on_report = inner_reports, outer_reports
    outer.core.happened.append(FINISHED)
    outer.driver.step()
    assert (begun_amid_reports, outer.loop.begun) == ([], [handler])
    inner.core.happened.append(FINISHED)
    inner.driver.step()
    assert outer.loop.begun == [handler, handler]


def test_a_full_outlet_is_left_alone_until_it_may_write() -> None:
    scene = Scene()
    scene.connect()
    scene.transport.more = False
    full = bytes(FLUSH_SIZE)
    scene.core.chunks = [full, full, b"three"]
    scene.core.wake()
    scene.loop.turn()
    assert scene.transport.done == [full]
    scene.core.wake()
    scene.loop.turn()
    assert scene.transport.done == [full]
    scene.transport.more = True
    scene.driver.resume_writing()
    scene.loop.turn()
    assert scene.transport.done == [full, full, b"three"]


def test_what_comes_goes_to_the_core_and_its_reports_up_in_order() -> None:
    scene = Scene()
    scene.connect()
    scene.core.happened = [FINISHED]
    later = [StreamFinished(5)]

    def more() -> None:
        scene.core.happened, later[:] = list(later), []

    scene.on_report = more
    scene.driver.received(b"data")
    assert ("receive_data", b"data") in scene.core.told
    assert scene.reports == [FINISHED, StreamFinished(5)]
    scene.core.chunks = [b"answer"]
    scene.loop.turn()
    assert scene.transport.done == [b"answer"]


def test_reading_follows_the_core() -> None:
    scene = Scene()
    scene.connect()
    for wants_data in (False, False, True, True):
        scene.core.wants_data = wants_data
        scene.driver.step()
        scene.loop.turn()
    assert scene.transport.done == ["pause", "resume"]


def test_reading_stops_at_once_when_the_core_wants_no_more() -> None:
    """While the decision about a peer is pending, bytes before the next turn would have to be
    buffered.
    """
    scene = Scene()
    scene.connect()
    scene.core.wants_data = False
    scene.driver.received(b"the last that is wanted")
    assert scene.transport.done == ["pause"]


# Fair turns.


def received(scene: Scene) -> list[bytes]:
    """Return the bytes that the core received."""
    return [told[1] for told in scene.core.told if told[0] == "receive_data"]


class SlowScene(Scene):
    """A scene whose core takes the time of a whole round for each piece of three bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.connect()
        self.driver.reads.size = 3
        self.core.on_data = self.take_time

    def take_time(self) -> None:
        self.loop.time += ROUND_TIME

    def one_turn(self) -> None:
        """Run callbacks that are due, but not callbacks scheduled by them."""
        due, self.loop.due = self.loop.due, []
        for callback in due:
            callback()


def test_much_that_comes_at_once_is_taken_in_turns() -> None:
    scene = SlowScene()
    scene.driver.received(b"abcdefgh")
    assert received(scene) == [b"abc"]
    assert scene.transport.done == ["pause"]
    scene.one_turn()
    assert received(scene) == [b"abc", b"def"]
    scene.driver.received(b"ij")  # from a transport that doesn't pause immediately
    assert received(scene) == [b"abc", b"def"]
    scene.loop.turn()
    assert received(scene) == [b"abc", b"def", b"ghi", b"j"]
    assert scene.transport.done == ["pause", "resume"]


def test_what_waits_for_its_turn_waits_for_the_core_too() -> None:
    scene = SlowScene()
    scene.core.wants_data = False
    scene.driver.received(b"abcdef")
    scene.driver.received(b"gh")
    scene.loop.turn()
    assert received(scene) == []
    scene.core.wants_data = True
    scene.driver.step()
    scene.loop.turn()
    assert received(scene) == [b"abc", b"def", b"gh"]
    assert scene.transport.done == ["pause", "resume"]


def test_what_came_before_the_end_is_taken_before_it() -> None:
    scene = SlowScene()
    scene.driver.received(b"abcdefgh")
    scene.driver.ended()
    assert received(scene) == [b"abc"]
    scene.loop.turn()
    assert received(scene) == [b"abc", b"def", b"gh"]
    assert scene.core.told[-1] == ("receive_eof",)
    assert scene.transport.done == ["pause", "close"]
    told = list(scene.core.told)
    scene.driver.ended()
    scene.loop.turn()
    assert [what for what in scene.core.told[len(told) :] if what[0] == "receive_data"] == []


def test_what_waits_when_the_core_ends_is_forgotten() -> None:
    scene = SlowScene()
    scene.driver.received(b"abcdefgh")
    scene.core.ended = True
    scene.driver.step()
    scene.loop.turn()
    assert received(scene) == [b"abc"]
    assert scene.transport.done == ["pause", "close"]


# Ends.


def test_the_sending_side_is_shut_once_after_the_last_bytes() -> None:
    scene = Scene()
    scene.connect()
    scene.core.chunks = [b"close"]
    scene.core.wants_eof = True
    for _ in range(2):
        scene.driver.step()
        scene.loop.turn()
    assert scene.transport.done == [b"close", "eof"]


def test_an_ended_core_closes_the_transport_once() -> None:
    scene = Scene()
    scene.connect()
    scene.core.deadline = 200.0
    scene.driver.step()
    scene.driver.ended()
    scene.driver.ended()
    scene.driver.step()
    scene.core.wake()
    scene.loop.turn()
    assert scene.transport.done == ["close"]
    assert scene.closed == 1
    assert scene.loop.set_timers == []
    assert scene.loop.due == []


def test_reports_are_handed_on_before_the_transport_is_closed_in_a_crowded_line() -> None:
    scene = Scene()
    scene.connect()
    closed: list[list[Report]] = []
    scene.driver.on_closed = lambda: closed.append(list(scene.reports))
    other = Scene(cast(Backend, scene.loop))

    def take_time() -> None:
        scene.loop.time += ROUND_TIME

    other.core.on_data = take_time
    other.driver.received(b"a long step")
    scene.core.ended = True
    scene.core.happened = [FINISHED]
    scene.driver.received(b"x")
    assert closed == [[FINISHED]]


def test_a_report_that_settles_the_driver_does_not_close_it_before_the_others() -> None:
    scene = Scene()
    scene.connect()
    closed: list[list[Report]] = []
    handled: list[Report] = []

    def handle(reports: list[Report]) -> None:
        for report in reports:
            scene.driver.step()
            handled.append(report)

    driver = scene.driver = Driver(
        cast(Connection, scene.core),
        cast(Backend, scene.loop),
        handle,
        scene,
        scene.upper_rang.append,
    )
    driver.on_closed = lambda: closed.append(list(handled))
    driver.connected(scene.transport)
    reports: list[Report] = [FINISHED, StreamFinished(5)]
    scene.core.ended = True
    scene.core.happened = list(reports)
    driver.step()
    assert closed == [reports]


def test_a_transport_that_comes_too_late_is_closed() -> None:
    scene = Scene()
    scene.core.ended = True
    scene.driver.step()
    assert scene.closed == 1
    scene.connect()
    assert scene.transport.done == ["close"]


# Deadlines.


def test_there_is_one_timer_for_the_earliest_of_both_floors() -> None:
    scene = Scene()
    scene.core.deadline, scene.earliest = 120.0, 110.0
    scene.connect()
    assert scene.loop.set_timers == [110.0]
    scene.core.deadline = 105.0
    scene.driver.step()
    scene.loop.turn()
    assert scene.loop.set_timers == [105.0]
    scene.loop.move(5.0)
    assert ("handle_deadline", 105.0) in scene.core.told
    assert scene.upper_rang == [105.0]


def test_a_later_deadline_keeps_the_timer_which_then_looks_again() -> None:
    scene = Scene()
    scene.core.deadline = 110.0
    scene.connect()
    scene.core.deadline = 150.0
    scene.driver.step()
    scene.loop.turn()
    assert scene.loop.set_timers == [110.0]
    scene.loop.move(10.0)
    assert scene.loop.set_timers == [150.0]


def test_a_deadline_that_stays_does_not_spin() -> None:
    scene = Scene()
    scene.core.deadline = 99.0
    scene.connect()
    for _ in range(10):
        scene.loop.move(LEAST_PAUSE)
    rang = [what for what in scene.core.told if what[0] == "handle_deadline"]
    assert 1 <= len(rang) <= 10
    assert scene.loop.set_timers[0] >= scene.loop.time + LEAST_PAUSE / 2


def test_a_timer_that_rings_after_the_end_does_nothing() -> None:
    scene = Scene()
    scene.core.deadline = 110.0
    scene.connect()
    ring = scene.loop.timers[0].callback
    scene.driver.ended()
    ring()
    scene.loop.turn()
    assert not [what for what in scene.core.told if what[0] == "handle_deadline"]


# Bugs in Parley.


@pytest.mark.parametrize(
    "place", ["receive_data", "receive_eof", "data_to_send", "handle_deadline"]
)
def test_a_bug_ends_the_connection_with_a_traceback(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.core.deadline = 101.0
    scene.connect()
    scene.core.deadline = NEVER
    scene.core.fail_in = place
    if place == "receive_eof":
        scene.driver.ended()
    elif place == "handle_deadline":
        scene.loop.move(1.0)
    else:
        scene.driver.received(b"x")
    scene.loop.turn()
    assert ("abort", CloseCode.INTERNAL_ERROR) in scene.core.told
    assert isinstance(scene.reports[-1], ConnectionEnded)
    assert "ZeroDivisionError" in caplog.text
    if place != "receive_eof":
        assert b"close" in scene.transport.done


@pytest.mark.parametrize("when", ["receiving", "flushing"])
def test_a_bug_in_the_layer_above_too(when: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.connect()

    def fail() -> None:
        scene.on_report = lambda: None
        raise ZeroDivisionError

    scene.on_report = fail
    scene.core.happened = [FINISHED]
    if when == "receiving":
        scene.driver.received(b"x")
    else:
        scene.core.wake()
    scene.loop.turn()
    assert ("abort", CloseCode.INTERNAL_ERROR) in scene.core.told
    assert isinstance(scene.reports[-1], ConnectionEnded)
    assert b"close" in scene.transport.done
    assert "internal error" in caplog.text


def test_a_bug_while_aborting_closes_at_least(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.core.deadline = 200.0
    scene.connect()

    def fail(data: bytes, now: float) -> None:
        scene.core.fail_in = "abort"
        raise ZeroDivisionError

    scene.core.receive_data = fail  # type: ignore[method-assign]  # to fail
    scene.driver.received(b"x")
    scene.loop.turn()
    assert scene.transport.done == ["close"]
    assert scene.closed == 1
    assert scene.loop.set_timers == []
    assert "while aborting" in caplog.text


# Back-pressure.


def test_there_is_room_while_the_transport_takes_bytes() -> None:
    scene = Scene()
    rooms: list[bool] = []
    scene.core.queued_bytes = HIGH_WATER + 1
    rooms.append(scene.driver.can_send)
    scene.connect()
    rooms.append(scene.driver.can_send)
    scene.transport.more = False
    scene.core.chunks = [b"x"]
    scene.core.wake()
    scene.loop.turn()
    rooms.append(scene.driver.can_send)
    scene.core.queued_bytes = HIGH_WATER
    rooms.append(scene.driver.can_send)
    assert rooms == [False, True, False, True]


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["written", "less", "closed"])
async def test_callers_wait_for_room(how: str) -> None:
    async with create_task_group() as tasks:
        scene = Scene(current_backend(tasks))
        scene.core.queued_bytes = HIGH_WATER + 1
        scene.transport.more = False
        scene.core.chunks = [b"x"]
        scene.driver.connected(scene.transport)
        await anyio.wait_all_tasks_blocked()
        outcomes = [await started(tasks, scene.driver.wait_writable) for _ in range(3)]
        assert not any(outcomes)
        if how == "written":
            scene.transport.more = True
            scene.driver.resume_writing()
        elif how == "less":
            scene.core.queued_bytes = HIGH_WATER // LOW_WATER_PART
            scene.core.wake()
        else:
            scene.driver.ended()
        await anyio.wait_all_tasks_blocked()
        assert outcomes == [[None]] * 3


@pytest.mark.anyio
async def test_who_waits_for_room_may_be_cancelled() -> None:
    async with create_task_group() as tasks:
        scene = Scene(current_backend(tasks))
        scene.core.queued_bytes = HIGH_WATER + 1
        with move_on_after(0.005) as scope:
            await scene.driver.wait_writable()
        assert scope.cancelled_caught
        assert scene.driver.write_waiters.waiters == []
