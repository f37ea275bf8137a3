"""Links of servers: one session per pair, whichever server dials; and invalid links."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import pytest

from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
from parley._node.errors import (
    ConfigError,
    PeerClosedError,
    StreamResetError,
    UnreachableError,
)
from parley._node.federation.limits import MOST_LINKS
from parley._node.handlers.registry import Entry
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import FEDERATION_LABEL, CloseCode
from parley._node.protocol.limits import Limits
from parley._node.remote.stream import Stream
from parley._node.server.links import ServerLink, ServerLinks
from parley._node.settings.tables import FederationSettings
from parley._node.testing.nodes import MemoryNetwork, connect_nodes
from tests.node.network import PATIENCE, eventually, new_node
from tests.vectors.load import Vector, vectors

pytestmark = pytest.mark.anyio
QUICK = Backoff(first=0.01, longest=0.02)


class Server:
    """A node with links, but without cards."""

    def __init__(
        self, network: MemoryNetwork, node: Node, *links: Node, members: tuple[Node, ...] = ()
    ) -> None:
        self.node = node
        self.ups: list[Peer] = []
        self.downs: list[Peer] = []
        self.links = ServerLinks(
            node.node_id,
            FederationSettings(
                links=tuple(network.address(other) for other in links),
                members=tuple(str(other.node_id) for other in members),
            ),
            self,
            pauses=QUICK,
        )
        node.handlers.reserved[FEDERATION_LABEL] = Entry(FEDERATION_LABEL, self._opened)

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        self.ups.append(peer)
        if peer.core.initiator:
            peer.streams.open_federation()

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        self.downs.append(peer)

    def peer(self, other: "Server") -> Peer | None:
        return self.links.peer(other.node.node_id)

    async def _opened(self, stream: Stream) -> None:
        assert isinstance(stream.peer, Peer)
        code = self.links.accept(stream.peer)
        if code is not None:
            stream.reset(code)
        else:
            await stream.receive_event()


@asynccontextmanager
async def network(*nodes: Node) -> AsyncIterator[MemoryNetwork]:
    with anyio.fail_after(PATIENCE):
        async with MemoryNetwork() as network, AsyncExitStack() as stack:
            for node in nodes:
                await stack.enter_async_context(node)
            network.add(*nodes)
            yield network


@asynccontextmanager
async def begun(network: MemoryNetwork, *servers: Server) -> AsyncIterator[None]:
    try:
        for server in servers:
            server.links.start(server.node.backend, network.dial_from(server.node))
        yield
    finally:
        for server in servers:
            await server.links.stop()


def pair() -> tuple[Node, Node]:
    """Return two nodes, the one with the smaller ID first."""
    first, second = sorted((new_node(), new_node()), key=lambda node: bytes(node.node_id))
    return first, second


def linked(one: Server, other: Server) -> bool:
    ours, theirs = one.peer(other), other.peer(one)
    if ours is None or theirs is None:
        return False
    return ours.is_open and theirs.is_open and ours.core.initiator is not theirs.core.initiator


def cut_often(cuts: int, *servers: Server) -> bool:
    return all(len(server.downs) >= cuts for server in servers)


async def test_only_one_side_dials() -> None:
    small, large = pair()
    async with network(small, large) as net:
        one, other = Server(net, small, members=(large,)), Server(net, large, small)
        async with begun(net, one, other):
            await eventually(lambda: linked(one, other))
            (link,) = other.links
            assert (link.is_kept, link.dialled, link.is_up) == (True, True, True)
            (back,) = one.links
            assert (back.is_kept, back.dialled) == (False, False)
            net.way(small, large).cut()
            await eventually(lambda: bool(other.downs) and linked(one, other))
            assert len(one.ups) == 2
        assert list(one.links) == []
        assert link.is_up is False


async def test_both_dial_and_one_session_stays() -> None:
    small, large = pair()
    async with network(small, large) as net:
        one, other = Server(net, small, large), Server(net, large, small)
        async with begun(net, one, other):
            for cuts in range(1, 4):
                await eventually(lambda: linked(one, other))
                await eventually(lambda: len(small.peers) == len(large.peers) == 1)
                net.way(small, large).cut()
                await eventually(partial(cut_often, cuts, one, other))


@pytest.mark.parametrize("side", [0, 1])
async def test_of_two_sessions_that_of_the_smaller_initiator_stays(side: int) -> None:
    small, large = pair()
    async with network(small, large) as net:
        ours, other = ((small, large), (large, small))[side]
        server = Server(net, ours, members=(other,))
        link = ServerLink(ours.node_id, other.node_id, (), server)
        link.start(ours.backend)
        sessions = [
            (await connect_nodes(*ends))[ends[0] is not ours]
            for ends in ((large, small), (small, large), (small, large), (large, small))
        ]
        # The second session's initiator has the smaller ID; the third session is newer.
        assert [link.take(peer) for peer in sessions] == [True, True, True, False]
        await eventually(lambda: [p.is_open for p in sessions] == [False, False, True, False])
        assert (server.ups, server.downs) == (sessions[:3], sessions[:2])
        link.drop()
        await link.stop()
        assert server.downs == sessions[:3]


async def test_payloads_are_large_enough_or_there_is_no_link() -> None:
    small, large = pair()
    narrow = new_node(limits=Limits(max_payload=128 * 1024 - 1))
    async with network(small, narrow, large) as net:
        one = Server(net, small, narrow, large)
        two = Server(net, narrow, members=(small,))
        three = Server(net, large, members=(small,))
        async with begun(net, one, two, three):
            await eventually(lambda: linked(one, three))
            of = {link.node_id: link for link in one.links}
            await eventually(lambda: of[narrow.node_id].error is not None)
            assert isinstance(of[narrow.node_id].error, ConfigError)
            assert "131,072" in str(of[narrow.node_id].error)
            peer = await net.dial_from(narrow)(net.address(small))
            with pytest.raises(PeerClosedError) as closed:
                await peer.streams.open_federation().receive_event()
            assert closed.value.code == CloseCode.NORMAL
            assert all(link.peer is not peer for link in one.links)


# A second stream is tested in test_directory_driver.py, because no cards are exchanged here.
@vectors("federation", lambda vector: vector["kind"] == "link" and vector["first"])
async def test_what_makes_a_link(vector: Vector) -> None:
    resume = vector["m"] / 1000
    ours = new_node(resume=resume, limits=Limits(max_payload=vector["payload"]))
    theirs = new_node(resume=30.0)
    async with network(ours, theirs) as net:
        one = Server(net, theirs, members=(ours,) if vector["member"] else ())
        async with begun(net, one):
            if vector["opener_dialled"]:
                address = await theirs.listen("tcp://127.0.0.1:0")
                peer = await ours.connect(address, resumable=vector["m"] > 0)
            else:
                await theirs.connect(await ours.listen("tcp://127.0.0.1:0"), resumable=False)
                await eventually(lambda: bool(ours.peers))
                (peer,) = ours.peers
            stream = peer.streams.open_federation()
            if "expected" in vector:
                await eventually(lambda: bool(one.ups))
                assert not stream.has_ended
                return
            with pytest.raises((StreamResetError, PeerClosedError)) as caught:
                await stream.receive_event()
            closed = isinstance(caught.value, PeerClosedError)
            code = (
                CloseCode.NORMAL if closed else CloseCode[vector["fails"].replace("-", "_").upper()]
            )
            assert closed is (vector["fails"] == "closed")
            assert caught.value.code == code
            assert not one.ups


async def test_failing_link_reports_the_error() -> None:
    small, large = pair()
    async with network(small, large) as net:
        one, other = Server(net, small, large), Server(net, large, members=(small,))
        net.close(small, large)
        async with begun(net, one, other):
            (link,) = one.links
            await eventually(lambda: link.error is not None)
            assert "cannot connect to" in str(link.error)
            assert not link.is_up
            net.open(small, large)
            await eventually(lambda: linked(one, other))
            other_end = other.peer(one)
            assert other_end is not None
            await other_end.close()
            await eventually(lambda: isinstance(link.error, PeerClosedError) and linked(one, other))


async def test_server_cannot_be_a_member_of_its_own_federation() -> None:
    node = new_node()
    with pytest.raises(ConfigError, match="this server's own node ID"):
        ServerLinks(node.node_id, FederationSettings(members=(str(node.node_id),)), None)  # type: ignore[arg-type]  # there are no receivers


async def test_a_server_has_so_many_links_and_no_more() -> None:
    ours, theirs = new_node(), new_node()
    async with network(ours, theirs) as net:
        one = Server(net, ours, members=(theirs,))
        places = [f"tcp://127.0.0.1:1#{NodeId(bytes((n,)) * 32)}" for n in range(MOST_LINKS)]
        for count, code in ((MOST_LINKS, CloseCode.OVERLOADED), (MOST_LINKS - 1, None)):
            settings = FederationSettings(
                links=tuple(places[:count]), members=(str(theirs.node_id),)
            )
            one.links = ServerLinks(ours.node_id, settings, one)
            async with begun(net, one):
                peer, back = await connect_nodes(theirs, ours)
                assert one.links.accept(back) is code
                assert len(list(one.links)) == MOST_LINKS
                await peer.close()


async def test_links_follow_the_settings() -> None:
    nodes = [new_node() for _ in range(3)]
    async with network(*nodes) as net:
        first, second, third = nodes
        ours, theirs, other = Server(net, first, second), Server(net, second), Server(net, third)
        both = tuple(str(node.node_id) for node in (first, second, third))
        for server in (theirs, other):
            members = tuple(text for text in both if text != str(server.node.node_id))
            server.links.change(FederationSettings(members=members))
        async with begun(net, ours, theirs, other):
            await eventually(lambda: linked(ours, theirs))
            # The third server takes the place of the second one.
            ours.links.change(FederationSettings(links=(net.address(third),)))
            await eventually(lambda: linked(ours, other))
            assert ours.peer(theirs) is None
            assert [link.node_id for link in ours.links] == [third.node_id]
            # From now on, this side also dials the link that the other one had opened.
            assert [link.is_kept for link in other.links] == [False]
            other.links.change(FederationSettings(links=(net.address(first),)))
            assert [link.is_kept for link in other.links] == [True]
            assert linked(ours, other)
            other.links.change(FederationSettings(links=(net.address(first),)))


async def test_a_link_dials_addresses_that_are_added() -> None:
    """As when the server of the link succeeds another linked server."""
    small, large = pair()
    async with network(small, large) as net:
        one, other = Server(net, small), Server(net, large, members=(small,))
        refused = f"tcp://127.0.0.1:9#{large.node_id}"

        async def dial(address: str) -> Peer:
            if address == refused:
                raise UnreachableError("nobody answers at this address")
            return await net.dial_from(small)(address)

        one.links = ServerLinks(
            small.node_id, FederationSettings(links=(refused,)), one, pauses=QUICK
        )
        async with begun(net, other):
            one.links.start(small.backend, dial)
            (link,) = one.links
            await eventually(lambda: link.error is not None)
            one.links.change(FederationSettings(links=(refused, net.address(large))))
            await eventually(lambda: linked(one, other))
            assert list(one.links) == [link]
            await one.links.stop()
