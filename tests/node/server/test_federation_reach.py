"""Servers reach each other through other servers: exports, paths and refusals."""

from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._crypto.identity import Identity, NodeId
from parley._node.errors import CallRefused, ConfigError, TunnelRefusedError
from parley._node.federation.exports import Exports
from parley._node.node import Node
from parley._node.peer.login import log_in, log_out
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode
from parley._node.remote.requests import Call
from parley._node.remote.resumer import Dial
from parley._node.tunnels.dial import dial_tunnel, tunnel_dial
from parley._node.tunnels.policy import AccountDialPolicy
from tests.node.network import config
from tests.node.server.ring import Servers, ring, servers

pytestmark = pytest.mark.anyio
TRACE = bytes(16)


def offer(nodes: list[Node]) -> None:
    """Let each server answer with its number, the path of the call and the caller, to permitted
    callers.
    """
    for number, node in enumerate(nodes):

        @node.on_call("who")
        async def who(call: Call, number: int = number) -> list[Any]:
            assert isinstance(call.peer, Peer)
            return [number, list(call.peer.path), call.peer.node_id]

        @node.on_call("secret")
        async def secret(call: Call) -> str:
            return "told"


async def asked(peer: Peer) -> list[Any]:
    told: Any = await peer.call("who")
    return list(told)


async def ticking(four: Servers, asked: Coroutine[Any, Any, Any]) -> Any:
    """Await a request while time passes."""
    answer = []

    async def ask() -> None:
        answer.append(await asked)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await four.until(lambda: bool(answer))
    return answer[0]


async def test_a_call_goes_around_the_ring() -> None:
    async with servers(5, ring(5), exports=("who",)) as five:
        offer(five.nodes)
        await five.until(five.know_all)
        ids = [node.node_id for node in five.nodes]
        peer = await five.federations[0].reach(ids[2])
        assert five.numbers(peer.path) == [0, 1, 2]
        assert peer.node_id == ids[2]
        number, path, asker = await asked(peer)
        assert (number, five.numbers(path), asker) == (2, [0, 1, 2], ids[0])
        with pytest.raises(CallRefused) as caught:
            await peer.call("secret")
        assert caught.value.code == ResultCode.NOT_AUTHORISED
        await peer.close()
        # A neighbour is also reached through a tunnel, under the same rules.
        near = await five.federations[0].reach(ids[1])
        assert five.numbers(near.path) == [0, 1]
        assert (await asked(near))[0] == 1
        await near.close()
        await five.clock.settle()
        assert all(not each.tunnels for each in five.federations)


async def test_unreachable_targets() -> None:
    async with servers(4, [(0, 1), (1, 2)], carrying=(0, 2)) as four:
        ids = [node.node_id for node in four.nodes]
        first = four.federations[0]
        await four.until(lambda: four.path(0, 1) == [0, 1])
        await four.until(lambda: len(first.servers) == 2)
        for to in ((ids[2],), (ids[3],), (ids[3], ids[1])):
            with pytest.raises(TunnelRefusedError) as caught:
                await first.reach(*to)
            assert caught.value.code == ResultCode.UNREACHABLE
        for wrong in ((), (ids[0],), (ids[1], ids[0]), (ids[1], ids[1]), tuple(ids[1:])):
            with pytest.raises(ConfigError, match="cannot reach"):
                await first.reach(*wrong)
        # A dishonest server may use a path through a server that doesn't relay for it.
        (link,) = first.links
        assert link.peer is not None
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(link.peer, path=ids[:3], trace=TRACE, timeout=1)
        assert (caught.value.code, caught.value.hop) == (ResultCode.NOT_AUTHORISED, 1)


async def logged_in(three: Servers, client: Node, home: int) -> Peer:
    """Log a node in at a server, which can then open tunnels to it."""
    three.network.add(client)
    peer = await three.network.dial_from(client)(three.network.address(three.nodes[home]))
    client.connections.serve_tunnels(
        AccountDialPolicy(client.node_id, lambda: {three.nodes[home].node_id}, three.clock.now)
    )
    client.handlers.exports.add(Exports(["who"]))
    await log_in(peer)
    return peer


def by_home(peer: Peer, *to: NodeId) -> Dial:
    return tunnel_dial(partial(dial_tunnel, peer, to=to, trace=TRACE, timeout=5))


