"""Failed dials, and addresses without a node, are logged once until the reason changes."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from parley import Backoff, Node
from parley._crypto.identity import Identity
from parley._node.errors import HandshakeError, NotTrustedError, UnreachableError
from parley._node.peer.connection_handlers import FOREIGN_BURST, MOST_PLACES, ConnectionLog
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer, OneOf
from tests.node.network import PATIENCE, eventually, new_node

pytestmark = pytest.mark.anyio

NOBODY = "tcp://127.0.0.1:1"
QUICK = Backoff(first=0.001, longest=0.002)


def lines(caplog: pytest.LogCaptureFixture, name: str, level: int = logging.INFO) -> list[str]:
    """What a logger said, from `level` up."""
    return [r.getMessage() for r in caplog.records if r.name == name and r.levelno >= level]


@asynccontextmanager
async def listening(node: Node) -> AsyncIterator[tuple[str, int]]:
    """The address of a node on TCP without its id, and the port."""
    address = Address.parse(await node.listen("tcp://127.0.0.1:0")).without_node_id()
    yield str(address), address.port


async def test_a_dial_that_fails_is_logged_when_the_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with anyio.fail_after(PATIENCE):
        async with new_node() as node, new_node() as other, listening(other) as (place, _):
            for _ in range(3):
                with pytest.raises(UnreachableError):
                    await node.connect(NOBODY, trust=AnyPeer())
            wrong = Identity.create().node_id
            for _ in range(2):
                with pytest.raises(NotTrustedError):
                    await node.connect(f"{place}#{wrong}")
            peer = await node.connect(place, trust=AnyPeer())
            await peer.close()
            with pytest.raises(NotTrustedError):
                await node.connect(f"{place}#{wrong}")
    said = [line for line in lines(caplog, "parley.peer") if line.startswith("connection to ")]
    nobody, *refused = said
    reason = f"cannot reach {NOBODY}: nothing is listening there"
    assert nobody == f"connection to {NOBODY} failed: {reason}"
    assert len(refused) == 2  # and the second because there was a session between
    assert all(f"connection to {place} was refused: " in line for line in refused)
    assert not [line for line in lines(caplog, "parley.peer") if place in line and "ended" in line]


async def test_a_link_says_why_it_is_down_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with new_node() as node:
        address = f"{NOBODY}#{Identity.create().node_id}"
        with anyio.fail_after(PATIENCE):
            async with node.link(address, pauses=QUICK) as link:
                await link.changes.until(lambda: link.attempts >= 20)
    (line,) = lines(caplog, "parley.link", logging.WARNING)
    assert "nothing is listening there; retrying in" in line


async def test_a_responder_that_does_not_trust_us_refuses_a_dial_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with anyio.fail_after(PATIENCE):
        async with new_node() as node, new_node(OneOf([])) as other, listening(other) as (place, _):
            for _ in range(3):
                peer = await node.connect(place, trust=AnyPeer())
                await peer.closed()
            async with node.link(f"{place}#{other.node_id}", pauses=QUICK) as link:
                await link.changes.until(lambda: link.sessions >= 5)
            warned = [r for r in caplog.records if r.levelno >= logging.WARNING]
            ours = [r.getMessage() for r in warned if str(other.node_id.short) in r.getMessage()]
            await other.change_trust(AnyPeer())
            peer = await node.connect(place, trust=AnyPeer())
            await peer.ping()
            await peer.close()
            await other.change_trust(OneOf([]))
            await (await node.connect(place, trust=AnyPeer())).closed()
    assert not ours
    said = f"connection to {place} was refused: authentication failed (authentication-failed)"
    assert lines(caplog, "parley.peer") == [said, said]  # again after there was a session
    (line,) = lines(caplog, "parley.link", logging.WARNING)
    assert "(authentication-failed); retrying in" in line


@pytest.mark.parametrize(
    ("begins", "name"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n", "an HTTP client"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP client"),
        (bytes.fromhex("16030102000100"), "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
)
async def test_what_is_no_node_is_named(
    caplog: pytest.LogCaptureFixture, begins: bytes, name: str
) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            new_node() as node,
            listening(node) as (_, port),
            await anyio.connect_tcp("127.0.0.1", port) as stranger,
        ):
            await stranger.send(begins)
            await eventually(lambda: bool(lines(caplog, "parley.access")))
    said = lines(caplog, "parley.access")
    assert said == [f"{name} from 127.0.0.1 connected to a native port, which serves only nodes"]


async def test_a_web_server_is_told_apart_from_a_node(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # not Django's
    place = f"tcp://127.0.0.1:{port}"
    with anyio.fail_after(PATIENCE):
        async with listener, anyio.create_task_group() as tasks, new_node() as node:
            tasks.start_soon(listener.serve, answer)
            with pytest.raises(HandshakeError):
                await node.connect(place, trust=AnyPeer())
            tasks.cancel_scope.cancel()
    (said,) = lines(caplog, "parley.peer")
    assert said.startswith(f"connection to {place} was refused: ")
    assert said.endswith(": the peer is an HTTP server, not a Parley node")


def test_lines_about_what_is_no_node_are_rationed(caplog: pytest.LogCaptureFixture) -> None:
    endings = ConnectionLog()
    for _ in range(FOREIGN_BURST + 50):
        endings.met_foreign("192.0.2.1", "TLS", 5.0)
    assert len(caplog.records) == FOREIGN_BURST
    endings.met_foreign("192.0.2.1", "TLS", 70.0)
    assert caplog.records[-1].getMessage().endswith("(50 more such lines were not logged)")


def test_places_that_cannot_be_dialled_are_remembered_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endings = ConnectionLog()
    for number in range(MOST_PLACES + 1):
        endings.dial_failed(f"place {number}", "no", refused=True)
    caplog.clear()
    endings.dial_failed("place 1", "no", refused=True)
    assert not lines(caplog, "parley.peer", logging.WARNING)
    endings.dial_failed("place 0", "no", refused=True)  # the oldest, which was forgotten
    assert lines(caplog, "parley.peer") == ["connection to place 0 was refused: no"]
