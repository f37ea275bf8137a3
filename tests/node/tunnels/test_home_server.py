"""Tests of node/tunnels/home_server.py: a logged-in node connects to others and accepts
connections.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from anyio.abc import TaskGroup, TaskStatus

from parley import Call
from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
from parley._node.errors import (
    AddressError,
    CallRefused,
    CallTimeout,
    ConfigError,
    ParleyError,
    PeerClosedError,
    TunnelRefusedError,
    UnreachableError,
)
from parley._node.federation.accounts import Accounts
from parley._node.federation.exports import Exports
from parley._node.messaging.logins import Logins
from parley._node.node import Node
from parley._node.peer.addresses import RESOLVERS
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import TUNNEL_LABEL, CloseCode, ResultCode
from parley._node.remote.resumer import SessionResumer
from parley._node.testing import connect_nodes
from parley._node.tunnels import home_server as home_module
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.home_server import Home
from tests.node.network import PATIENCE, eventually, new_node
from tests.node.tunnels.tunnel_rows import Passing

pytestmark = pytest.mark.anyio

T = TypeVar("T")
SOON = Backoff(first=0.01, longest=0.05)


class Server:
    """A home server that gives everyone an account and forwards tunnels as configured."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.accounts = Accounts[Any](None)
        node.handlers.accounts = self.accounts
        self.switch = Passing(node)
        node.connections.serve_tunnels(self.switch)
        self.address = ""

    @property
    def id(self) -> NodeId:
        return self.node.node_id

    def session(self, node: Node) -> Peer:
        """Return the session over which a node is logged in."""
        live = self.accounts.session(node.node_id)
        assert live is not None
        peer = live.remote
        assert isinstance(peer, Peer)
        return peer

    def leads(self, *way: NodeId) -> None:
        """Forward to the account at the end of the path."""
        self.switch.ways[way[-2:]] = way


class Place:
    """Servers and nodes that are closed after the test. Each runs in its own task, because trio
    doesn't let a test leave a cancel scope open.
    """

    def __init__(self, tasks: TaskGroup, directory: Path) -> None:
        self._tasks = tasks
        self._directory = directory
        self._held: list[tuple[anyio.Event, anyio.Event]] = []

    async def _enter(self, context: AbstractAsyncContextManager[T]) -> T:
        end, ended = anyio.Event(), anyio.Event()

        async def hold(*, task_status: TaskStatus[T]) -> None:
            try:
                async with context as value:
                    task_status.started(value)
                    await end.wait()
            finally:
                ended.set()

        value: T = await self._tasks.start(hold)
        self._held.append((end, ended))
        return value

    async def aclose(self) -> None:
        """Close all of them, the last one first."""
        for end, ended in reversed(self._held):
            end.set()
            await ended.wait()

    async def node(self, **settings: Any) -> Node:
        node = await self._enter(new_node(**settings))

        @node.on_call("who")
        async def who(call: Call) -> str:
            assert isinstance(call.peer, Peer)
            return f"{call.peer.node_id} by {len(call.peer.path)}"

        return node

    async def server(self, **settings: Any) -> Server:
        made = Server(await self.node(**settings))
        made.address = await made.node.listen(f"unix://{self._directory}/{made.id.short}")
        return made

    async def home(self, node: Node, server: Server, *exports: str) -> Home:
        home = node.home(server.address, exports=exports, pauses=SOON)
        await self._enter(home)
        await home.ready(PATIENCE)
        return home

    async def two(self, **settings: Any) -> "Two":
        server = await self.server(**settings)
        alice, bob = await self.node(**settings), await self.node(**settings)
        home, theirs = await self.home(alice, server), await self.home(bob, server, "who")
        server.leads(server.id, bob.node_id)
        return Two(server, alice, bob, home, theirs)


@dataclass
class Two:
    """Two accounts of one home: `home` is Alice's, and `theirs` is Bob's, who exports `who`."""

    server: Server
    alice: Node
    bob: Node
    home: Home
    theirs: Home

    async def reach(self, **options: Any) -> Peer:
        return await self.home.reach(self.server.id, self.bob.node_id, **options)


@pytest.fixture
async def place(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Place]:
    async with anyio.create_task_group() as tasks:
        place = Place(tasks, tmp_path)
        yield place
        await place.aclose()


async def test_two_accounts_of_one_home(place: Place) -> None:
    two = await place.two()
    server, alice, bob = two.server, two.alice.node_id, two.bob.node_id
    assert set(server.accounts) == {alice, bob}
    assert (two.home.server, two.theirs.is_up) == (server.id, True)
    peer = await two.home.reach(server.id, str(bob))
    assert peer.node_id == bob
    assert await peer.call("who") == f"{alice} by 2"
    back = next(one for one in two.bob.peers if one.node_id == alice)
    with pytest.raises(CallRefused) as error:
        await peer.call("what")
    assert error.value.code == ResultCode.NOT_AUTHORISED
    with pytest.raises(CallRefused) as error:
        await back.call("who")  # In the other direction: Alice exports no names.
    assert error.value.code == ResultCode.NOT_AUTHORISED
    assert await two.home.call("who") == f"{alice} by 0"  # directly to the home server