async def test_accounts_reach_servers_and_each_other() -> None:
    async with servers(3, ring(3), exports=("who",), accounts="any") as three:
        clients = [Node(Identity.create(), config=config(), clock=three.clock) for _ in range(2)]
        ids = [client.node_id for client in clients]
        offer([*three.nodes, *clients])
        async with clients[0], clients[1]:
            await three.until(three.know_all)
            homes = [await logged_in(three, client, home) for home, client in enumerate(clients)]
            one, other = three.nodes[1].node_id, three.nodes[2].node_id
            # A server that isn't its neighbour; its home; an account elsewhere; and one here.
            for to, number in (
                ((other,), 2),
                ((three.nodes[0].node_id,), 0),
                ((one, ids[1]), 4),
            ):
                peer = await clients[0].connections.connect_by(
                    [by_home(homes[0], *to)], to[-1], name="by home"
                )
                told, path, asker = await asked(peer)
                assert (told, asker) == (number, ids[0])
                assert path[-1] == to[-1]
                await peer.close()
            # A server reaches accounts of other servers and its own.
            for server, length in ((2, 3), (1, 2)):
                peer = await three.federations[server].reach(one, ids[1])
                told, path, asker = await asked(peer)
                assert (told, len(path), asker) == (4, length, three.nodes[server].node_id)
                await peer.close()
            await log_out(homes[1])
            for server in (2, 1):
                with pytest.raises(TunnelRefusedError) as caught:
                    await three.federations[server].reach(one, ids[1])
                assert caught.value.code == ResultCode.UNREACHABLE
            # An account dials only through its home, without a separate path.
            with pytest.raises(TunnelRefusedError) as caught:
                await dial_tunnel(
                    homes[0], path=[ids[0], three.nodes[0].node_id], trace=TRACE, timeout=1
                )
            assert caught.value.code == ResultCode.NOT_AUTHORISED


async def test_node_without_an_account_reaches_no_server() -> None:
    async with servers(2, [(0, 1)], exports=("who",)) as two:
        client = Node(Identity.create(), config=config(), clock=two.clock)
        async with client:
            await two.until(two.know_all)
            two.network.add(client)
            peer = await two.network.dial_from(client)(two.network.address(two.nodes[0]))
            with pytest.raises(CallRefused) as refused:
                await log_in(peer)
            assert refused.value.code == ResultCode.NOT_AUTHORISED
            for node in two.nodes:
                with pytest.raises(TunnelRefusedError) as caught:
                    await dial_tunnel(peer, to=(node.node_id,), trace=TRACE, timeout=1)
                assert caught.value.code == ResultCode.NOT_AUTHORISED
            # Nor through a tunnel, although it may use it directly.
            inner = await two.federations[0].reach(two.nodes[1].node_id)
            with pytest.raises(CallRefused) as refused:
                await log_in(inner)
            assert refused.value.code == ResultCode.NOT_AUTHORISED


async def test_session_continues_over_another_path_and_directly(tmp_path: Path) -> None:
    async with servers(4, ring(4), exports=("who",), resume=30.0) as four:
        offer(four.nodes)
        await four.until(four.know_all)
        ids = [node.node_id for node in four.nodes]
        direct = f"unix://{tmp_path}/2"
        peer = await four.federations[0].reach(ids[2], also=[direct])
        assert four.numbers(peer.path) == [0, 1, 2]
        assert (await asked(peer))[0] == 2
        four.network.kill(four.nodes[1])
        number, path, _ = await ticking(four, asked(peer))
        assert (number, four.numbers(path)) == (2, [0, 3, 2])
        assert (peer.resumes, four.numbers(peer.path)) == (1, [0, 3, 2])
        await four.nodes[2].listen(direct)
        four.network.kill(four.nodes[3])
        # From here on, the request is direct, so exports don't apply.
        assert await ticking(four, peer.call("secret")) == "told"
        assert (peer.resumes, peer.path) == (2, ())
        await peer.close()


async def test_silent_link_is_avoided_and_not_the_server_waiting_for_it() -> None:
    async with servers(4, ring(4), exports=("who",)) as four:
        offer(four.nodes)
        await four.until(four.know_all)
        one, other = four.nodes[1], four.nodes[2]
        four.network.way(one, other).stall()
        peer = await ticking(four, four.federations[0].reach(other.node_id))
        assert four.numbers(peer.path) == [0, 3, 2]
        near = await ticking(four, four.federations[0].reach(one.node_id))
        assert four.numbers(near.path) == [0, 1]
        four.network.way(one, other).heal()


async def test_topics_elsewhere_are_followed_through_servers() -> None:
    async with servers(
        4, ring(4), exports=("news", "rest"), follow=("news",), accounts="any", resume=30.0
    ) as four:
        clients = [Node(Identity.create(), config=config(), clock=four.clock) for _ in range(2)]
        async with clients[0], clients[1]:
            await four.until(four.know_all)
            publisher = four.nodes[2]
            topic = publisher.topic("news", allow=[four.nodes[0].node_id])
            publisher.topic("rest")
            home, beside = [await logged_in(four, client, 0) for client in clients]
            name = f"news@{publisher.node_id}"
            async with home.subscribe(name) as one, beside.subscribe(name) as other:
                assert [len(topic.subscribers), four.federations[2].tunnels] == [1, 1]
                await topic.publish("before")
                assert [await anext(sub) for sub in (one, other)] == ["before"] * 2
                four.network.kill(four.nodes[1])
                await topic.publish("after")
                assert [await ticking(four, anext(sub)) for sub in (one, other)] == ["after"] * 2
            await four.until(lambda: not topic.subscribers)
            for wrong in (f"rest@{publisher.node_id}", f"none@{publisher.node_id}"):
                with pytest.raises(CallRefused) as caught:
                    await home.subscribe(wrong).__aenter__()
                assert caught.value.code == ResultCode.NOT_AUTHORISED
