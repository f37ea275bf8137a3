"""Proofs present the statements that lead to their sender, and their reader acts on them."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest
from anyio import to_thread

from parley import Identity, Link, Node, NodeId, Statement, create_succession
from parley._crypto import statements as crypto_statements
from parley._crypto.identity import RecoveryKey
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningAlgorithm, Verify
from parley._crypto.statements import parse_chain
from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode_value
from parley._node.logs import LINES
from parley._node.protocol import handshake
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.limits import (
    HANDSHAKE_EVENT_SIZE,
    PRESENTED_BYTES,
    sealed_overhead,
)
from parley._node.trust.files import locked
from parley._node.trust.key_statements import Offer
from parley._node.trust.statement_table import IdsOnRecord, StatementTable, StoredStatement
from parley._node.trust.words import fingerprint
from parley.errors import (
    IdentityEndedError,
    KeyStatementsError,
    NotTrustedError,
    PeerClosedError,
    StatementError,
)
from parley.trust import (
    AnyPeer,
    Candidate,
    FirstUse,
    KeyStatements,
    Known,
    KnownPeers,
    TrustPolicy,
)
from tests.inspection import connections_of, core_config_of
from tests.node.network import config, eventually
from tests.vectors.load import Vector, of_kind, unhex, vectors

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)
Recoverable = tuple[Identity, RecoveryKey]


# Vectors.


def statements_of(texts: list[str]) -> list[Statement]:
    return [Statement.parse(unhex(text)) for text in texts]


def presented_by(vector: Vector) -> list[str]:
    """Return the statements in the Proof of a vector's node."""
    own = [SIGNING[name].load(unhex(seed)) for name, seed in vector["keys"]]
    name, seed = vector["recovery"]
    primary = own[0]
    recovery = RecoveryKey(SIGNING[name].load(unhex(seed)), primary.algorithm, primary.public)
    identity = Identity.from_keys(own, recovery.primary_key.commitment)
    table = StatementTable(StoredStatement(one, NOW) for one in statements_of(vector["stored"]))
    size = vector["info_size"]
    info: dict[str, Value] = {} if size == 1 else {"a": "x" * (size - 6)}
    assert len(encode_value(info)) == size
    chain = tuple(one.encoded for one in table.chain_to(identity.node_id))
    core = CoreConfig(identity=identity, node_info=info, statements=chain)
    overhead = sealed_overhead(vector["sealing"], SIGNING[primary.algorithm].signature_size)
    payload = core.proof_payload(HANDSHAKE_EVENT_SIZE - overhead)
    assert overhead + len(payload) <= HANDSHAKE_EVENT_SIZE
    cell: Any = decode(payload).get(keys.STATEMENTS, [])
    return [one.hex() for one in cell]


@vectors("keys", of_kind("present"), fails=False)
def test_a_sender_presents_these(vector: Vector) -> None:
    assert presented_by(vector) == vector["expected"]["statements"]


@vectors("keys", of_kind("present"), fails=True)
def test_a_sender_does_not_present_these(vector: Vector) -> None:
    assert presented_by(vector) != vector["claimed"]


def added_by(vector: Vector) -> list[str]:
    """Return the slots that the reader of a vector stores."""
    statements = KeyStatements()
    for statement in statements_of(vector["stored"]):
        statements.apply(statement.encoded)
    before = list(statements.table.stored)
    named = {unhex(text) for text in vector["named"]}
    records = IdsOnRecord(named.__contains__, lambda _: False)
    presented = [unhex(text) for text in vector["presented"]]
    statements.offer_chain(presented, NodeId(unhex(vector["peer"])), records, NOW)
    return [slot.hex() for slot in list(statements.table.stored)[len(before) :]]


@vectors("keys", of_kind("chain"), fails=False)
def test_a_reader_stores_these(vector: Vector, caplog: pytest.LogCaptureFixture) -> None:
    assert added_by(vector) == vector["expected"]
    assert "identity.statement-refused" not in logged(caplog)


