"""Tests of tunnels over one and more hops, from dial to end."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley._node.errors import (
    AddressError,
    ConfigError,
    NotTrustedError,
    TunnelRefusedError,
    UnreachableError,
)
from parley._node.protocol.codes import CloseCode
from parley._node.remote.requests import Call
from parley._node.trust.policies import AnyPeer
from tests.node.network import eventually
from tests.node.tunnels.tunnel_rows import row


@pytest.mark.parametrize("count", [3, 5])
async def test_a_call_through_a_tunnel(count: int, anyio_backend: str) -> None:
    async with row(count) as made:
        asked: list[Call] = []

        @made.target.on_call("echo")
        async def echo(call: Call) -> object:
            asked.append(call)
            return call.data

        peer = await made.reach()
        assert await peer.call("echo", b"x" * 300_000) == b"x" * 300_000
        assert peer.path == (made.path[0], made.path[-1])  # only its home knows the rest
        assert asked[0].peer.node_id == made.origin.node_id
        assert asked[0].peer.path == made.path
        assert made.links[0][0].path == ()
        await peer.close()
        await eventually(lambda: not any(switch.open for switch in made.switches))
        assert len(made.records) == count - 2
        assert len({(record.trace, record.forward, record.back) for record in made.records}) == 1
        assert made.records[0].forward > 300_000


async def test_via_addresses(anyio_backend: str) -> None:
    async with row(3) as made:
        origin, server, target = made.nodes

        @target.on_call("who")
        async def who(call: Call) -> object:
            return [str(call.peer.node_id), len(call.peer.path)]

        listening = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0]
        place = f"{listening.replace('tcp', 'via')}/{server.node_id}"
        async with await origin.connect(f"{place}#{target.node_id}") as peer:
            assert await peer.call("who") == [str(origin.node_id), 2]
            async with await origin.connect(f"{place}#{target.node_id}") as second:
                assert await second.call("who") == [str(origin.node_id), 2]
                assert len(server.peers) == 3  # both share one outer connection
        await eventually(lambda: len(server.peers) == 2)
        with pytest.raises(TunnelRefusedError, match="not found"):
            await origin.connect(f"{place}/{server.node_id}#{target.node_id}")
        await eventually(lambda: len(server.peers) == 2)

        async with origin.link(f"{place}#{target.node_id}") as link:
            assert await link.call("who") == [str(origin.node_id), 2]


async def test_a_session_moves_to_another_tunnel_and_to_a_direct_address(
    anyio_backend: str,
) -> None:
    async with row(3, resume=30.0) as made:
        origin, server, target = made.nodes
        paths = []
        direct = await target.listen("tcp://127.0.0.1:0")

        @target.on_call("path")
        async def path(call: Call) -> None:
            paths.append(call.peer.path)

        listening = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0]
        place = f"{listening.replace('tcp', 'via')}/{server.node_id}#{target.node_id}"
        peer = await origin.connect(place, also=[direct])
        await peer.call("path")
        assert peer.path == made.path
        for one in server.peers:
            if one.node_id == origin.node_id:
                one.live.drop(CloseCode.GOING_AWAY)
        await eventually(lambda: peer.resumes == 1)
        await peer.call("path")
        await server.aclose()
        await peer.call("path")
        assert peer.path == ()
        assert paths == [made.path, made.path, ()]
        await peer.close()


async def test_the_session_of_a_link_moves_to_its_other_address(anyio_backend: str) -> None:
    async with row(3, resume=30.0) as made:
        origin, server, target = made.nodes
        direct = await target.listen("tcp://127.0.0.1:0")

        @target.on_call("path")
        async def path(call: Call) -> int:
            return len(call.peer.path)

        listening = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0]
        place = f"{listening.replace('tcp', 'via')}/{server.node_id}#{target.node_id}"
        async with origin.link(place, also=[direct]) as link:
            assert await link.call("path") == 2
            session = link.peer
            await server.aclose()
            assert await link.call("path") == 0
            assert link.peer is session


async def test_a_via_address_that_leads_nowhere_leaves_nothing(anyio_backend: str) -> None:
    async with row(3) as made:
        origin, server, target = made.nodes
        listening = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0]
        place = f"{listening.replace('tcp', 'via')}/{server.node_id}"
        wrong = f"{listening.replace('tcp', 'via')}/{target.node_id}#{target.node_id}"
        with pytest.raises(ConfigError, match="#NODEID"):
            await origin.connect(place, trust=AnyPeer())
        with pytest.raises(NotTrustedError):
            await origin.connect(wrong)
        await server.aclose()
        with pytest.raises(UnreachableError):
            await origin.connect(f"{place}#{target.node_id}")
        with pytest.raises(AddressError, match="only native nodes support via"):
            await origin.listen(place)
        assert origin.peers == [made.links[0][0]] or not origin.peers


async def test_a_dial_through_a_server_may_be_cancelled_at_any_moment(anyio_backend: str) -> None:
    async with row(3) as made:
        origin, server, target = made.nodes
        listening = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0]
        place = f"{listening.replace('tcp', 'via')}/{server.node_id}#{target.node_id}"

        async def visit() -> None:
            async with await origin.connect(place):
                await anyio.sleep_forever()

        for turns in range(0, 60, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit)
                for _ in range(turns):
                    await checkpoint()
                tasks.cancel_scope.cancel()
        await eventually(lambda: len(server.peers) == 2 and len(target.peers) == 1)
        await eventually(lambda: not any(switch.open for switch in made.switches))
        assert [peer.path for peer in origin.peers] == [()]
