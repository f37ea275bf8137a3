"""Nodes refuse ended node IDs, and accept the successors of the IDs that they know."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import anyio
import pytest

from parley import Identity, Node, create_revocation, create_succession
from parley._crypto.identity import NodeId
from parley._node.trust.watched_file import LOOK, UNREADABLE
from parley.errors import (
    HandshakeError,
    IdentityChangedError,
    IdentityEndedError,
    KeyStatementsError,
    NotTrustedError,
    PeerClosedError,
)
from parley.testing import FakeClock
from parley.trust import (
    AnyPeer,
    Candidate,
    FirstUse,
    KeyStatements,
    Known,
    KnownPeers,
    OneOf,
    Pinned,
    TrustPolicy,
)
from tests.node.network import eventually

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def known_peers(path: Path, *lines: tuple[NodeId, str | None]) -> KnownPeers:
    """Return a file with these peers and their names."""
    known = KnownPeers(path / "known_peers")
    for node_id, name in lines:
        known.add(node_id, name, NOW)
    return known


async def accept_all(candidate: Candidate) -> bool:
    """Accept every peer."""
    return True


POLICIES: dict[str, Callable[[NodeId, Path], object]] = {
    "any": lambda _, path: AnyPeer(),
    "pinned": lambda node_id, path: Pinned(node_id),
    "one-of": lambda node_id, path: OneOf([node_id]),
    "known": lambda node_id, path: Known(known_peers(path, (node_id, "alice"))),
    "first-use": lambda node_id, path: FirstUse(known_peers(path, (node_id, None))),
    "hook": lambda _, path: accept_all,
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_policy_refuses_an_ended_id(policy: str, tmp_path: Path) -> None:
    old = Identity.create()
    server = Node(Identity.create(), trust=POLICIES[policy](old.node_id, tmp_path))  # type: ignore[arg-type] # any of them
    async with server, Node(old) as client:
        address = await server.listen("memory://ended")
        peer = await client.connect(address)
        await peer.ping()
        server.statements.apply(create_revocation(old).encoded)
        with anyio.fail_after(10):
            await peer.live.changes.until(lambda: peer.live.ended is not None)
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await client.connect(address)).ping()
        assert not server.peers


async def test_an_ended_id_cannot_be_dialled() -> None:
    old = Identity.create()
    async with Node(old) as server, Node(Identity.create()) as client:
        address = await server.listen("memory://ended")
        peer = await client.connect(address)
        client.statements.apply(create_revocation(old).encoded)
        with anyio.fail_after(10):
            await peer.live.changes.until(lambda: peer.live.ended is not None)
        with pytest.raises(IdentityEndedError, match="it was revoked, and no node takes") as caught:
            await client.connect(address)
        assert caught.value.node_id == old.node_id
        assert caught.value.successor is None
        assert client.successor_of(old.node_id) is None


async def test_the_successor_is_dialled_in_place_of_an_ended_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    async with Node(new) as server, Node(Identity.create()) as client:
        address = await server.listen("memory://ended")
        client.statements.apply(create_succession(recovery, new).encoded)
        peer = await client.connect(address.replace(new.node_id.text, old.node_id.text))
        assert peer.node_id == new.node_id == client.successor_of(old.node_id)
        assert peer.predecessors == (old.node_id,)
    assert "identity.dialled" in [getattr(one, "event", "") for one in caplog.records]


async def test_a_conflict_says_what_to_do() -> None:
    (old, recovery), (new, _), (other, _) = (Identity.create_recoverable() for _ in range(3))
    async with Node(Identity.create()) as client:
        for successor in (new, other):
            client.statements.apply(create_succession(recovery, successor).encoded)
        with pytest.raises(IdentityEndedError, match=r"two successors .* parley peers accept"):
            await client.connect(f"memory://ended#{old.node_id}")


async def test_a_conflict_later_on_says_what_to_do() -> None:
    (old, recovery), (new, new_recovery) = (Identity.create_recoverable() for _ in range(2))
    later = [Identity.create_recoverable()[0] for _ in range(3)]
    async with Node(Identity.create()) as client:
        for statement in (
            create_succession(recovery, new),
            *(create_succession(new_recovery, one) for one in later),
        ):
            client.statements.apply(statement.encoded)
        with pytest.raises(IdentityEndedError) as caught:
            await client.connect(f"memory://ended#{old.node_id}")
    text = caught.value.text
    assert f"its successor {new.node_id} has ended too: three successors claim to be it" in text
    assert text.endswith(f"run: parley peers accept {new.node_id} --as ID")


async def refuses(policy: TrustPolicy, statements: KeyStatements, identity: Identity) -> bool:
    """Return whether a server with a policy refuses a node."""
    server = Node(Identity.create(), trust=policy, statements=statements)
    async with server, Node(identity) as client:
        address = await server.listen("memory://successor")
        try:
            await (await client.connect(address)).ping()
        except (HandshakeError, PeerClosedError):
            return True
        return False


@pytest.mark.parametrize("policy", ["known", "first-use"])
async def test_known_peers_admit_a_followed_successor(policy: str, tmp_path: Path) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    trust, statements = POLICIES[policy](old.node_id, tmp_path), KeyStatements()
    before = (tmp_path / "known_peers").read_bytes()
    statements.apply(create_succession(recovery, new).encoded)
    assert not await refuses(trust, statements, new)  # type: ignore[arg-type] # any of them
    assert (tmp_path / "known_peers").read_bytes() == before


@pytest.mark.parametrize("policy", ["pinned", "one-of"])
async def test_a_list_of_ids_admits_only_an_accepted_successor(policy: str, tmp_path: Path) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    trust, statements = POLICIES[policy](old.node_id, tmp_path), KeyStatements()
    statements.apply(create_succession(recovery, new).encoded)
    assert await refuses(trust, statements, new)  # type: ignore[arg-type] # any of them
    statements.decide(old.node_id, new.node_id)
    assert not await refuses(trust, statements, new)  # type: ignore[arg-type] # any of them


async def test_a_successor_may_have_the_name_of_its_predecessor(tmp_path: Path) -> None:
    (old, recovery), (new, _), (other, _) = (Identity.create_recoverable() for _ in range(3))
    name = "memory://named"
    for policy in (FirstUse, Known):
        directory = tmp_path / policy.name
        known = known_peers(directory, (old.node_id, name))
        async with Node(Identity.create()) as client:
            client.statements.apply(create_succession(recovery, new).encoded)
            async with Node(new) as server:
                await server.listen(name)
                peer = await client.connect(name, trust=policy(known))
                assert peer.node_id == new.node_id
                await peer.close()
            async with Node(other) as server:
                await server.listen(name)
                with pytest.raises(IdentityEndedError, match="run: parley peers show") as caught:
                    await client.connect(name, trust=policy(known))
                assert caught.value.node_id == old.node_id
                assert caught.value.successor == new.node_id
        assert [line.node_id for line in known] == [old.node_id]


async def test_a_new_address_of_a_successor_is_recorded_for_its_predecessor(tmp_path: Path) -> None:
    (old, recovery), (new, _), (other, _) = (Identity.create_recoverable() for _ in range(3))
    known = known_peers(
        tmp_path, (old.node_id, "memory://before"), (other.node_id, "memory://other")
    )
    async with Node(new) as server, Node(Identity.create()) as client:
        client.statements.apply(create_succession(recovery, new).encoded)
        await server.listen("memory://new")
        await client.connect("memory://new", trust=FirstUse(known))
        await server.listen("memory://other")
        with pytest.raises(IdentityChangedError):
            await client.connect("memory://other", trust=FirstUse(known))
    assert known.lookup(new.node_id) is None
    line = known.lookup(old.node_id)
    assert line is not None
    assert line.names == ("memory://before", "memory://new")


async def test_a_candidate_and_a_peer_have_their_predecessors() -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    first = Identity.create()
    candidates: list[Candidate] = []

    async def hook(candidate: Candidate) -> bool:
        candidates.append(candidate)
        return True

    statements = KeyStatements()
    statements.apply(create_succession(recovery, new).encoded)
    statements.apply(create_succession(first, new).encoded)
    statements.decide(first.node_id, new.node_id)
    server = Node(Identity.create(), trust=hook, statements=statements)
    async with server, Node(new) as client:
        peer = await client.connect(await server.listen("memory://candidate"))
        await peer.ping()
        (there,) = server.peers

        def found() -> list[tuple[NodeId, ...]]:
            return [there.predecessors, there.accepted_predecessors]

        assert found() == [(old.node_id, first.node_id), (first.node_id,)]
        statements.decide(old.node_id, new.node_id)
        assert found() == [(old.node_id, first.node_id)] * 2
        statements.decide(first.node_id, None)
        assert found() == [(old.node_id,)] * 2
        assert [peer.predecessors, peer.accepted_predecessors] == [(), ()]
    before = candidates[0]
    assert before.predecessors == (old.node_id, first.node_id)
    assert before.accepted_predecessors == (first.node_id,)


async def test_another_process_ends_an_id_by_the_file(tmp_path: Path) -> None:
    old, path = Identity.create(), tmp_path / "key_statements"
    clock = FakeClock()
    server = Node(Identity.create(), statements=KeyStatements(path), clock=clock)
    async with server, Node(old) as client:
        address = await server.listen("memory://file")
        await (await client.connect(address)).ping()
        KeyStatements(path).apply(create_revocation(old).encoded)
        with anyio.fail_after(10):
            while server.peers:
                clock.advance(LOOK)
                await anyio.sleep(0.01)
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await client.connect(address)).ping()


async def test_an_unreadable_file_refuses_new_peers_and_later_all(tmp_path: Path) -> None:
    path, clock = tmp_path / "key_statements", FakeClock()
    server = Node(Identity.create(), statements=KeyStatements(path), clock=clock)
    async with server, Node(Identity.create()) as client:
        address = await server.listen("memory://file")
        await (await client.connect(address)).ping()
        path.write_text("wrong\n")
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await client.connect(address)).ping()
        for _ in range(5):
            clock.advance(LOOK)
            await anyio.sleep(0.05)
        assert len(server.peers) == 1
        with anyio.fail_after(10):
            while server.peers:
                clock.advance(UNREADABLE)
                await anyio.sleep(0.01)


async def test_a_node_without_peers_learns_of_a_decision_in_the_file(tmp_path: Path) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    path, clock = tmp_path / "key_statements", FakeClock()
    client = Node(Identity.create(), statements=KeyStatements(path, follow=False), clock=clock)
    async with client, Node(new) as server:
        address = await server.listen("memory://asked")
        dialled = address.replace(new.node_id.text, old.node_id.text)
        client.statements.apply(create_succession(recovery, new).encoded)
        with pytest.raises(IdentityEndedError, match="peers accept"):
            await client.connect(dialled)
        KeyStatements(path).decide(old.node_id, new.node_id)
        with anyio.fail_after(10):
            while client.successor_of(old.node_id) is None:
                clock.advance(LOOK)
                await anyio.sleep(0.01)
        assert (await client.connect(dialled)).node_id == new.node_id


async def test_a_statement_restarts_a_decision_in_progress() -> None:
    old, asked, decided = Identity.create(), anyio.Event(), anyio.Event()

    async def hook(candidate: Candidate) -> bool:
        if not asked.is_set():
            asked.set()
            await decided.wait()
        return True

    async with Node(Identity.create(), trust=hook) as server, Node(old) as client:
        address = await server.listen("memory://deciding")

        async def dial() -> None:
            with pytest.raises((NotTrustedError, PeerClosedError)):
                await (await client.connect(address)).ping()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dial)
            await asked.wait()
            tasks.start_soon(server.review)  # it waits for the hook, and so does the next review
            server.statements.apply(create_revocation(old).encoded)
            await anyio.sleep(0.05)
            decided.set()
        assert not server.peers


async def test_a_node_can_start_once_its_file_is_right(tmp_path: Path) -> None:
    path = tmp_path / "key_statements"
    path.write_text("wrong\n")
    statements = KeyStatements(path)
    node = Node(Identity.create(), statements=statements)
    with pytest.raises(KeyStatementsError, match="line 1"):
        async with node:
            pass
    assert not statements.listeners
    path.unlink()
    async with node:
        assert len(statements.listeners) == 1
    assert not statements.listeners


async def test_a_node_whose_own_id_has_ended_continues(caplog: pytest.LogCaptureFixture) -> None:
    identity, statements = Identity.create(), KeyStatements()
    statements.apply(create_revocation(identity).encoded)
    async with Node(identity, statements=statements) as server, Node(Identity.create()) as client:
        await (await client.connect(await server.listen("memory://own"))).ping()
        await (await server.local()).ping()
    assert "identity.own-ended" in [getattr(one, "event", "") for one in caplog.records]


async def test_the_end_of_the_own_id_is_logged_once_after_each_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def times() -> int:
        return [getattr(one, "event", "") for one in caplog.records].count("identity.own-ended")

    identity, statements = Identity.create(), KeyStatements()
    node = Node(identity, statements=statements)
    for number in (1, 2):
        async with node:
            statements.apply(create_revocation(identity).encoded)
            assert times() == number
            for _ in range(3):
                statements.apply(create_revocation(Identity.create()).encoded)
        assert times() == number


def test_a_watched_id_is_on_record() -> None:
    old, other = Identity.create(), Identity.create()
    node = Node(Identity.create(), watch=[old.node_id])
    assert node.connections.offer_statement(create_revocation(old).encoded) == "stored"
    assert node.connections.offer_statement(create_revocation(other).encoded) == "not-on-record"


async def test_a_statement_stored_while_a_node_stops_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another node of the process can share the statements."""
    statements = KeyStatements()
    async with Node(Identity.create(), statements=statements) as node:
        backend = node.backend
        aclose = type(backend).aclose

        async def close(self: object) -> None:
            await aclose(backend)
            statements.apply(create_revocation(Identity.create()).encoded)

        monkeypatch.setattr(type(backend), "aclose", close)
    await anyio.sleep(0.01)  # for what the loop was asked to run
    assert len(statements.table.stored) == 1
    assert not statements.listeners
    assert "identity.listener-failed" not in [getattr(one, "event", "") for one in caplog.records]


