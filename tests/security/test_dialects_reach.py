"""Access to a gateway on this machine: users with access to a Unix socket, but no page in a
browser.

Addresses of other machines: tests/node/gateways/test_plaintext_listener.py.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from parley._node.gateways.named import NamedGateway
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.gateway import SimProtoGateway
from tests.node.gateways.relays import raw, read, to_the_end
from tests.node.network import PATIENCE, new_node
from tests.reference.dialects.named import NamedEvent
from tests.reference.dialects.relay import BROADCAST, RelayMessage
from tests.reference.dialects.simproto import Message, request

AnyGateway = SimProtoGateway | NamedGateway | Relay
GATES: Final = ("simproto", "named", "relay")
# Requests that a page can make a browser send, up to the body, which the page chooses.
HEADS: Final = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:7101\r\nContent-Length: 200\r\n\r\n",
    b"GET /!!!!!!!!!!!!!!!! HTTP/1.1\r\nHost: 127.0.0.1:7101\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:7101\r\n\r\n",
)


@asynccontextmanager
async def gate(kind: str) -> AsyncIterator[AnyGateway]:
    """Return a gateway of this kind that doesn't listen yet."""
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
    """Set the umask of this process during the block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o007, 0o770)])
@pytest.mark.parametrize("kind", GATES)
async def test_a_unix_socket_is_no_wider_than_the_umask(
    anyio_backend: str, tmp_path: Path, kind: str, mask: int, mode: int
) -> None:
    """Connecting requires write permission for the socket and search permission for its
    directory.
    """
    path = tmp_path / "socket"
    async with gate(kind) as there:
        with umask(mask):
            await there.listen(f"unix://{path}")
        status = path.stat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == mode
        assert status.st_uid == os.geteuid()
    assert not path.exists()


@pytest.mark.parametrize("head", HEADS, ids=["post", "get", "options"])
async def test_a_page_in_a_browser_speaks_to_none(anyio_backend: str, head: bytes) -> None:
    """An HTTP request ends the connection before the body, which the page chooses, is read."""
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
