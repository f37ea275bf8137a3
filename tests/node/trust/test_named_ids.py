"""Which node IDs a node names, so that it stores statements about them (docs/protocol.md section
22).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from parley import Call, Identity, Node, create_revocation
from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
from parley._node.cli.serve.bus_rights import BusRights
from parley._node.server.federation import Federation
from parley._node.settings.tables import BusSettings, FederationSettings
from parley.trust import AnyPeer, KeyStatements, Known, KnownPeers, OneOf, Pinned
from tests.node.network import config, eventually, new_node, started

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)
SOON = Backoff(first=0.01, longest=30.0)


def is_stored(node: Node, identity: Identity) -> bool:
    """Offer the end of an identity to a node; return whether it is on record and stored."""
    return node.connections.offer_statement(create_revocation(identity).encoded) == "stored"


def federated(node: Node, **settings: object) -> Federation:
    return Federation(node, FederationSettings(**settings))  # type: ignore[arg-type] # settings


def allowed(node: Node, node_id: NodeId) -> None:
    node.on_call("work", allow=[node_id])(echo)


def allowed_to_subscribe(node: Node, node_id: NodeId) -> None:
    node.topic("news", allow=[node_id])


def allowed_to_write(node: Node, node_id: NodeId) -> None:
    node.topic("news", writers=[node_id])


def allowed_on_bus(node: Node, node_id: NodeId) -> None:
    node.bus("sqlite:///not-opened.db", allow={"consume": [node_id]})


def with_role(node: Node, node_id: NodeId) -> None:
    node.roles.assign(node_id, "writer")


def with_loaded_role(node: Node, node_id: NodeId) -> None:
    node.roles.loaded = {node_id: frozenset({"writer"})}


async def echo(call: Call) -> object:
    return call.data


SOURCES = [
    allowed,
    allowed_to_subscribe,
    allowed_to_write,
    allowed_on_bus,
    with_role,
    with_loaded_role,
]


@pytest.mark.parametrize("name", SOURCES)
async def test_rules_name_ids(name: Callable[[Node, NodeId], None]) -> None:
    eve = Identity.create()
    async with new_node() as node:
        assert not is_stored(node, eve)
        name(node, eve.node_id)
        assert not is_stored(node, Identity.create())
        assert is_stored(node, eve)


@pytest.mark.parametrize("policy", [Pinned, lambda node_id: OneOf([node_id])])
def test_policies_name_ids(policy: Callable[[NodeId], Pinned | OneOf]) -> None:
    eve = Identity.create()
    node = new_node(policy(eve.node_id))
    assert not is_stored(node, Identity.create())
    assert is_stored(node, eve)


@pytest.mark.parametrize("name", ["eve", None])
@pytest.mark.parametrize("policy", [AnyPeer, Known])
def test_known_peers_are_on_record_under_every_policy(
    policy: type[AnyPeer | Known], name: str | None, tmp_path: Path
) -> None:
    eve = Identity.create()
    known, others = KnownPeers(tmp_path / "known_peers"), KnownPeers(tmp_path / "others")
    trust = AnyPeer() if policy is AnyPeer else Known(others)
    statements = KeyStatements(known_peers=known)
    node = Node(Identity.create(), config=config(), trust=trust, statements=statements)
    assert not is_stored(node, eve)
    known.add(eve.node_id, name, NOW)
    assert is_stored(node, eve)
    assert not is_stored(node, Identity.create())


def test_rights_on_the_bus_in_settings_name_ids() -> None:
    eve, node = Identity.create(), new_node()
    settings = BusSettings(url="sqlite:///bus.db", allow=(f"{eve.node_id}=publish:*",))
    rights = BusRights(settings, node.roles)
    assert rights.names(eve.node_id)
    assert not rights.names(node.node_id)


@pytest.mark.parametrize("setting", ["links", "members", "carry", "accounts"])
async def test_settings_of_a_federation_name_ids(setting: str) -> None:
    eve, ann = Identity.create(), Identity.create()
    node = new_node()
    texts = [str(one.node_id) for one in (eve, ann)]
    if setting == "links":
        texts = [f"memory://{text[:8]}#{text}" for text in texts]
    async with node:
        async with federated(node, **{setting: tuple(texts)}):
            assert is_stored(node, eve)
        assert not is_stored(node, ann)


@pytest.mark.parametrize("pattern", ["news@{0}", "news@{1}/{0}", "news@{0}/*"])
async def test_topics_in_settings_name_ids(pattern: str) -> None:
    eve, home = Identity.create(), Identity.create()
    follow = ("news", "bus@work", "*", pattern.format(eve.node_id, home.node_id))
    async with new_node() as node:
        assert not is_stored(node, eve)
        async with federated(node, follow=follow):
            assert is_stored(node, eve)
            assert is_stored(node, home) == ("{1}" in pattern)


async def test_changed_members_are_named() -> None:
    eve, node = Identity.create(), new_node()
    async with node, federated(node, members=(str(Identity.create().node_id),)) as federation:
        assert not is_stored(node, eve)
        federation.change_members([str(eve.node_id)], [])
        assert federation.knows(eve.node_id)
        assert is_stored(node, eve)
        await eventually(lambda: not federation.knows(eve.node_id))


async def test_ids_in_the_address_of_a_link_are_named() -> None:
    server, home, target = (Identity.create() for _ in range(3))
    via = f"via://127.0.0.1:9/{server.node_id}/{home.node_id}#{target.node_id}"
    async with new_node() as client, client.link(via, pauses=SOON):
        for one in (server, home, target):
            assert is_stored(client, one)


async def test_the_id_of_a_link_without_one_is_named_once_it_has_answered() -> None:
    eve = Identity.create()
    async with new_node() as client, Node(eve, config=config()) as server:
        address = (await server.listen("memory://eve")).partition("#")[0]
        async with client.link(address, trust=AnyPeer(), pauses=SOON) as link:
            await link.ready(5)
            await server.aclose()
            assert is_stored(client, eve)


async def test_an_id_is_on_record_while_a_session_that_was_dialled_by_it_lasts() -> None:
    eve, ann = Identity.create(), Identity.create()
    async with new_node() as client:
        for identity in (eve, ann):
            async with Node(identity, config=config()) as server:
                peer = await client.connect(await server.listen("memory://dialled"))
                if identity is eve:
                    assert is_stored(client, eve)
            await peer.closed()
        await eventually(lambda: not client.peers)
        assert not is_stored(client, ann)


async def test_an_id_is_on_record_while_it_is_dialled(tmp_path: Path) -> None:
    eve = Identity.create()
    async with new_node() as client, anyio.create_task_group() as tasks:
        path = tmp_path / "socket"
        async with await anyio.create_unix_listener(path):  # it never answers
            await started(tasks, lambda: client.connect(f"unix://{path}#{eve.node_id}"))
            assert is_stored(client, eve)
            tasks.cancel_scope.cancel()


async def test_dialled_ids_have_only_the_places_of_seen_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other nodes can have a server dial IDs of their choice, and would fill the table for good."""
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", 4)
    async with new_node() as client:
        for number in range(6):
            eve, ann = Identity.create(), Identity.create()
            async with Node(eve, config=config()) as server:
                await client.connect(await server.listen("memory://dialled"))
                assert is_stored(client, eve) is (number < 2)
            statement = create_revocation(ann).encoded
            client.connections.offer_statements([statement], dialled=[ann.node_id])
        assert len(client.statements.table.stored) == 4
        ann = Identity.create()
        client.roles.assign(ann.node_id, "writer")
        assert is_stored(client, ann)