async def test_a_file_that_cannot_be_read_in_time_refuses_all_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.trust.watched_file.UNREADABLE", 0.1)
    path, clock, release = tmp_path / "key_statements", FakeClock(), Event()
    statements = KeyStatements(path)
    server = Node(Identity.create(), statements=statements, clock=clock)
    async with server, Node(Identity.create()) as client:
        await (await client.connect(await server.listen("memory://slow"))).ping()
        monkeypatch.setattr(statements, "refresh", lambda: release.wait(10))
        try:
            path.write_text("changed\n")
            with anyio.fail_after(10):
                while server.peers:
                    clock.advance(LOOK)
                    await anyio.sleep(0.01)
        finally:
            release.set()


async def test_a_decision_while_a_node_starts_is_not_missed() -> None:
    """Several nodes can share the statements, and a decision can come from any thread."""
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statements = KeyStatements()
    statements.apply(create_succession(recovery, new).encoded)
    statements.decide(old.node_id, new.node_id)

    class Listeners(list[Callable[[], None]]):
        def append(self, listener: Callable[[], None]) -> None:
            statements.decide(old.node_id, None)
            super().append(listener)

    statements.listeners = Listeners()
    async with Node(Identity.create(), statements=statements) as node:
        assert node.roles.granting(new.node_id) == (new.node_id,)
        statements.decide(old.node_id, new.node_id)
        both = (new.node_id, old.node_id)
        await eventually(lambda: node.roles.granting(new.node_id) == both)
