"""The event relay with plain sockets at the other end: clients, and a server, of the reference.

The other side runs in a thread without code of the project.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import anyio
import pytest
from anyio import to_thread

from parley._node.dialects.limits import DialectLimits
from parley._node.errors import RelayRefusedError
from parley.dialects import Relay, RelayClient
from tests.node.network import PATIENCE
from tests.reference.dialects import relay as reference
from tests.reference.dialects.reading import Cut
from tests.reference.dialects.relay import BROADCAST, RelayMessage
from tests.reference.dialects.relay_raw import RelayRaw
from tests.vectors.load import Vector, of_kind, read, unhex, vectors

pytestmark = pytest.mark.anyio

T = TypeVar("T")
Enter = Callable[[bytes], RelayRaw]
ONE, TWO, THREE = (bytes([n]) * 16 for n in (0x11, 0x22, 0x33))
LIMIT: int = read("event_relay")["limit"]


async def among_clients(talk: Callable[[Enter], T], place: str = "tcp://127.0.0.1:0") -> T:
    """Connect raw clients to a relay; `enter` connects one that has not sent anything."""
    async with Relay(limits=DialectLimits(longest_frame=LIMIT)) as relay:
        address = await relay.listen(place)

        def run() -> T:
            with ExitStack() as stack:

                def enter(uuid: bytes) -> RelayRaw:
                    sock = stack.enter_context(connected(address))
                    return RelayRaw(sock, uuid)

                return talk(enter)

        with anyio.fail_after(PATIENCE):
            return await to_thread.run_sync(run)


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    if address.startswith("unix://"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.removeprefix("unix://"))
    else:
        sock = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    with sock:
        sock.settimeout(5)
        yield sock


def let_in(client: RelayRaw) -> RelayRaw:
    client.say_uuid()
    client.settle()
    return client


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_raw_clients_meet(anyio_backend: str, scheme: str, tmp_path: Path) -> None:
    def talk(enter: Enter) -> None:
        one, two, three = (let_in(enter(uuid)) for uuid in (ONE, TWO, THREE))
        one.send(TWO, b"direct")
        assert two.read_message() == RelayMessage(TWO, ONE, b"direct")
        two.broadcast(b"all")
        for client in (one, three):
            assert client.read_message() == RelayMessage(BROADCAST, TWO, b"all")
        large = bytes(range(256)) * 4_000
        three.send(ONE, large)
        assert one.read_message() == RelayMessage(ONE, THREE, large)
        for client in (one, two, three):
            client.settle()  # No other data arrived.

    await among_clients(talk, "tcp://127.0.0.1:0" if scheme == "tcp" else f"unix://{tmp_path}/r")


@vectors("event_relay", of_kind("exchange"))
async def test_the_exchanges(anyio_backend: str, vector: Vector) -> None:
    def talk(enter: Enter) -> None:
        clients: dict[str, RelayRaw] = {}
        for number, step in enumerate(vector["steps"]):
            if "from" in step:
                name, data = step["from"], unhex(step["hex"])
                entering = name not in clients
                if entering:
                    clients[name] = enter(data[:16])
                clients[name].send_raw(data)
                refused = vector["steps"][number + 1 :][:1] == [{"to": name, "error": 1}]
                refused |= vector["steps"][number + 1 :][:1] == [{"to": name, "error": 2}]
                if entering and len(data) == 16 and not refused:
                    clients[name].settle()
            elif "error" in step:
                assert clients[step["to"]].read_error()[0] == step["error"]
            elif "to" in step:
                assert clients[step["to"]].read_message().raw == unhex(step["hex"])
            elif "nothing" in step:
                clients[step["nothing"]].settle()
            elif "ends" in step:
                clients[step["ends"]].sock.shutdown(socket.SHUT_WR)
            else:
                assert clients.pop(step["closed"]).closed() == b""

    await among_clients(talk)


async def test_our_client_at_a_raw_relay(anyio_backend: str) -> None:
    own = UUID(bytes=ONE)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> RelayMessage:
            sock, _ = server.accept()
            with sock:
                sock.settimeout(5)
                raw = RelayRaw(sock, ONE)
                assert sock.recv(16, socket.MSG_WAITALL) == ONE
                first = raw.read_message()
                raw.send_raw(RelayMessage(ONE, TWO, b"direct").raw)
                for byte in RelayMessage(BROADCAST, TWO, b"all").raw:
                    raw.send_raw(bytes([byte]))
                raw.send_raw(reference.error(ONE, 5, "not here").raw)
                raw.send_raw(reference.error(ONE, 6, "oh").raw)
                sock.shutdown(socket.SHUT_WR)
                with pytest.raises(Cut):
                    raw.read_message()
                return first

        sent: list[RelayMessage] = []

        async def run() -> None:
            sent.append(await to_thread.run_sync(serve))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
                async with RelayClient(address, own) as client:
                    await client.send(UUID(bytes=TWO), b"hello")
                    got = [await anext(client) for _ in range(2)]
                    with pytest.raises(RelayRefusedError, match="oh") as caught:
                        await anext(client)
    assert sent == [RelayMessage(TWO, ONE, b"hello")]
    assert [(one.payload, one.is_broadcast) for one in got] == [(b"direct", False), (b"all", True)]
    assert (caught.value.code, client.faults) == (6, 2)