async def test_an_account_of_another_home_and_a_server(place: Place) -> None:
    server, other = await place.server(), await place.server()
    await connect_nodes(server.node, other.node)
    alice, bob = await place.node(), await place.node()
    home = await place.home(alice, server)
    await place.home(bob, other, "who")
    server.leads(server.id, other.id, bob.node_id)
    server.switch.ways[(other.id,)] = (server.id, other.id)
    peer = await home.reach(other.id, bob.node_id)
    assert await peer.call("who") == f"{alice.node_id} by 3"
    there = await home.reach(other.id)
    assert there.node_id == other.id
    with pytest.raises(CallRefused):  # It exports no names.
        await there.call("who")


async def test_a_node_may_have_several_homes(place: Place) -> None:
    servers = [await place.server(), await place.server()]
    bob = await place.node()
    clients = [await place.node(), await place.node()]
    ours = [await place.home(node, one) for node, one in zip(clients, servers, strict=True)]
    first = await place.home(bob, servers[0], "nothing")
    async with bob.home(servers[1].address, exports=["who"]) as second:
        await second.ready(PATIENCE)
        for server, home in zip(servers, ours, strict=True):
            server.leads(server.id, bob.node_id)
            # Its exports apply to all of them.
            peer = await home.reach(server.id, bob.node_id)
            assert str(await peer.call("who")).endswith(" by 2")
    assert not bob.handlers.exported("who")
    assert bob.handlers.exported("nothing")
    assert bob.node_id not in servers[1].accounts
    with pytest.raises(TunnelRefusedError):
        await ours[1].reach(servers[1].id, bob.node_id)
    await first.aclose()
    assert TUNNEL_LABEL not in bob.handlers.reserved
    assert bob.handlers.exports == set()


# Login.


async def test_without_an_account_it_is_dialled_on_with_the_longest_pauses(place: Place) -> None:
    server, alice = await place.server(), await place.node()
    server.accounts.change(())
    async with alice.home(server.address, pauses=Backoff(first=0.1, longest=600)) as home:
        with pytest.raises(CallRefused) as error:
            await home.ready(attempts=1)
        assert error.value.code == ResultCode.NOT_AUTHORISED
        assert home.pause >= 300
        assert home.error is error.value
        await eventually(lambda: not server.node.peers)
        server.accounts.change([alice.node_id])
        home.redial()
        await home.ready()
        assert server.accounts.session(alice.node_id) is not None


async def test_it_logs_in_with_each_new_session(place: Place) -> None:
    two = await place.two()
    first = two.server.session(two.bob)
    first.live.drop(CloseCode.GOING_AWAY)
    await eventually(lambda: two.theirs.sessions == 2)
    assert two.server.session(two.bob) is not first
    assert await (await two.reach()).call("who") == f"{two.alice.node_id} by 2"


async def test_leaving_logs_out_and_ends_what_was_reached(place: Place) -> None:
    two = await place.two()
    peer = await two.reach()
    await two.home.aclose()
    assert two.alice.node_id not in two.server.accounts
    assert peer.is_gone
    with pytest.raises(PeerClosedError):
        await two.reach()
    # Bob is still logged in.
    assert two.server.session(two.bob).is_open


async def test_leaving_by_an_exception_does_not_wait(place: Place) -> None:
    server, alice = await place.server(), await place.node()
    home = await alice.home(server.address, exports=["who"]).__aenter__()
    await home.ready()
    await home.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not alice.handlers.exports
    await eventually(lambda: alice.node_id not in server.accounts)


async def test_a_home_that_does_not_answer_is_left_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, alice = await place.server(), await place.node()
    home = await alice.home(server.address).__aenter__()
    await home.ready()
    monkeypatch.setattr(Logins, "logout_received", lambda *_: False)
    monkeypatch.setattr(home_module, "LOGOUT_TIMEOUT", 0.05)
    await home.aclose()
    await eventually(lambda: alice.node_id not in server.accounts)


async def test_a_home_is_entered_once_and_not_by_a_server(place: Place) -> None:
    server, other = await place.server(), await place.server()
    with pytest.raises(ParleyError, match="cannot serve tunnels: another service does already"):
        await other.node.home(server.address, exports=["who"]).__aenter__()
    assert not other.node.handlers.exports
    alice = await place.node()
    home = await place.home(alice, server)
    with pytest.raises(ParleyError, match="cannot enter a home twice"):
        await home.__aenter__()
    assert home.is_up


# Errors.


