"""What a hostile intermediate server, or a hostile account, can and cannot do in a tunnel.

See docs/threat-model.md, F2 to F4. The nodes are real and connected in memory; tests/node/tunnels
checks that each changed byte is noticed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from parley._crypto.identity import Identity
from parley._crypto.randomness import random_bytes
from parley._node.errors import CallRefused, ParleyError, StreamResetError, TunnelRefusedError
from parley._node.federation.exports import Exports
from parley._node.peer.login import log_in
from parley._node.protocol.codes import TUNNEL_LABEL, CloseCode, ResultCode
from parley._node.remote.requests import Call
from parley._node.tunnels.dial import dial_tunnel, tunnel_dial
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelTransport
from tests.node.network import PATIENCE
from tests.node.tunnels.tunnel_rows import Passing, Row, row

pytestmark = pytest.mark.anyio


def export(made: Row, *names: str) -> None:
    """Export the handlers that callers through tunnels may use."""
    made.target.handlers.exports.clear()
    made.target.handlers.exports.add(Exports(names))


class Impostor(Passing):
    """A server that accepts every tunnel and acts as its target."""

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        self.dials.append(dial)
        yield None


class Forger(Passing):
    """A server that forwards a tunnel with a path that names another origin."""

    claimed = Identity.create().node_id

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        assert dial.path is None
        path = (self.claimed, self.node.node_id, *self.ways[dial.to or ()][1:])
        async with super().decide(replace(dial, path=path, to=None)) as onward:
            yield onward


async def test_who_is_in_between_is_not_taken_for_the_target(anyio_backend: str) -> None:
    async with row(3) as made:
        origin, server, target = made.nodes
        impostor = Impostor(server)
        server.handlers.reserved.pop(TUNNEL_LABEL)
        server.connections.serve_tunnels(impostor)
        asked: list[Call] = []

        @server.on_call("secret")
        async def secret(call: Call) -> None:
            asked.append(call)

        with pytest.raises(ParleyError):
            await origin.connections.connect_by(
                [tunnel_dial(made.open)], target.node_id, name="the row"
            )
        assert len(impostor.dials) == 1
        assert not asked
        assert not [peer for peer in server.peers if peer.path]


async def test_a_path_proves_nobody(anyio_backend: str) -> None:
    """The handshake identifies the caller; a path that names another node grants no permission."""
    async with row(3) as made:
        origin, server, target = made.nodes
        forger = Forger(server)
        forger.ways[(target.node_id,)] = made.path
        server.handlers.reserved.pop(TUNNEL_LABEL)
        server.connections.serve_tunnels(forger)
        export(made, "who", "admin")
        asked: list[Call] = []

        @target.on_call("who")
        async def who(call: Call) -> None:
            asked.append(call)

        @target.on_call("admin", allow=[Forger.claimed, server.node_id])
        async def admin(call: Call) -> None:
            asked.append(call)

        peer = await made.reach()
        await peer.call("who")
        assert asked[0].peer.node_id == origin.node_id
        assert asked[0].peer.path[0] == Forger.claimed
        with pytest.raises(CallRefused) as refused:
            await peer.call("admin")
        assert refused.value.code == ResultCode.NOT_AUTHORISED
        assert len(asked) == 1


async def test_nothing_is_offered_through_a_tunnel_unless_it_is_exported(
    anyio_backend: str,
) -> None:
    async with row(3) as made:
        target, ran = made.target, []
        export(made)

        async def run(what: object) -> None:
            ran.append(what)

        for name in ("shop.buy", "private", "shop"):
            target.on_call(name)(run)
            target.topic(f"{name}.news")

        for label in ("files", "shop.files"):
            target.on_stream(label)(run)
        for name in ("ping", "shop.ping"):
            target.on(name)(run)
        peer = await made.reach()
        for name in ("shop.buy", "private", "nothing"):
            with pytest.raises(CallRefused) as refused:
                await peer.call(name)
            assert refused.value.code == ResultCode.NOT_AUTHORISED
        for topic in ("private.news", "shop.news"):
            with pytest.raises(CallRefused):
                async with peer.subscribe(topic):
                    pass
        with pytest.raises(CallRefused) as failed:
            await peer.emit("ping").reply()
        assert failed.value.code == ResultCode.NOT_AUTHORISED
        stream = peer.open_stream("files")
        with pytest.raises(StreamResetError) as reset:
            await stream.receive()
        assert reset.value.code == CloseCode.NOT_AUTHORISED
        assert not ran
        export(made, "shop.*")
        await peer.call("shop.buy")
        for name in ("private", "shop"):
            with pytest.raises(CallRefused):
                await peer.call(name)
        async with peer.subscribe("shop.news"):
            pass
        # A neighbour may request everything that `allow=` permits.
        assert len(ran) == 1
        await made.links[-1][0].call("private")
        assert len(ran) == 2


async def test_a_tunnel_ends_in_no_other_tunnel_and_in_no_account(anyio_backend: str) -> None:
    async with row(3) as made:
        export(made, "*")
        peer = await made.reach()
        with pytest.raises(CallRefused) as refused:
            await log_in(peer)
        assert refused.value.code == ResultCode.NOT_AUTHORISED
        with pytest.raises(TunnelRefusedError) as dialled:
            await dial_tunnel(
                peer, to=[made.target.node_id], trace=random_bytes(16), timeout=PATIENCE
            )
        assert dialled.value.code == ResultCode.NOT_AUTHORISED
        # An honest node would not start these requests, but an attacker does.
        for stream in (peer.streams.open_tunnel(), peer.streams.open_federation()):
            with pytest.raises(StreamResetError) as reset:
                await stream.receive_event()
            assert reset.value.code == CloseCode.NOT_AUTHORISED
