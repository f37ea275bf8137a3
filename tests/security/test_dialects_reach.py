"""Who can reach a gateway: this machine alone unless it is said, of its users those whom the
file of a Unix socket lets in, and no page in a browser.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from parley._node.errors import ConfigError, InsecureAddressError, UnreachableError
from parley._node.gateways.named.gateway import NamedGateway
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.gateway import SimProtoGateway
from tests.node.gateways.relays import raw, read, to_the_end
from tests.node.network import PATIENCE, new_node
from tests.reference.dialects.named import NamedEvent
from tests.reference.dialects.relay import BROADCAST, RelayMessage
from tests.reference.dialects.simproto import Message, request

Gate = SimProtoGateway | NamedGateway | Relay
GATES: Final = ("simproto", "named", "relay")
# All addresses of the machine, one of a network, and a name that may be anybody's tomorrow.
OTHERS: Final = (
    "tcp://0.0.0.0:0",
    "tcp://[::]:0",
    "tcp://192.0.2.1:7101",
    "tcp://[::ffff:192.0.2.1]:7101",
    "tcp://localhost.example.org:7101",
)
# What a page can make a browser send, up to the body, which it chooses.
HEADS: Final = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:7101\r\nContent-Length: 200\r\n\r\n",
    b"GET /!!!!!!!!!!!!!!!! HTTP/1.1\r\nHost: 127.0.0.1:7101\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:7101\r\n\r\n",
)


@asynccontextmanager
async def gate(kind: str) -> AsyncIterator[Gate]:
    """A gateway of that kind, which listens nowhere yet."""
    if kind == "relay":
        async with Relay() as relay:
            yield relay
        return
    async with new_node() as node:
        made = SimProtoGateway(node) if kind == "simproto" else NamedGateway(node)
        async with made:
            yield made


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """The process's own, for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("kind", GATES)
async def test_other_machines_reach_it_only_if_it_is_said_with_the_address(
    anyio_backend: str, kind: str
) -> None:
    async with gate(kind) as there:
        for address in OTHERS:
            with pytest.raises(InsecureAddressError, match="--allow-insecure") as caught:
                await there.listen(address)
            assert isinstance(caught.value, ConfigError)
        assert there.addresses == []
        await there.listen("tcp://0.0.0.0:0", allow_insecure=True)
        # It was said of that one.
        with pytest.raises(InsecureAddressError):
            await there.listen("tcp://0.0.0.0:0")
        assert len(there.addresses) == 1


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o007, 0o770)])
@pytest.mark.parametrize("kind", GATES)
async def test_a_unix_socket_is_no_wider_than_the_umask(
    anyio_backend: str, tmp_path: Path, kind: str, mask: int, mode: int
) -> None:
    """To connect takes the right to write to it, and to search its directory."""
    path = tmp_path / "socket"
    async with gate(kind) as there:
        with umask(mask):
            await there.listen(f"unix://{path}")
        status = path.stat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == mode
        assert status.st_uid == os.geteuid()
    assert not path.exists()


async def test_a_socket_of_others_is_not_taken_over(anyio_backend: str, tmp_path: Path) -> None:
    """A second gateway on one path does not get the clients of the first."""
    async with gate("simproto") as first, gate("named") as second:
        address = await first.listen(f"unix://{tmp_path}/socket")
        with pytest.raises(UnreachableError, match="the address is in use"):
            await second.listen(address)
        assert second.addresses == []


@pytest.mark.parametrize("head", HEADS, ids=["post", "get", "options"])
async def test_a_page_in_a_browser_speaks_to_none(anyio_backend: str, head: bytes) -> None:
    """A request over HTTP ends the connection before the body that the page chose is read."""
    ran: list[str] = []
    body = b"".join(
        (
            Message("request", 1, request("rpc", b"run")).raw,
            NamedEvent(1, "run").raw,
            RelayMessage(BROADCAST, head[:16], b"run").raw,
        )
    )
    with anyio.fail_after(PATIENCE):
        async with gate("simproto") as simproto, gate("named") as named, gate("relay") as relay:
            assert not isinstance(simproto, Relay)
            assert not isinstance(named, Relay)
            simproto.node.on_call("run")(lambda call: ran.append("call"))
            named.node.on("run")(lambda event: ran.append("event"))
            for there in (simproto, named, relay):
                async with await raw(await there.listen("tcp://127.0.0.1:0")) as stream:
                    await stream.send(head + body)
                    said = await to_the_end(stream)
                assert said == b"" or there is relay
            async with RelayClient(relay.addresses[0]) as client:
                await client.send(client.uuid, b"alone")
                assert await read(client) == [(client.uuid, b"alone", False)]
    assert ran == []
