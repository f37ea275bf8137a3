"""A server on the way that takes tunnels and never answers is gone around, and not whoever waited
for it and says so (docs/threat-model.md, F9).
"""

import anyio
import pytest

from parley._node.errors import TunnelRefusedError
from parley._node.handlers.registry import Entry
from parley._node.protocol.codes import TUNNEL_LABEL, ResultCode
from parley._node.remote.requests import Call
from parley._node.streams.stream import Stream
from parley._node.tunnels.dialling import dial_tunnel
from tests.node.server.ring import servers
from tests.node.server.test_reach import ticking

pytestmark = pytest.mark.anyio

# From 0 all ways lead through 1; from there on through 2 or 3.
EDGES = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)]
TRACE = bytes(16)


async def hang(stream: Stream) -> None:
    """Neither answers a Dial nor ends."""
    await anyio.sleep_forever()


async def test_who_stalls_is_gone_around_and_not_who_says_so() -> None:
    async with servers(5, EDGES, exports=("who",)) as five:
        await five.until(five.know_all)
        ids = [node.node_id for node in five.nodes]

        @five.nodes[4].on_call("who")
        async def who(call: Call) -> int:
            return 4

        assert five.path(0, 4) == [0, 1, 2, 4]
        five.nodes[2].handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, hang)
        (link,) = five.federations[0].links
        assert link.peer is not None
        path = [ids[number] for number in (0, 1, 2, 4)]

        async def refused() -> tuple[int, int | None]:
            assert link.peer is not None
            with pytest.raises(TunnelRefusedError) as caught:
                await dial_tunnel(link.peer, path=path, trace=TRACE, timeout=3)
            return caught.value.code, caught.value.hop

        assert await ticking(five, refused()) == (ResultCode.UNREACHABLE, 1)
        peer = await ticking(five, five.federations[0].reach(ids[4]))
        assert five.numbers(peer.path) == [0, 1, 3, 4]
        assert await peer.call("who") == 4
        await peer.close()