@vectors("keys", of_kind("chain"), fails=True)
def test_a_reader_refuses_one_of_these(vector: Vector, caplog: pytest.LogCaptureFixture) -> None:
    assert added_by(vector) == vector["added"]
    assert "identity.statement-refused" in logged(caplog)
    presented = [unhex(text) for text in vector["presented"]]
    assert refusal(presented, NodeId(unhex(vector["peer"]))) == vector["fails"]


def refusal(presented: list[bytes], peer: NodeId) -> str:
    """Return why a chain is refused, if every origin is on record and no slot is known."""
    try:
        for statement in parse_chain(presented, peer):
            statement.verify()
    except StatementError as error:
        return error.reason
    return ""


# Nodes.


def logged(caplog: pytest.LogCaptureFixture) -> list[object]:
    """Return the names of logged events."""
    return [getattr(record, "event", None) for record in caplog.records]


def recoverable(count: int) -> list[Recoverable]:
    """Return identities with their recovery keys."""
    return [Identity.create_recoverable() for _ in range(count)]


def chain_of(identities: list[Recoverable]) -> list[Statement]:
    """Return the successions from each identity to the next."""
    return [create_succession(recovery, new) for (_, recovery), (new, _) in pairwise(identities)]


def storing(*statements: Statement, **settings: Any) -> KeyStatements:
    """Return key statements in memory."""
    found = KeyStatements(**settings)
    for statement in statements:
        found.apply(statement.encoded)
    return found


def node_of(identity: Identity, trust: TrustPolicy | None = None, **settings: Any) -> Node:
    """Return a node with the fastest key exchange."""
    return Node(identity, trust=trust, config=config(), **settings)


class Presenting(StatementTable):
    """An empty table that presents some statements."""

    def __init__(self, *presented: bytes) -> None:
        super().__init__()
        self.presented = [Statement.parse(one) for one in presented]

    def chain_to(self, node_id: NodeId, size: int = PRESENTED_BYTES) -> list[Statement]:
        return self.presented


