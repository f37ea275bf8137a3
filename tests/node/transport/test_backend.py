"""Tests of node/transport/backend.py: what both implementations guarantee."""

import socket
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import create_task_group, fail_after, move_on_after
from anyio.abc import TaskGroup

from parley._node.errors import ParleyError
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.transport.task_scope import current_backend
from tests.node.network import eventually, settled, started
from tests.node.transport.test_asyncio_backend import LISTEN, Noted

pytestmark = pytest.mark.anyio

BACKENDS = [
    pytest.param("asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param("trio"),
]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def tasks(anyio_backend: object) -> AsyncIterator[TaskGroup]:
    async with create_task_group() as tasks:
        yield tasks


@pytest.fixture
async def backend(tasks: TaskGroup) -> AsyncIterator[Backend]:
    backend = current_backend(tasks)
    yield backend
    with fail_after(2):
        await backend.aclose()


async def test_another_loop_is_refused(tasks: TaskGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    class Curio:
        backend_class = type("Backend", (), {"__module__": "somewhere._curio"})

    monkeypatch.setattr("parley._node.transport.task_scope.current_token", Curio)
    with pytest.raises(ParleyError, match="curio"):
        current_backend(tasks)


async def test_the_clock_goes_on(backend: Backend) -> None:
    times = [backend.now() for _ in range(1000)]
    assert times == sorted(times)
    began = backend.now()
    await anyio.sleep(0.02)
    assert 0.018 <= backend.now() - began < 5


# Listening.


def ended(other: socket.socket) -> bool:
    """Return whether the other side closed or reset."""
    try:
        return other.recv(1) == b""
    except ConnectionResetError:
        return True


async def test_a_listener_that_closes_leaves_its_connections(backend: Backend) -> None:
    drivers: dict[str, Noted] = {}

    def accept(name: str) -> Driver:
        drivers[name] = Noted()
        return drivers[name].as_driver

    listener = await backend.listen(LISTEN, accept)
    place = ("127.0.0.1", listener.address.port)
    with socket.create_connection(place) as other:
        await eventually(lambda: bool(drivers))
        await listener.aclose()
        await settled()
        with socket.socket() as late:
            assert late.connect_ex(place) != 0
        other.sendall(b"abc")
        await eventually(lambda: drivers["127.0.0.1"].data == b"abc")
        await backend.aclose()
        assert drivers["127.0.0.1"].ends == 1


async def test_what_cannot_be_accepted_is_closed(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    def accept(name: str) -> Driver:
        raise ZeroDivisionError

    listener = await backend.listen(LISTEN, accept)
    for count in (1, 2):
        with socket.create_connection(("127.0.0.1", listener.address.port)) as other:
            other.settimeout(2)
            await eventually(lambda: caplog.text.count("could not be accepted") == count)  # noqa: B023 - it is awaited here
            await settled()
            assert ended(other)
    await listener.aclose()


# Waiting.


async def test_a_waiter_waits_for_its_wake(tasks: TaskGroup, backend: Backend) -> None:
    waiter = backend.waiter()

    async def wait() -> None:
        await waiter

    outcome = await started(tasks, wait)
    assert not outcome
    waiter.wake()
    waiter.wake()
    await settled()
    assert outcome == [None]


async def test_a_wake_before_the_wait_counts(backend: Backend) -> None:
    waiter = backend.waiter()
    waiter.wake()
    with fail_after(1):
        await waiter


async def test_a_wait_can_be_cancelled(backend: Backend) -> None:
    waiter = backend.waiter()
    with move_on_after(0.005) as scope:
        await waiter
    assert scope.cancelled_caught
    waiter.wake()


# Callbacks.


async def test_soon_is_the_loop_s_next_turn_in_order(backend: Backend) -> None:
    called: list[int] = []
    for number in range(5):
        backend.call_soon(lambda number=number: called.append(number))  # type: ignore[misc]  # the loop's
    assert called == []
    await settled()
    assert called == [0, 1, 2, 3, 4]


async def test_a_timer_is_never_early(backend: Backend) -> None:
    called: list[float] = []
    due = backend.now() + 0.02
    backend.call_at(due, lambda: called.append(backend.now()))
    backend.call_at(backend.now() - 5, lambda: called.append(0.0))
    await anyio.sleep(0.005)
    assert called == [0.0]
    await anyio.sleep(0.06)
    assert len(called) == 2
    # A loop may round to its clock's resolution; the core checks the time again.
    assert called[1] >= due - 0.002


async def test_a_cancelled_timer_does_not_ring(backend: Backend) -> None:
    called: list[int] = []
    timer = backend.call_at(backend.now() + 0.005, lambda: called.append(1))
    timer.cancel()
    timer.cancel()
    await anyio.sleep(0.02)
    assert called == []


# Tasks.


async def test_a_task_runs_and_is_cancelled_alone(backend: Backend) -> None:
    ended: list[object] = []

    async def run(name: str) -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended.append(name)

    first, second = backend.spawn(run, "first"), backend.spawn(run, "second")
    await settled()
    first.cancel()
    await settled()
    assert ended == ["first"]
    second.cancel()
    first.cancel()
    await settled()
    assert ended == ["first", "second"]


async def test_closing_ends_every_task_and_waits_for_it(backend: Backend) -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended.append("child")

    async def run() -> None:
        try:
            await anyio.sleep(60)
        finally:
            backend.spawn(child)
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
            ended.append("parent")

    backend.spawn(run)
    backend.call_at(backend.now() + 60, lambda: ended.append("timer"))
    await settled()
    with fail_after(1):
        await backend.aclose()
    # A child spawned in the meantime is also cancelled and cleans up.
    assert sorted(ended) == ["child", "parent"]
    await backend.aclose()


async def test_nor_is_one_left_that_another_one_s_end_began(backend: Backend) -> None:
    begun, ended = [0], [0]

    async def run(generation: int) -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended[0] += 1
            for _ in range(2 if generation < 6 else 0):
                begun[0] += 1
                backend.spawn(run, generation + 1)

    begun[0] += 1
    backend.spawn(run, 0)
    with fail_after(5):
        await backend.aclose()
    assert begun == ended == [2**7 - 1]


async def test_another_thread_can_have_it_call_back(backend: Backend) -> None:
    waiter = backend.waiter()
    await anyio.to_thread.run_sync(backend.call_soon_threadsafe, waiter.wake)
    with fail_after(2):
        await waiter


def test_a_loop_that_has_ended_calls_nobody(anyio_backend: object) -> None:
    name, options = anyio_backend if isinstance(anyio_backend, tuple) else (anyio_backend, {})
    kept: list[Backend] = []

    async def keep() -> None:
        async with create_task_group() as tasks:
            kept.append(current_backend(tasks))
            await kept[0].aclose()

    anyio.run(keep, backend=name, backend_options=options)
    called: list[None] = []
    kept[0].call_soon_threadsafe(lambda: called.append(None))
    assert not called
