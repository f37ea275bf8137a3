"""An intermediate server that accepts a tunnel and then misbehaves costs the dialling node one
attempt, not the connection.
"""

import anyio
import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import HandshakeError, PeerClosedError
from parley._node.handlers.registry import Entry
from parley._node.peer.peer import Peer
from parley._node.protocol import codes
from parley._node.protocol.codes import DIAL, TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL, CloseCode
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake_messages import reject_payload
from parley._node.remote.requests import Call
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.tunnels.tunnel_transport import TunnelTransport, TunnelWriter
from tests.inspection import accept
from tests.node.server.ring import Servers, ring, servers
from tests.node.server.test_federation_reach import ticking
from tests.node.tunnels.test_splice_blindness import Side

pytestmark = pytest.mark.anyio

LIAR, TARGET = 1, 2  # of a ring of four, seen from 0
WAYS = ["stalls", "garbles", "rejects", "poses", "hangs up"]
# Answers that any server can give.
REJECT = frame(handshake_event(codes.REJECT, reject_payload(CloseCode.NO_COMMON_ALGORITHM)))


class Liar:
    """A server that accepts all tunnels and then misbehaves as `way` specifies, or forwards all
    data and later changes a byte in the direction `back`.
    """

    def __init__(self, four: Servers, way: str) -> None:
        self.node = four.nodes[LIAR]
        self.federation = four.federations[LIAR]
        self.way = way
        self.dials = 0
        self.back: Side | None = None
        self.node.handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, self.serve)

    async def serve(self, stream: Stream) -> None:
        assert isinstance(stream, TunnelStream)
        self.dials += 1
        dial = await stream.receive_event()
        if self.way == "passes on":
            await self.join(stream, dial.payload, dial.cells[keys.PATH])
        await dial.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode({keys.CODE: 0}))
        if self.way == "garbles":
            TunnelWriter(stream, lambda cost: None).write(bytes(range(200)))
        elif self.way == "rejects":
            TunnelWriter(stream, lambda cost: None).write(REJECT)
        elif self.way == "poses":
            driver = accept(self.node, "a tunnel that was kept")
            assert driver is not None
            TunnelTransport(stream, ()).attach(driver)
        if self.way != "hangs up":
            await stream.live.closed()

    async def join(self, stream: TunnelStream, dial: bytes, path: object) -> None:
        assert isinstance(path, list)
        (peer,) = [one.peer for one in self.federation.links if one.node_id == path[2]]
        assert peer is not None
        onward = peer.streams.open_tunnel()
        await onward.request(TUNNEL, DIAL, payload=dial)
        there, self.back = Side(stream, onward, None), Side(onward, stream, None)
        there.back, self.back.back = self.back, there
        stream.pass_to(there)
        onward.pass_to(self.back)


async def reached(four: Servers, target: int = TARGET) -> tuple[Peer, list[int] | None]:
    """Return a session from 0 to a server, and its path."""
    peer = await ticking(four, four.federations[0].reach(four.nodes[target].node_id))
    assert isinstance(peer, Peer)
    return peer, four.numbers(peer.path)


@pytest.mark.parametrize("way", WAYS)
async def test_a_liar_on_the_best_path_costs_one_try(way: str) -> None:
    async with servers(4, ring(4)) as four:
        await four.until(four.know_all)
        liar = Liar(four, way)
        for _ in range(2):
            peer, path = await reached(four)
            assert peer.node_id == four.nodes[TARGET].node_id
            assert path == [0, 3, 2]
        assert liar.dials == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_resumes_around_a_liar(way: str) -> None:
    async with servers(4, ring(4), exports=("who",), resume=60.0) as four:

        @four.nodes[TARGET].on_call("who")
        async def who(call: Call) -> int:
            return TARGET

        await four.until(four.know_all)
        peer, path = await reached(four)
        assert path == [0, 1, 2]
        await peer.ping()
        liar = Liar(four, way)
        peer.redial()
        await four.until(lambda: peer.resumes == 1)
        assert four.numbers(peer.path) == [0, 3, 2]
        assert await ticking(four, peer.call("who")) == TARGET
        assert liar.dials == 1


async def test_server_that_cuts_resumed_sessions_is_avoided() -> None:
    async with servers(4, ring(4), resume=60.0) as four:
        await four.until(four.know_all)
        peer, _ = await reached(four)
        await peer.ping()
        liar = Liar(four, "passes on")
        peer.redial()
        await four.until(lambda: peer.resumes == 1)
        assert four.numbers(peer.path) == [0, 1, 2]
        assert liar.back is not None
        liar.back.back.source.reset()
        await four.until(lambda: peer.resumes == 2)
        assert four.numbers(peer.path) == [0, 3, 2]
        assert liar.dials == 1


async def test_altered_data_ends_the_session_and_the_next_avoids_the_server() -> None:
    async with servers(4, ring(4), exports=("wait",)) as four:
        waiting = anyio.Event()

        @four.nodes[TARGET].on_call("wait")
        async def wait(call: Call) -> str:
            waiting.set()
            await four.clock.sleep(1.0)
            return "an answer that is changed"

        await four.until(four.know_all)
        liar = Liar(four, "passes on")
        peer, path = await reached(four)
        assert path == [0, 1, 2]
        errors: list[PeerClosedError] = []

        async def ask() -> None:
            with pytest.raises(PeerClosedError) as caught:
                await peer.call("wait")
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await waiting.wait()
            assert liar.back is not None
            await four.clock.settle()
            liar.back.flip = len(liar.back.seen) + 20  # after the head of the next frame
            await four.until(lambda: len(errors) == 3)
        assert {error.code for error in errors} == {CloseCode.BAD_RECORD}
        _, path = await reached(four)
        assert path == [0, 3, 2]
        assert liar.dials == 1


async def test_liar_on_the_only_path_blocks_only_servers_behind_it() -> None:
    """The failure is reported, and other servers are still reached along the best path."""
    async with servers(4, [(0, 1), (1, 2), (1, 3)]) as four:
        await four.until(four.know_all)
        honest = four.nodes[LIAR].handlers.reserved[TUNNEL_LABEL]
        liar = Liar(four, "garbles")

        async def fails() -> None:
            with pytest.raises(HandshakeError):
                await four.federations[0].reach(four.nodes[TARGET].node_id)

        await ticking(four, fails())
        assert liar.dials == 1
        four.nodes[LIAR].handlers.reserved[TUNNEL_LABEL] = honest
        for target in (LIAR, 3):
            assert (await reached(four, target))[1] == [0, 1, 3][: 2 + (target == 3)]
