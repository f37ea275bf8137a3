"""What a peer sends on streams `tunnel` that are not open yet is bounded as all else it sends."""

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.codes import DIAL, TUNNEL, CloseCode
from parley._node.protocol.limits import Limits
from tests.inspection import error_code_of
from tests.node.network import eventually
from tests.node.tunnels.test_service import Hanging
from tests.node.tunnels.ways import row

DIALLED = encode({keys.TRACE: bytes(16), keys.DEADLINE_MS: 60_000, keys.TO: [bytes(32)]})
MEMORY = 2**20
LARGE = 2**17


async def test_events_behind_a_dial_count_as_all_that_is_unread(anyio_backend: str) -> None:
    limits = Limits(max_payload=LARGE)
    async with row(3, peer_memory=MEMORY, write_buffer=MEMORY // 4, limits=limits) as made:
        made.nodes[1].handlers.reserved.pop("tunnel")
        switch = Hanging()
        made.nodes[1].serve_tunnels(switch)
        dialler, server = made.links[0]
        streams = [dialler.streams.open_tunnel() for _ in range(20)]
        for stream in streams:
            dialler.core.send(stream.id, 1, TUNNEL, DIAL, DIALLED, lbm=True)
        await eventually(lambda: switch.asked == len(streams))
        for stream in streams:
            dialler.core.send(stream.id, 0, TUNNEL, DIAL, bytes(LARGE), lbm=False)
            await dialler.ping()
            assert server.core.account.held <= MEMORY + 2 * LARGE
        await eventually(lambda: switch.cancelled > 10)
        assert server.is_open


async def test_data_before_the_answer_is_not_kept(anyio_backend: str) -> None:
    async with row(3) as made:
        made.nodes[1].handlers.reserved.pop("tunnel")
        made.nodes[1].serve_tunnels(Hanging())
        dialler, server = made.links[0]
        stream = dialler.streams.open_tunnel()
        dialler.core.send(stream.id, 1, TUNNEL, DIAL, DIALLED, lbm=True)
        await stream.send(bytes(1_000))
        await eventually(lambda: error_code_of(stream) is not None)
        assert error_code_of(stream) == CloseCode.PROTOCOL_ERROR
        await eventually(lambda: server.core.flow().unconsumed == 0 and not len(server.streams))