def present(node: Node, *encoded: bytes) -> None:
    """Let a node present these statements, whatever it has stored."""
    node.statements.table = Presenting(*encoded)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets the key of each signature of a statement that is verified."""
    found: list[bytes] = []

    def counted(algorithm: SigningAlgorithm) -> SigningAlgorithm:
        def open_public(public: bytes) -> Verify:
            found.append(public)
            return algorithm.open_public(public)

        return replace(algorithm, open_public=open_public)

    watched = {name: counted(algorithm) for name, algorithm in SIGNING.items()}
    monkeypatch.setattr(crypto_statements, "SIGNING", watched)
    return found


FILES: dict[str, Callable[[KnownPeers], TrustPolicy]] = {"known": Known, "first-use": FirstUse}


@pytest.mark.parametrize("policy", FILES)
@pytest.mark.parametrize("name", ["alice", None])
async def test_a_server_learns_of_a_successor(
    policy: str, name: str | None, tmp_path: Path
) -> None:
    identities = recoverable(3)
    old, new = identities[0][0], identities[-1][0]
    known = KnownPeers(tmp_path / "known_peers")
    known.add(old.node_id, name, NOW)
    server = node_of(Identity.create(), FILES[policy](known))
    client = node_of(new, statements=storing(*chain_of(identities)))
    async with server, client:
        peer = await client.connect(await server.listen("memory://presented"))
        await peer.ping()
        assert server.statements.table.has_ended(old.node_id)
        assert server.peers[0].predecessors == tuple(one.node_id for one, _ in identities[:2])
        assert [line.node_id for line in known] == [old.node_id]


async def test_without_statements_the_same_node_is_refused(tmp_path: Path) -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    known = KnownPeers(tmp_path / "known_peers")
    known.add(old.node_id, "alice", NOW)
    silent = storing(*chain_of(identities), present=False)
    server = node_of(Identity.create(), Known(known))
    async with server, node_of(new, statements=silent) as client:
        address = await server.listen("memory://silent")
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await client.connect(address)).ping()
        assert not server.statements.table.has_ended(old.node_id)
    assert core_config_of(client, resumable=True).statements == ()


async def test_an_accept_hook_sees_the_predecessors() -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    candidates: list[Candidate] = []

    async def hook(candidate: Candidate) -> bool:
        candidates.append(candidate)
        return True

    server = Node(Identity.create(), trust=hook, config=config(), watch=[old.node_id])
    async with server, node_of(new, statements=storing(*chain_of(identities))) as client:
        await (await client.connect(await server.listen("memory://hook"))).ping()
    # Storing a statement restarts decisions in progress, so the hook may be called twice.
    assert {one.predecessors for one in candidates} == {(old.node_id,)}


async def test_a_dial_succeeds_as_the_successor(caplog: pytest.LogCaptureFixture) -> None:
    identities = recoverable(3)
    old, new = identities[0][0], identities[-1][0]
    async with node_of(new) as server, node_of(Identity.create()) as client:
        address = await server.listen("memory://dialled")
        address = address.replace(new.node_id.text, old.node_id.text)
        with pytest.raises(NotTrustedError):
            await client.connect(address)
        for statement in chain_of(identities):  # the next Proof presents what is stored by then
            server.statements.apply(statement.encoded)
        assert "identity.dialled" not in logged(caplog)
        peer = await client.connect(address)
        assert peer.node_id == new.node_id == client.successor_of(old.node_id)
        await peer.ping()
        assert "identity.dialled" in logged(caplog)
        await client.review()
        assert peer.is_open
        again = await client.connect(address)
        assert again.node_id == new.node_id


async def test_a_predecessor_does_not_pass_as_its_successor() -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    statements = storing(*chain_of(identities))
    async with node_of(old, statements=statements) as server, node_of(Identity.create()) as client:
        address = await server.listen("memory://reverse")
        address = address.replace(old.node_id.text, new.node_id.text)
        with pytest.raises(NotTrustedError, match="is expected"):
            await client.connect(address)
        present(server, chain_of(identities)[0].encoded)
        with pytest.raises(NotTrustedError, match="is expected"):
            await client.connect(address)
        assert not client.statements.table.stored


@pytest.mark.parametrize("case", ["by the primary key", "ask", "conflict"])
async def test_a_dial_fails_where_a_person_must_choose(case: str) -> None:
    (old, recovery), (new, _), (other, _) = recoverable(3)
    stored = KeyStatements(follow=case != "ask")
    statement = create_succession(recovery, new)
    if case == "by the primary key":
        old = Identity.create()
        statement = create_succession(old, new)
    if case == "conflict":
        stored.apply(create_succession(recovery, other).encoded)
    client = node_of(Identity.create(), statements=stored)
    async with node_of(new, statements=storing(statement)) as server, client:
        listening = await server.listen("memory://person")
        address = listening.replace(new.node_id.text, old.node_id.text)
        for _ in range(2):  # the first dial learns the statement in its handshake
            with pytest.raises(IdentityEndedError, match="parley peers accept") as caught:
                await client.connect(address)
            shown = (new, other) if case == "conflict" else (new,)
            key = "primary" if case == "by the primary key" else "recovery"
            for text in (f"its {key} key", *(fingerprint(one.node_id) for one in shown)):
                assert text in caught.value.text
            assert caught.value.node_id == old.node_id
        if case == "conflict":
            await (await client.connect(listening)).ping()
            assert len(client.statements.table.stored) == 2
        client.statements.decide(old.node_id, new.node_id)
        await (await client.connect(address)).ping()


async def test_a_link_follows_the_successor() -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    server = node_of(new, statements=storing(*chain_of(identities)))
    async with server, node_of(Identity.create()) as client:
        address = await server.listen("memory://link")
        address = address.replace(new.node_id.text, old.node_id.text)
        async with client.link(address) as link:
            await eventually(lambda: is_up_to(link, new))


async def test_a_link_without_an_id_follows_the_successor_of_the_first_node(
    tmp_path: Path,
) -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    trust = FirstUse(KnownPeers(tmp_path / "known_peers"))
    successor = node_of(new, statements=storing(*chain_of(identities)))
    client = node_of(Identity.create())
    async with client, client.link("memory://moved", trust=trust) as link:
        async with node_of(old) as server:
            await server.listen("memory://moved")
            link.redial()
            await eventually(lambda: is_up_to(link, old))
        await eventually(lambda: not link.is_up)
        async with successor:
            await successor.listen("memory://moved")
            link.redial()
            await eventually(lambda: is_up_to(link, new))


def is_up_to(link: Link, identity: Identity) -> bool:
    """Return whether a link is connected to a node."""
    return link.peer is not None and link.peer.node_id == identity.node_id


# What a Proof may cost.


async def test_statements_of_unknown_ids_are_not_verified(checks: list[bytes]) -> None:
    identities = recoverable(5)
    client = node_of(identities[-1][0], statements=storing(*chain_of(identities)))
    async with node_of(Identity.create(), AnyPeer()) as server, client:
        address = await server.listen("memory://unknown")
        checks.clear()
        await (await client.connect(address)).ping()
        assert not checks
        assert not server.statements.table.stored
        assert server.statements.dropped == {"not-on-record": 4}


async def test_statements_are_verified_once(checks: list[bytes]) -> None:
    identities = recoverable(5)
    client = node_of(identities[-1][0], statements=storing(*chain_of(identities)))
    server = node_of(Identity.create(), watch=[identities[0][0].node_id])
    async with server, client:
        address = await server.listen("memory://once")
        checks.clear()
        for _ in range(3):
            await (await client.connect(address)).ping()
        assert len(checks) == 8  # a signature and a consent each
        assert len(server.statements.table.stored) == 4


async def test_the_first_invalid_statement_ends_the_verification(checks: list[bytes]) -> None:
    identities = recoverable(5)
    first, *others = (one.encoded for one in chain_of(identities))
    signature = decode(first)[keys.SIGNATURE]
    assert isinstance(signature, bytes)
    forged = first.replace(signature, bytes(64))
    watch = [one.node_id for one, _ in identities]
    server = node_of(Identity.create(), watch=watch)
    async with server, node_of(identities[-1][0]) as client:
        present(client, forged, *others)
        address = await server.listen("memory://forged")
        checks.clear()
        for _ in range(3):
            await (await client.connect(address)).ping()  # the Proof stays valid
        assert len(checks) == 3
        assert not server.statements.table.stored


async def test_refusals_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    identities = recoverable(3)
    presented = [one.encoded for one in chain_of(identities)][::-1]
    statements = KeyStatements()
    records = IdsOnRecord(lambda _: True, lambda _: False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * LINES):
            statements.offer_chain(presented, identities[-1][0].node_id, records, NOW)
    assert logged(caplog).count("identity.statement-refused") == LINES


async def test_a_full_table_is_logged_at_a_limited_rate(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = recoverable(2)
    statements = KeyStatements()
    records = IdsOnRecord(lambda _: True, lambda _: False)
    monkeypatch.setattr(StatementTable, "has_room", lambda *_: False)
    for _ in range(2 * LINES):
        found = statements.offer(chain_of(identities)[0].encoded, records, NOW)
        assert found is Offer.FULL
    assert logged(caplog).count("identity.statement-dropped") == LINES


async def test_the_event_loop_does_not_wait_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.trust.key_statements.BRIEF_LOCK_TIMEOUT", 10.0)
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    path = tmp_path / "key_statements"
    holds, release = Event(), Event()

    def hold() -> None:
        with locked(path, KeyStatementsError):
            holds.set()
            release.wait(10)

    server = node_of(Identity.create(), statements=KeyStatements(path), watch=[old.node_id])
    other = node_of(Identity.create())
    client = node_of(new, statements=storing(*chain_of(identities)))
    async with server, client, other:
        address = await server.listen("memory://file")
        peer = await other.connect(address)
        await peer.ping()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, hold)
            await to_thread.run_sync(holds.wait, 10)
            made: list[Any] = []

            async def connect() -> None:
                made.append(await client.connect(address))
                await made[0].ping()

            tasks.start_soon(connect)
            with anyio.fail_after(10):
                for _ in range(20):
                    await peer.ping()
            assert not server.statements.table.has_ended(old.node_id)
            release.set()
    again = KeyStatements(path)
    again.refresh()
    assert again.table.has_ended(old.node_id)


async def test_a_connection_that_ends_meanwhile_loses_no_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    path = tmp_path / "key_statements"
    holds, release, offered = Event(), Event(), Event()

    def hold() -> None:
        with locked(path, KeyStatementsError):
            holds.set()
            release.wait(10)

    server = node_of(Identity.create(), statements=KeyStatements(path), watch=[old.node_id])
    client = node_of(new, statements=storing(*chain_of(identities)))
    offer_chain = server.statements.offer_chain

    def offer(*arguments: Any) -> None:
        offered.set()
        offer_chain(*arguments)

    monkeypatch.setattr(server.statements, "offer_chain", offer)
    async with server:
        address = await server.listen("memory://gone")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, hold)
            await to_thread.run_sync(holds.wait, 10)
            async with client:
                await client.connect(address)
                await eventually(offered.is_set)
                for peer in list(connections_of(server)):
                    peer.live.drop(CloseCode.NORMAL)
                await eventually(lambda: not connections_of(server))
            release.set()
        await eventually(lambda: server.statements.table.has_ended(old.node_id))
    again = KeyStatements(path)
    again.refresh()
    assert again.table.has_ended(old.node_id)


async def test_statements_are_written_again_when_the_node_stops(tmp_path: Path) -> None:
    """A command ends before another process has released the lock and the node tries again."""
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    path = tmp_path / "key_statements"
    server = node_of(Identity.create(), statements=KeyStatements(path), watch=[old.node_id])
    async with server, node_of(new, statements=storing(*chain_of(identities))) as client:
        with locked(path, KeyStatementsError):
            await (await client.connect(await server.listen("memory://held"))).ping()
            assert server.statements.table.has_ended(old.node_id)
            assert not path.exists()
    again = KeyStatements(path)
    again.refresh()
    assert again.table.has_ended(old.node_id)


async def test_a_stranger_does_not_make_a_server_parse_known_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First use changes the file, so another object for the same file would parse it again."""
    path, alice, parsed = tmp_path / "known_peers", Identity.create().node_id, list[str]()
    KnownPeers(path).add(alice, "alice", NOW)
    statements = KeyStatements(known_peers=KnownPeers(path))
    server = node_of(Identity.create(), FirstUse(KnownPeers(path)), statements=statements)
    identities = [recoverable(2) for _ in range(4)]
    original = NodeId.parse

    def parse(text: str) -> NodeId:
        parsed.append(text)
        return original(text)

    async with server:
        address = await server.listen("memory://first-use")
        for number, some in enumerate(identities):
            if number == 1:
                monkeypatch.setattr(NodeId, "parse", parse)
            async with node_of(some[1][0], statements=storing(*chain_of(some))) as client:
                await (await client.connect(address)).ping()
    assert str(alice) not in parsed
    assert len(KnownPeers(path)) == 1 + len(identities)
    assert parsed.count(str(alice)) == 1


