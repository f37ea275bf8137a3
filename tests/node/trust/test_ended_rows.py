"""The effects of an ended node ID (docs/protocol.md section 22): a test for each use of an ID.

`test_ended_ids` has the tests of trust policies, and of dialling an ID directly.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest

from parley import Call, CallRefused, Identity, Node, Peer, create_revocation, create_succession
from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusRefusedError
from parley._node.bus.remote.authorisation import AllowBus
from parley._node.bus.remote.messages import Ack, Join, Own, Read
from parley._node.bus.remote.service import offer_bus
from parley._node.cli.serve.bus_rights import BusRights
from parley._node.errors import (
    HandshakeError,
    IdentityEndedError,
    NotTrustedError,
    OutcomeUnknownError,
    PeerClosedError,
    TunnelRefusedError,
)
from parley._node.handlers.permissions import Allow
from parley._node.peer.addresses import RESOLVERS
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.peer.login import log_in
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.server.federation import Federation, with_successors
from parley._node.settings.tables import BusSettings, FederationSettings
from parley._node.testing.proxy import FaultyProxy
from parley._node.trust.policies import Pinned, restrict_to_node
from parley._node.tunnels.dial import dial_tunnel
from parley.trust import AnyPeer, Candidate, KeyStatements, KnownPeers
from tests.inspection import once_of
from tests.node.bus.model_store import ModelStore
from tests.node.bus.remote.offered import GROUP, NAME, OfferedStore, ask, new
from tests.node.network import PATIENCE, config, eventually, new_node, started
from tests.node.trust.server_with_peers import EVE, server_with_peers

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)
SOON = Backoff(first=0.01, longest=30.0)


class Succession:
    """An identity that ends, and its successor."""

    def __init__(self) -> None:
        self.old, self.recovery = Identity.create_recoverable()
        self.new, _ = Identity.create_recoverable()

    def follow(self, *nodes: Node) -> None:
        """Let nodes store the statement, which they follow."""
        for node in nodes:
            node.statements.apply(create_succession(self.recovery, self.new).encoded)

    def accept(self, *nodes: Node) -> None:
        """Let persons at these nodes accept the successor."""
        for node in nodes:
            node.statements.decide(self.old.node_id, self.new.node_id)


@pytest.fixture
def bob() -> Succession:
    return Succession()


def node_of(identity: Identity, trust: object = None, **settings: object) -> Node:
    return Node(identity, config=config(**settings), trust=trust)  # type: ignore[arg-type] # a policy


async def refused_by(peer: Peer, name: str = "work") -> bool:
    """Return whether a call is not authorised."""
    try:
        await peer.call(name)
    except CallRefused as refused:
        return refused.code == ResultCode.NOT_AUTHORISED
    return False


# Granted rights.


def allowed(server: Node, node_id: NodeId) -> Allow:
    return [node_id]


def assigned(server: Node, node_id: NodeId) -> Allow:
    server.roles.assign(node_id, "writer")
    return "writer"


def loaded(server: Node, node_id: NodeId) -> Allow:
    server.roles.loaded = {node_id: frozenset({"writer"})}
    return "writer"


def asked(server: Node, node_id: NodeId) -> Allow:
    server.roles.ask(lambda one: ["writer"] if one == node_id else [])
    return "writer"


@pytest.mark.parametrize("right", [allowed, assigned, loaded, asked])
async def test_a_right_needs_an_accepted_successor(
    right: Callable[[Node, NodeId], Allow], bob: Succession
) -> None:
    async with new_node() as server, node_of(bob.new) as client, new_node() as other:

        @server.on_call("work", allow=right(server, bob.old.node_id))
        async def work(call: Call) -> int:
            return 1

        address = await server.listen("memory://rights")
        peer, another = await client.connect(address), await other.connect(address)
        assert await refused_by(peer)
        bob.follow(server)
        assert await refused_by(peer)
        bob.accept(server)
        assert not await refused_by(peer)
        assert await refused_by(another)
        server.statements.decide(bob.old.node_id, None)
        assert await refused_by(peer)


async def test_roles_of_include_those_of_accepted_predecessors(bob: Succession) -> None:
    server = new_node()
    server.roles.assign(bob.old.node_id, "old")
    server.roles.assign(bob.new.node_id, "new")
    async with server:
        bob.follow(server)
        assert server.roles.of(bob.new.node_id) == {"new"}
        bob.accept(server)
        assert server.roles.of(bob.new.node_id) == {"old", "new"}
        assert server.roles.of(None) == frozenset()


def rights_in_settings(server: Node, node_id: NodeId) -> AllowBus:
    settings = BusSettings(url="sqlite:///bus.db", allow=(f"{node_id}=publish:*",))
    return BusRights(settings, server.roles).allow


BUS_RIGHTS: dict[str, Callable[[Node, NodeId], AllowBus]] = {
    "everything": lambda server, node_id: [node_id],
    "action": lambda server, node_id: {"publish": [node_id]},
    "settings": rights_in_settings,
}


@pytest.mark.parametrize("right", BUS_RIGHTS)
async def test_a_right_on_the_bus_needs_an_accepted_successor(
    right: str, bob: Succession, tmp_path: Path
) -> None:
    async with new_node() as server, node_of(bob.new) as client:
        allow = BUS_RIGHTS[right](server, bob.old.node_id)
        async with server.bus(f"sqlite:///{tmp_path}/bus.db", allow=allow):
            peer = await client.connect(await server.listen("memory://bus"))
            async with peer.bus() as bus:
                bob.follow(server)
                with pytest.raises(BusRefusedError):
                    await bus.publish(NAME, {})
                bob.accept(server)
                await bus.publish(NAME, {})


# Accounts.


def to_home(home: Node, **settings: object) -> Federation:
    return Federation(home, FederationSettings(**settings))  # type: ignore[arg-type] # settings


async def may_log_in(peer: Peer) -> bool:
    try:
        await log_in(peer)
    except CallRefused as refused:
        return refused.code != ResultCode.NOT_AUTHORISED
    return True


@pytest.mark.parametrize("kind", ["listed", "known"])
async def test_a_followed_successor_gets_the_account(
    kind: str, bob: Succession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    KnownPeers(tmp_path / "accounts").add(bob.old.node_id, "bob", NOW)
    accounts = (str(bob.old.node_id),) if kind == "listed" else "known"
    home = new_node()
    async with home, to_home(home, accounts=accounts), node_of(bob.old) as old:
        address = await home.listen("memory://home")
        async with node_of(bob.new) as client:
            peer, before = await client.connect(address), await old.connect(address)
            assert not await may_log_in(peer)
            assert await may_log_in(before)
            hosted = home.handlers.accounts
            assert hosted is not None
            assert list(hosted) == [bob.old.node_id]
            bob.follow(home)
            await eventually(lambda: list(hosted) == [])
            assert (await before.closed()).code == CloseCode.AUTHENTICATION_FAILED
            assert await may_log_in(peer)
            # A conflict takes the account away again.
            home.statements.apply(create_succession(bob.recovery, Succession().new).encoded)
            assert (await peer.closed()).code == CloseCode.GOING_AWAY
            assert list(hosted) == []


async def test_an_ended_id_has_no_account_where_anybody_has_one() -> None:
    eve = Identity.create()
    home = new_node()
    async with home, to_home(home, accounts="any"), node_of(eve) as client:
        peer = await client.connect(await home.listen("memory://home"))
        assert await may_log_in(peer)
        home.statements.apply(create_revocation(eve).encoded)
        hosted = home.handlers.accounts
        assert hosted is not None
        await eventually(lambda: list(hosted) == [])
        assert not hosted.may(eve.node_id)
        assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED


async def test_a_dial_to_an_ended_id_is_refused_like_one_to_an_unknown_node() -> None:
    eve, other = Identity.create(), Identity.create()
    home = new_node()
    async with home, to_home(home, accounts="any"), new_node() as client:
        peer = await client.connect(await home.listen("memory://home"))
        home.statements.apply(create_revocation(eve).encoded)
        for to, code in (
            ((home.node_id, eve.node_id), ResultCode.TOPIC_NOT_FOUND),
            ((eve.node_id,), ResultCode.TOPIC_NOT_FOUND),
            ((home.node_id, other.node_id), ResultCode.UNREACHABLE),
        ):
            with pytest.raises(TunnelRefusedError) as refused:
                await dial_tunnel(peer, to=to, trace=bytes(16), timeout=5)
            assert refused.value.code == code


# Members.


@asynccontextmanager
async def served(
    identity: Identity, address: str, **settings: object
) -> AsyncIterator[tuple[Node, Federation]]:
    """Run a server of a federation."""
    async with node_of(identity) as node:
        federation = Federation(
            node,
            FederationSettings(**settings),  # type: ignore[arg-type] # settings
            pauses=SOON,
        )
        async with federation:
            await node.listen(address)
            yield node, federation


def linked(federation: Federation) -> list[NodeId]:
    """Return the servers whose links are up, and whose cards are known."""
    known = [one.node_id for one in federation.servers]
    return [
        one.node_id for one in federation.links if one.peer is not None and one.node_id in known
    ]


async def test_members_and_carry_need_an_accepted_successor(bob: Succession) -> None:
    ours, account = Identity.create(), Identity.create()
    old, member = str(bob.old.node_id), (str(ours.node_id),)
    with anyio.fail_after(2 * PATIENCE):
        async with served(
            ours,
            "memory://ours",
            links=(f"memory://bob#{old}",),
            carry=(old,),
            follow=("news",),
            accounts=(str(account.node_id),),
        ) as (node, federation):
            async with served(bob.old, "memory://bob", members=member):
                await eventually(lambda: linked(federation) == [bob.old.node_id])
                (link,) = federation.links
                assert link.peer is not None
                bob.follow(node)
                assert (await link.peer.closed()).code == CloseCode.PEER_NOT_TRUSTED
                await eventually(lambda: not federation.links)
                assert federation.servers == []
            async with served(bob.new, "memory://bob", members=member, exports=("news",)) as there:
                new_bob, theirs = there
                news = new_bob.topic("news", keep=1)
                assert not federation.knows(bob.new.node_id)
                bob.accept(node)
                await eventually(lambda: linked(federation) == [bob.new.node_id])
                await eventually(lambda: linked(theirs) == [ours.node_id])
                assert federation.knows(bob.new.node_id)
                # A topic of the old ID is read from the new one.
                async with node_of(account) as client:
                    peer = await client.connect(node.addresses[0])
                    async with peer.subscribe(f"news@{old}") as notes:
                        await news.publish("again")
                        assert await anext(notes) == "again"
                reached = await federation.reach(bob.old.node_id)
                assert reached.node_id == bob.new.node_id


def test_the_settings_with_successors(bob: Succession) -> None:
    ended, other = Identity.create(), Identity.create().node_id
    statements, own = KeyStatements(), Identity.create().node_id
    old, new = bob.old.node_id, bob.new.node_id
    settings = FederationSettings(
        links=(f"memory://one#{old}", f"memory://two#{new}", f"memory://three#{ended.node_id}"),
        members=(str(other),),
        carry=(str(old),),
    )
    assert with_successors(settings, statements.table, own) is settings
    statements.apply(create_revocation(Identity.create()).encoded)
    assert with_successors(settings, statements.table, own) is settings
    statements.apply(create_succession(bob.recovery, bob.new).encoded)
    statements.apply(create_revocation(ended).encoded)
    followed = with_successors(settings, statements.table, own)
    assert (followed.links, followed.carry) == ((f"memory://two#{new}",), ())
    statements.decide(old, new)
    accepted = with_successors(settings, statements.table, own)
    assert accepted.links == (f"memory://one#{new}", f"memory://two#{new}")
    assert accepted.all_members == {new, other}
    assert accepted.carried == {new}
    # A server doesn't become a member of its own federation.
    assert with_successors(settings, statements.table, new).all_members == {other}


# Dialling.


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[Node]:
    async with new_node() as node:
        yield node


@pytest.mark.parametrize("pinned", [True, False], ids=["id", "first-answer"])
async def test_a_link_goes_on_to_the_successor(
    pinned: bool, client: Node, bob: Succession, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_of(bob.old) as old, node_of(bob.new) as new:
        address, also = await old.listen("memory://old"), await new.listen("memory://new")
        place, _, fragment = address.partition("#")
        address, also = (address if pinned else place), also.partition("#")[0]
        trust = None if pinned else AnyPeer()
        async with client.link(address, also=[also], trust=trust, pauses=SOON) as link:
            assert (await link.ready(PATIENCE)).node_id == bob.old.node_id
            assert fragment == str(bob.old.node_id)
            bob.follow(client)
            await eventually(lambda: link.peer is not None and link.sessions == 2)
            peer = await link.ready(PATIENCE)
            assert peer.node_id == bob.new.node_id
            assert peer.predecessors == (bob.old.node_id,)
            # Two successors: neither is dialled, and the session with the first one ends.
            client.statements.apply(create_succession(bob.recovery, Succession().new).encoded)
            assert (await peer.closed()).code == CloseCode.PEER_NOT_TRUSTED
            await eventually(lambda: link.pause >= SOON.longest / 2)
            assert isinstance(link.error, NotTrustedError)
            bob.accept(client)
            assert (await link.ready(PATIENCE)).node_id == bob.new.node_id
    dialled = [one for one in caplog.records if getattr(one, "event", "") == "identity.dialled"]
    assert [one.levelname for one in dialled].count("WARNING") == 1


async def test_a_link_waits_for_a_successor(client: Node, bob: Succession) -> None:
    async with node_of(bob.old) as old:
        address = await old.listen("memory://bob")
        async with client.link(address, pauses=SOON) as link:
            await link.ready(PATIENCE)
            client.statements.apply(create_revocation(bob.old).encoded)
            await eventually(lambda: isinstance(link.error, IdentityEndedError))
            await old.aclose()
            async with node_of(bob.new) as new:
                await new.listen("memory://bob")
                await eventually(lambda: link.pause >= SOON.longest / 2)
                assert not link.is_up
                bob.follow(client)  # ends the pause
                assert (await link.ready(PATIENCE)).node_id == bob.new.node_id


async def test_a_link_with_a_hook_goes_on_to_the_successor(bob: Succession) -> None:
    async def accept(candidate: Candidate) -> bool:
        return True

    hook = restrict_to_node(bob.old.node_id, accept)
    assert callable(hook)
    decide = partial(Candidate, role="", info={}, address="", dialled=True)
    assert await hook(decide(bob.old.node_id))
    assert await hook(decide(bob.new.node_id, predecessors=(bob.old.node_id,)))
    assert not await hook(decide(bob.new.node_id))


async def test_a_link_looks_the_successor_up(client: Node, bob: Succession) -> None:
    async with node_of(bob.new) as new:
        place = (await new.listen("memory://found")).partition("#")[0]
        asked: list[str] = []

        async def resolve(text: str) -> list[str]:
            asked.append(text)
            return [place]

        RESOLVERS["near"] = resolve
        try:
            bob.follow(client)
            async with client.link(f"near://{bob.old.node_id}", pauses=SOON) as link:
                assert (await link.ready(PATIENCE)).node_id == bob.new.node_id
        finally:
            del RESOLVERS["near"]
        assert asked == [f"near://{bob.new.node_id}"]


async def test_tunnels_lead_through_successors(client: Node, bob: Succession) -> None:
    """The server, the home and the node of an address can all have ended."""
    ann = Succession()
    home, node = node_of(bob.new), node_of(ann.new)
    accounts = (str(ann.new.node_id), str(client.node_id))
    async with home, to_home(home, accounts=accounts), node:
        address = await home.listen("tcp://127.0.0.1:0")
        async with node.home(address) as there:
            await there.ready(PATIENCE)
            bob.follow(client)
            ann.follow(client)
            place, old = address.partition("#")[0], bob.old.node_id
            via = f"via{place.removeprefix('tcp')}/{old}/{old}#{ann.old.node_id}"
            peer = await client.connect(via)
            assert (peer.node_id, len(peer.path)) == (ann.new.node_id, 2)
            # The same by a home that has ended.
            async with client.home(f"{place}#{old}", pauses=SOON) as ours:
                await ours.ready(PATIENCE)
                assert ours.server == bob.new.node_id
                peer = await ours.reach(old, ann.old.node_id)
                assert peer.node_id == ann.new.node_id
                home.topic("news", keep=1)
                async with ours.subscribe(f"news@{old}") as notes:
                    await home.topics["news"].publish("here")
                    assert await anext(notes) == "here"
                client.statements.apply(create_revocation(node.identity).encoded)
                with pytest.raises(IdentityEndedError):
                    await ours.reach(old, ann.old.node_id)


# Never passed on.


async def test_a_suspended_session_of_an_ended_id_ends() -> None:
    async with server_with_peers(AnyPeer()) as there:
        await there.suspend()
        there.server.statements.apply(create_revocation(EVE).encoded)
        assert (await there.eve_there.closed()).code == CloseCode.PEER_NOT_TRUSTED
        await there.alice_stays()
        # The attempt to resume is answered as if the session had never existed.
        await there.eve.live.changes.until(lambda: there.eve.live.unknown)
        assert there.eve.is_suspended
        there.eve.live.lost("she gives up")


async def test_a_suspended_session_with_an_ended_id_ends_where_it_was_dialled() -> None:
    async with server_with_peers(AnyPeer()) as there:
        await there.suspend()
        there.eve_node.statements.apply(create_revocation(there.server.identity).encoded)
        assert (await there.eve.closed()).code == CloseCode.PEER_NOT_TRUSTED
        assert not there.eve.is_suspended


async def test_a_suspended_session_is_not_resumed_with_the_successor(bob: Succession) -> None:
    """The successor answers at the old address, and presents the statement."""
    client, new = (node_of(one, resume=20.0) for one in (Identity.create(), bob.new))
    bob.follow(new)
    async with client, new, node_of(bob.old, resume=20.0) as old:
        place = await old.listen("tcp://127.0.0.1:0")
        async with FaultyProxy(place) as proxy:
            peer = await client.connect(proxy.address)
            await peer.ping()
            proxy.stall()
            proxy.cut()
            await eventually(lambda: peer.is_suspended and old.peers[0].is_suspended)
            await old.aclose()
            await new.listen(place.partition("#")[0])
            proxy.resume()
            with anyio.fail_after(2 * PATIENCE):
                assert (await peer.closed()).code == CloseCode.PEER_NOT_TRUSTED
            assert (peer.node_id, peer.resumes) == (bob.old.node_id, 0)
            assert client.successor_of(bob.old.node_id) == bob.new.node_id
            assert (await client.connect(proxy.address)).node_id == bob.new.node_id


async def test_a_once_key_is_not_that_of_the_successor(bob: Succession) -> None:
    ran: list[NodeId | None] = []
    async with new_node() as server:

        @server.on_call("work", once=True, allow=[bob.old.node_id])
        async def work(call: Call) -> int:
            assert isinstance(call.peer, Peer)
            ran.append(call.peer.node_id)
            return len(ran)

        address = await server.listen("memory://once")
        async with node_of(bob.old) as old, node_of(bob.new) as new:
            peer = await old.connect(address)
            assert [await peer.call("work", once=bytes(16)) for _ in range(2)] == [1, 1]
            bob.follow(server)
            bob.accept(server)
            peer = await new.connect(address)
            assert [await peer.call("work", once=bytes(16)) for _ in range(2)] == [2, 2]
    assert ran == [bob.old.node_id, bob.new.node_id]


async def test_a_call_with_once_is_not_repeated_at_the_successor(
    client: Node, bob: Succession
) -> None:
    """Not even if that claims to remember the old calls."""
    calls: list[NodeId] = []

    def offer(node: Node) -> None:
        @node.on_call("work", once=True)
        async def work(call: Call) -> None:
            calls.append(node.node_id)
            await anyio.sleep_forever()

    old, new = (node_of(identity, drain_timeout=0) for identity in (bob.old, bob.new))
    async with old, new, anyio.create_task_group() as tasks:
        offer(old)
        offer(new)
        once_of(new).begin_epoch(once_of(old).epoch)
        address = await old.listen("memory://old")
        also = (await new.listen("memory://new")).partition("#")[0]
        async with client.link(address, also=[also], pauses=SOON) as link:
            await link.ready(PATIENCE)
            key = IdempotencyKey()
            lost = await started(tasks, lambda: link.call("work", once=key, timeout=PATIENCE))
            await eventually(lambda: calls == [bob.old.node_id])
            bob.follow(client)
            await eventually(lambda: bool(lost))
            assert isinstance(lost[0], OutcomeUnknownError)
            peer = await link.ready(PATIENCE)
            assert peer.node_id == bob.new.node_id
            with pytest.raises(OutcomeUnknownError):
                await peer.call("work", once=key)
        assert calls == [bob.old.node_id]


async def test_events_in_progress_are_not_those_of_the_successor(bob: Succession) -> None:
    async with new_node() as server, node_of(bob.old) as old, node_of(bob.new) as new_bob:
        store = ModelStore(BusConfig())
        offered = OfferedStore(store, BusConfig(), server.backend)
        service = offer_bus(server.handlers, offered, [bob.old.node_id])
        address = await server.listen("memory://bus")
        stream = (await old.connect(address)).streams.open_bus()
        await ask(stream, Join(NAME, GROUP, "c", "0-0"))
        await store.publish([new(1)], durable=True)
        rows = (await ask(stream, Read(NAME, GROUP, "c", 1))).rows or []
        ids = [row[0] for row in rows]
        assert len(ids) == 1
        bob.follow(server)
        bob.accept(server)
        await eventually(lambda: not service.usages)
        stream = (await new_bob.connect(address)).streams.open_bus()
        await ask(stream, Join(NAME, GROUP, "c", "0-0"))
        assert (await ask(stream, Own(NAME, GROUP, "c", 1))).rows == []
        assert (await ask(stream, Ack(NAME, GROUP, ids))).number == 0
        await store.aclose()


async def test_a_session_stays_that_of_its_id(bob: Succession) -> None:
    """A person accepts the successor, but an open session of the old ID ends all the same."""
    server = node_of(Identity.create(), Pinned(bob.old.node_id))
    async with server, node_of(bob.old) as old, node_of(bob.new) as new:
        address = await server.listen("memory://session")
        peer = await old.connect(address)
        await peer.ping()
        bob.follow(server)
        bob.accept(server)
        assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED
        with pytest.raises((HandshakeError, PeerClosedError)):
            await (await old.connect(address)).ping()
        await (await new.connect(address)).ping()
