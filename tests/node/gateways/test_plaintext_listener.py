"""Listening addresses of other dialects: local ones unless allowed, and limited connections."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from parley._node.errors import AddressError, InsecureAddressError, UnreachableError
from parley._node.gateways.server import PlaintextListener, is_local
from parley._node.logs import LINES
from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from tests.node.dialects.test_core import Parrot
from tests.node.network import eventually, task_scope


@asynccontextmanager
async def gateway(most: int = 8) -> AsyncIterator[PlaintextListener]:
    async with task_scope() as backend:
        made = PlaintextListener(
            backend,
            _accepting(backend, lambda: made),
            most,
            owner_of=lambda name: name,
            is_open=lambda driver: True,
            drop=lambda driver: driver.ended(),
        )
        yield made
        await made.stop_listening()


def _accepting(
    backend: Backend, gateway: Callable[[], PlaintextListener]
) -> Callable[[str], Driver]:
    def accept(name: str) -> Driver:
        core = Parrot(backend.now(), 1_000, MemoryBudget(1 << 30))
        driver = Driver(core, backend, lambda reports: None, DeadlineQueue(), lambda now: None)
        driver.on_closed = lambda: gateway().left(driver)
        return driver

    return accept


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.8.9.1:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("unix:///tmp/x", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://192.168.1.1:1", False),
        ("tcp://[fe80::1%25eth0]:1", False),
        ("tcp://localhost.example.org:1", False),
    ],
)
def test_which_addresses_are_of_this_machine_alone(address: str, local: bool) -> None:
    assert is_local(Address.parse(address.replace("%25", "%"))) is local


async def test_others_are_refused_unless_allowed(anyio_backend: str) -> None:
    async with gateway() as there:
        with pytest.raises(InsecureAddressError, match="is not encrypted"):
            await there.listen("tcp://0.0.0.0:0")
        assert there.addresses == []
        address = await there.listen("tcp://127.0.0.1:0", allow_insecure=True)
        assert there.addresses == [address]


async def test_it_serves_tcp_and_unix_sockets(anyio_backend: str, tmp_path: Path) -> None:
    async with gateway() as there:
        tcp = Address.parse(await there.listen("tcp://127.0.0.1:0"))
        path = tmp_path / "socket"
        await there.listen(f"unix://{path}")
        for stream in (
            await anyio.connect_tcp("127.0.0.1", tcp.port),
            await anyio.connect_unix(path),
        ):
            async with stream:
                await stream.send(b"ab")
                assert await stream.receive() == b"ab"
    assert not path.exists()


async def test_so_many_at_once(anyio_backend: str) -> None:
    async with gateway(most=2) as there:
        port = Address.parse(await there.listen("tcp://127.0.0.1:0")).port
        first = await _entered(port)
        second = await _entered(port)
        assert len(there) == 2
        third = await anyio.connect_tcp("127.0.0.1", port)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await third.receive()
        await third.aclose()
        assert there.turned_away == 1
        await first.aclose()
        await eventually(lambda: len(there) == 1)
        fourth = await _entered(port)
        await second.aclose()
        await fourth.aclose()


async def test_an_address_with_many_makes_way_for_another(anyio_backend: str) -> None:
    async with gateway(most=3) as there:
        port = Address.parse(await there.listen("tcp://127.0.0.1:0")).port
        hostile = [await _entered(port, "127.0.0.2") for _ in range(3)]
        good = await _entered(port)
        with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await hostile[0].receive()  # the oldest
        late = await anyio.connect_tcp("127.0.0.1", port, local_host="127.0.0.2")
        with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await late.receive()
        assert (len(there), there.turned_away) == (3, 1)
        for one in (*hostile[1:], good):
            await one.send(b"ab")
            assert await one.receive() == b"ab"
        for one in (*hostile, good, late):
            await one.aclose()


async def test_connections_that_are_turned_away_are_logged_at_a_limited_rate(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(most=0) as there:
        for _ in range(10 * LINES):
            assert there.admitted("127.0.0.1") is None
        assert LINES <= len(caplog.records) < 3 * LINES
        assert there.turned_away == 10 * LINES


async def test_a_connection_accepted_after_the_end_is_not_served(anyio_backend: str) -> None:
    async with gateway() as there:
        # The loop does this with a connection that it accepted before the listener was closed.
        await there.stop_listening()
        assert there.admitted("127.0.0.1") is None
        assert (len(there), there.turned_away) == (0, 0)


async def test_invalid_addresses(anyio_backend: str, tmp_path: Path) -> None:
    async with gateway() as there:
        with pytest.raises(AddressError):
            await there.listen("http://127.0.0.1:0")
        with pytest.raises(UnreachableError):
            await there.listen(f"unix://{tmp_path}/nowhere/socket")


async def _entered(port: int, host: str | None = None) -> anyio.abc.SocketStream:
    stream = await anyio.connect_tcp("127.0.0.1", port, local_host=host)
    await stream.send(b"x")
    assert await stream.receive() == b"x"
    return stream