async def test_a_cached_proof_has_no_predecessors() -> None:
    """Nodes of one process share the cache, but not their statements."""
    identities = recoverable(2)
    old, new = identities[0][0], identities[1][0]
    client = node_of(new, statements=storing(*chain_of(identities)))
    knowing = node_of(Identity.create(), watch=[old.node_id])
    async with client, knowing, node_of(Identity.create()) as other:
        for server in (knowing, other):
            for _ in range(2):
                peer = await client.connect(await server.listen(f"memory://{server.node_id}"))
                await peer.ping()
                await server.connections.hang_up()
        kept = [one.identity for one in handshake.kept_proofs.values()]
        assert [one.predecessors for one in kept if one.node_id == new.node_id] == [()]
        assert knowing.successor_of(old.node_id) == new.node_id
        assert other.successor_of(old.node_id) is None


async def test_a_node_does_not_present_statements_to_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    identities = recoverable(2)
    server = node_of(identities[1][0], statements=storing(*chain_of(identities)))
    async with server:
        peer = await server.local()
        await peer.ping()
    assert "identity.statement-refused" not in logged(caplog)


async def test_changed_limits_keep_the_statements() -> None:
    identities = recoverable(2)
    statements = chain_of(identities)
    async with node_of(identities[1][0], statements=storing(*statements)) as node:
        presented = (statements[0].encoded,)
        assert core_config_of(node, resumable=True).statements == presented
        node.change_limits(config(max_connections=7))
        assert core_config_of(node, resumable=True).statements == presented
        assert core_config_of(node, resumable=False).statements == presented
