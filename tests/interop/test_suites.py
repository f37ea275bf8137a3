"""Suites with each pair of algorithms: handshake, calls, a stream, key updates, rekeys, Close."""

from typing import Final, get_args

import anyio
import pytest

from parley import Peer
from tests.interop.meeting import SIDES, Transport, our_config, our_identity, our_node, their_config
from tests.reference import acts
from tests.reference.exchange import KEX_NAMES
from tests.reference.handshake import SEALING_NAMES
from tests.reference.peer import ReferencePeer, Side
from tests.reference.primitives import CIPHER_NAMES, HASH_NAMES, SIGNING_NAMES
from tests.reference.sealing import Suite
from tests.reference.wire import CELLS, TYPES
from tests.sampling import pairwise
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

KINDS: Final = (KEX_NAMES, SIGNING_NAMES, (*HASH_NAMES, "blake3"), CIPHER_NAMES, SEALING_NAMES)
QUESTION = ["hello", 1, -2.5, b"\x00", None, {"a": True}]
PIECE = bytes(range(256)) * 8


def course(peer: ReferencePeer) -> None:
    """A bit of everything from the reference's side, then its Close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", QUESTION)[CELLS["data"]] == QUESTION
    stream = acts.open_stream(peer, "echo")
    acts.send_data(peer, stream, PIECE)
    peer.update_keys()
    acts.send_data(peer, stream, b"\x00")
    acts.finish(peer, stream)
    echoed = b""
    while len(echoed) <= len(PIECE):
        echoed += acts.wait_for(peer, lambda e: e.type == TYPES["Data"]).payload
    assert echoed == PIECE + b"\x00"
    acts.wait_for(peer, lambda e: e.type == TYPES["Finish"] and e.stream == stream)
    acts.rekey(peer)
    acts.ping(peer)
    assert acts.call(peer, "nobody", async_id=2)[CELLS["code"]] == 1
    acts.close(peer)


@sweep(
    ("suite", "side", "transport"),
    [
        (Suite(*names), side, transport)
        for *names, side, transport in pairwise(*KINDS, SIDES, get_args(Transport))
    ],
)
async def test_the_reference_asks(suite: Suite, side: Side, transport: Transport) -> None:
    config = our_config(suite)
    async with our_node(config, identity=our_identity(suite.signing)) as ours:

        def act(peer: ReferencePeer) -> ReferencePeer:
            course(peer)
            return peer

        peer = await ours.meet(act, side, config=their_config(suite), transport=transport)
        assert peer.session.agreement.suite == suite
        assert peer.rekeying is not None
        assert peer.rekeying.number == 1
        assert ours.called == [("parley.echo", QUESTION)]
        assert await ours.ended() == "normal"


@sweep("suite", [Suite(*names) for names in pairwise(*KINDS)])
async def test_our_node_asks(suite: Suite) -> None:
    async with our_node(our_config(suite), identity=our_identity(suite.signing)) as ours:

        async def application(peer: Peer) -> None:
            assert await peer.call("parley.echo", QUESTION) == QUESTION
            async with peer.open_stream("app/sink") as stream:
                await stream.send(PIECE)
                peer.update_keys()
                await stream.send(b"\x00")
                await stream.send_eof()
                assert [data async for data in stream] == [b"done"]
            assert await peer.rekey() == 1
            assert await peer.ping() < 5
            assert await peer.call("parley.echo", 1) == 1
            with anyio.fail_after(5):
                await peer.close()

        def act(peer: ReferencePeer) -> ReferencePeer:
            peer.handshake()
            data = b""
            while (event := peer.recv_event()).type != TYPES["Finish"]:
                data += event.payload if event.type == TYPES["Data"] else b""
            assert data == PIECE + b"\x00"
            acts.send_data(peer, event.stream, b"done")
            acts.finish(peer, event.stream)
            assert acts.serve(peer).code == 0
            return peer

        peer = await ours.meet(
            act, "responder", config=their_config(suite), application=application
        )
        assert ours.refusal is None
        assert peer.session.remote is not None
        assert peer.session.remote.id == ours.node.node_id
        assert peer.events[-1].event.type == TYPES["Close"]
        assert await ours.ended() == "normal"