async def test_nobody_but_a_home_leads_here(place: Place) -> None:
    two = await place.two()
    stranger = await place.node()
    peer, _ = await connect_nodes(stranger, two.bob)
    path = [stranger.node_id, two.bob.node_id]
    with pytest.raises(TunnelRefusedError) as error:
        await dial_tunnel(peer, path=path, trace=bytes(16), timeout=5.0)
    assert error.value.code == ResultCode.NOT_AUTHORISED


async def test_what_cannot_be_reached(place: Place) -> None:
    two = await place.two()
    with pytest.raises(TunnelRefusedError) as refused:
        await two.home.reach(two.alice.node_id)
    assert refused.value.code == ResultCode.TOPIC_NOT_FOUND
    with pytest.raises(ConfigError, match="a server, or a home and a node"):
        await two.home.reach()
    with pytest.raises(ConfigError, match="cannot reach a node"):
        await two.home.reach("bob")
    with pytest.raises(ConfigError, match="the address is of another node"):
        await two.reach(also=[f"tcp://127.0.0.1:1#{two.alice.node_id}"])
    with pytest.raises(AddressError):
        await two.reach(also=["127.0.0.1:1"])


async def test_a_home_that_is_not_there(place: Place) -> None:
    server, alice = await place.server(), await place.node()
    await server.node.aclose()
    async with alice.home(server.address, pauses=SOON) as home:
        with pytest.raises(CallTimeout) as error:
            await home.reach(server.id, timeout=0.05)
        assert error.value.__cause__ is home.error


# The session continues.


async def test_it_goes_on_over_the_next_session_with_the_home(place: Place) -> None:
    two = await place.two(resume=30.0)
    peer = await two.reach()
    await peer.call("who")  # afterwards both sides know that they can resume
    two.server.session(two.alice).live.drop(CloseCode.GOING_AWAY)
    await eventually(lambda: peer.resumes == 1)
    assert await peer.call("who") == f"{two.alice.node_id} by 2"
    assert two.home.sessions == 2


@pytest.mark.parametrize("found", ["also", "discover"])
async def test_it_moves_to_a_direct_address_and_back(
    place: Place, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = await place.two(resume=30.0)
    direct = await two.bob.listen("tcp://127.0.0.1:0")
    asked = []

    async def resolve(address: str) -> list[str]:
        asked.append(address)
        return [direct]

    monkeypatch.setitem(RESOLVERS, "mdns", resolve)
    also, discover = ([direct], False) if found == "also" else ([], True)
    peer = await two.reach(also=also, discover=discover)
    await eventually(lambda: peer.path == ())
    assert await peer.call("who") == f"{two.alice.node_id} by 0"
    assert set(asked) == ({f"mdns://{two.bob.node_id}"} if discover else set())
    await two.bob.connections.stop_accepting(graceful=True)
    peer.driver.ended()  # the direct connection breaks
    await eventually(lambda: bool(peer.path) and not peer.is_suspended)
    assert await peer.call("who") == f"{two.alice.node_id} by 2"
    assert peer.resumes == 2


async def test_a_node_that_is_nowhere_near(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def resolve(address: str) -> list[str]:
        asked.append(address)
        raise UnreachableError("it is not announced")

    monkeypatch.setitem(RESOLVERS, "mdns", resolve)
    two = await place.two(resume=30.0)
    peer = await two.reach(also=[f"unix://{tmp_path}/nobody"], discover=True)
    redialling = peer.live.redialling
    assert isinstance(redialling, SessionResumer)
    await eventually(lambda: bool(asked) and redialling._runner is None)
    assert await peer.call("who") == f"{two.alice.node_id} by 2"
    assert (peer.resumes, redialling.next) == (0, 0)  # after a loss, a tunnel is tried first


# Publishing.


async def test_notes_for_topics_elsewhere(place: Place) -> None:
    two = await place.two()
    server, alice, bob = two.server, two.alice.node_id, two.bob
    bob.topic("room", keep=10, writers=[alice])
    server.node.topic("here", writers=[alice])
    there = f"room@{server.id}/{bob.node_id}"
    with pytest.raises(CallRefused) as error:
        await two.home.publish(there, "hello")
    assert error.value.code == ResultCode.NOT_AUTHORISED  # not exported
    bob.handlers.exports.add(Exports(["publish:room"]))
    assert [await two.home.publish(there, text, once=True) for text in ("a", "b")] == [1, 2]
    assert len(server.switch.dials) == 1  # all through one tunnel
    assert await two.home.publish("here", 1) is None
    assert await two.home.publish(f"here@{server.id}", 1) is None
    with pytest.raises(CallRefused):
        await two.home.publish("nothing@nowhere", 1)  # not an address, so a topic of the home
    with pytest.raises(TunnelRefusedError):
        await two.home.publish(f"room@{alice}", 1)
    for one in bob.peers:
        if one.node_id == alice:
            one.live.drop(CloseCode.GOING_AWAY)
    await eventually(lambda: all(one.node_id != bob.node_id for one in two.alice.peers))
    assert await two.home.publish(there, "c") == 3
    assert len(server.switch.dials) == 3
