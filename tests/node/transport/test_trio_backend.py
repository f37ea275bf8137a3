"""Tests of node/transport/trio_backend.py: behaviour specific to trio."""

import errno
import logging
import socket
from collections.abc import AsyncIterator

import anyio
import pytest
import trio
from anyio import create_task_group, fail_after
from anyio.abc import TaskGroup

from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.transport.trio_backend import ACCEPT_PAUSE, TrioBackend
from tests.node.network import eventually, settled
from tests.node.transport.test_asyncio_backend import Noted

pytestmark = pytest.mark.anyio

LISTEN = Address.parse("tcp://127.0.0.1:0")


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


@pytest.fixture
async def tasks(anyio_backend: str) -> AsyncIterator[TaskGroup]:
    async with create_task_group() as tasks:
        yield tasks


@pytest.fixture
async def backend(tasks: TaskGroup) -> AsyncIterator[TrioBackend]:
    backend = TrioBackend(tasks)
    yield backend
    with fail_after(2):
        await backend.aclose()


async def test_a_failing_task_takes_no_other_along(
    backend: TrioBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    backend.spawn(fail)
    await settled()
    assert "ZeroDivisionError" in caplog.text
    assert not backend.scopes


async def test_who_cancels_around_it_cancels_no_task_of_it() -> None:
    """The node sends Close first, and then ends its tasks itself."""
    steps: list[str] = []

    async def run() -> None:
        try:
            await trio.sleep_forever()
        finally:
            steps.append("task")

    with anyio.CancelScope() as scope:
        async with create_task_group() as tasks:
            backend = TrioBackend(tasks)
            backend.spawn(run)
            await settled()
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
                steps.append("owner")
                await backend.aclose()
    assert steps == ["owner", "task"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ECONNABORTED])
async def test_an_accept_that_fails_ends_no_listener(
    backend: TrioBackend,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    drivers: list[Noted] = []
    failures = [2]
    with trio.socket.socket() as some:
        kind = type(some)
    accept = kind.accept

    async def flaky(self: trio.socket.SocketType) -> object:
        if failures[0]:
            failures[0] -= 1
            raise OSError(number, "out of something")
        return await accept(self)

    def accepted(name: str) -> Driver:
        drivers.append(Noted())
        return drivers[-1].as_driver

    monkeypatch.setattr(kind, "accept", flaky)
    caplog.set_level(logging.WARNING)
    listener = await backend.listen(LISTEN, accepted)
    with socket.create_connection(("127.0.0.1", listener.address.port)):
        with fail_after(2 * ACCEPT_PAUSE + 2):
            await eventually(lambda: bool(drivers))
    assert caplog.text.count("could not be accepted") == 2
    await listener.aclose()
