"""Tests of coroutines that the asyncio backend starts: task, context, cancellation and errors."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from parley._node.transport.asyncio_backend import AsyncioBackend
from tests.node.network import eventually

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("who", default="nobody")
EAGER = sys.version_info >= (3, 12)


class One:
    """A request for which a coroutine runs."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.cancelled = False
        self.runner: Any = None
        self.seen: list[object] = []


@pytest.fixture(
    params=[pytest.param("asyncio"), pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def backend() -> AsyncIterator[AsyncioBackend]:
    backend = AsyncioBackend()
    yield backend
    await backend.aclose()


async def note(one: One, _: object = None) -> None:
    one.seen += [WHO.get(), asyncio.current_task()]
    WHO.set(one.name)


async def note_twice(one: One, _: object = None) -> None:
    await note(one)
    await asyncio.sleep(0)
    one.seen += [WHO.get(), asyncio.current_task()]


async def test_each_has_its_own_task_and_context(backend: AsyncioBackend) -> None:
    begins, ones = asyncio.current_task(), [One("a"), One("b"), One("c")]
    functions = note, note_twice, note
    backend.start_tasks(list(zip(functions, ones, ones, strict=True)))
    assert [bool(one.seen) for one in ones] == [EAGER] * 3
    assert asyncio.current_task() is begins
    await eventually(lambda: all(one.runner and one.runner.done() for one in ones))
    assert [one.seen for one in ones] == [
        ["nobody", ones[0].runner],
        ["nobody", ones[1].runner, "b", ones[1].runner],
        ["nobody", ones[2].runner],
    ]
    assert len({one.runner for one in ones} | {begins}) == 4
    assert WHO.get() == "nobody"


@pytest.mark.parametrize("cancels_itself", [False, True])
async def test_a_cancelled_one_cleans_up(backend: AsyncioBackend, cancels_itself: bool) -> None:
    async def wait(one: One, _: object = None) -> None:
        one.seen.append("began")
        if cancels_itself:
            one.cancelled = True
            if one.runner is not None:
                one.runner.cancel()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            one.seen.append(error.args)
            raise

    one = One()
    backend.start_tasks([(wait, one, one)])
    await eventually(lambda: bool(one.seen))
    one.runner.cancel()
    await eventually(one.runner.done)
    assert one.seen == ["began", ()]
    assert one.runner.cancelled()


async def test_one_that_has_not_begun_never_begins(backend: AsyncioBackend) -> None:
    one = One()
    backend.start_tasks([(note_twice, one, one)])
    one.runner.cancel()  # like a request whose connection ends before the next turn
    await eventually(one.runner.done)
    assert bool(one.seen) == EAGER


async def test_closing_cancels_and_waits(backend: AsyncioBackend) -> None:
    async def wait(one: One, _: object = None) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            one.seen.append("cleaned up")

    ones = [One(), One()]
    backend.start_tasks([(wait, one, one) for one in ones])
    await backend.aclose()
    assert [one.seen for one in ones] == [["cleaned up"]] * 2


async def test_an_error_is_logged_and_ends_nothing_else(
    backend: AsyncioBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(one: One, _: object = None) -> None:
        if one.name == "later":
            await asyncio.sleep(0)
        raise BaseExceptionGroup(one.name, [ValueError(), asyncio.CancelledError()])

    last = One()
    failing = [(fail, One(name), One()) for name in ("first", "later")]
    backend.start_tasks([*failing, (note, last, last)])
    backend.spawn(fail, One("spawned"))
    await eventually(lambda: len(caplog.records) == 3)
    assert last.seen == ["nobody", last.runner]
    assert all(record.getMessage() == "a task failed" for record in caplog.records)
    assert all(name in caplog.text for name in ("first", "later", "spawned"))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_that_exits_ends_the_loop_from_a_transport_too(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    last = One()

    async def leave(*_: object) -> None:
        sys.exit(7)

    class Receiver(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            AsyncioBackend().start_tasks([(note, last, last), (leave, None, One())])

    async def main() -> None:
        near, far = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(Receiver, sock=near)
        with far, closing(transport):
            far.send(b"x")
            await asyncio.sleep(5)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(SystemExit) as caught:
        runner.run(main())
    assert caught.value.code == 7
    assert last.seen == ["nobody", last.runner]
