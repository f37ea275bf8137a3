"""All suites, both ways round: handshake, calls, a stream, key updates, rekeys, Close.

Each suite runs on one of the two event loops, in turn; half of them over Unix sockets.
"""

from itertools import product

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

pytestmark = pytest.mark.anyio

SUITES = [
    Suite(*names)
    for names in product(KEX_NAMES, SIGNING_NAMES, HASH_NAMES, CIPHER_NAMES, SEALING_NAMES)
] + [
    # Kex and signatures are the same with it as with any hash of 32 bytes.
    Suite("x25519", "ed25519", "blake3", *names)
    for names in product(CIPHER_NAMES, SEALING_NAMES)
]
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


@pytest.mark.parametrize(
    ("suite", "anyio_backend", "transport"),
    [
        pytest.param(
            suite,
            ("asyncio", "trio")[number % 2],
            ("tcp", "unix")[number // 2 % 2],
            id="-".join(vars(suite).values()),
        )
        for number, suite in enumerate(SUITES)
    ],
)
@pytest.mark.parametrize("side", SIDES)
async def test_the_reference_asks(suite: Suite, transport: Transport, side: Side) -> None:
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


@pytest.mark.parametrize(
    ("suite", "anyio_backend"),
    [
        pytest.param(suite, ("trio", "asyncio")[number % 2], id="-".join(vars(suite).values()))
        for number, suite in enumerate(SUITES)
    ],
)
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
