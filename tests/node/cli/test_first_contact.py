"""How commands treat an unknown node: show it, ask once, and send data only afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import save_identity
from parley._crypto.statements import create_succession
from parley._node.cli.default_identity import default_key_path
from parley._node.cli.first_contact import connect, open_node
from parley._node.cli.output import Output
from parley._node.cli.peers import forget
from parley._node.errors import ConfigError, NotTrustedError
from parley._node.node import Node
from parley._node.trust.key_statements import KeyStatements, default_key_statements
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import Candidate
from parley._node.trust.words import fingerprint
from tests.node.cli.conftest import Parley
from tests.node.cli.terminals import at_terminal
from tests.node.cli.test_options import common

SEEN = datetime(2026, 3, 4, tzinfo=UTC)


class Host:
    """A node to dial, and the node IDs that dialled it."""

    def __init__(self, identity: Identity) -> None:
        self.met: list[NodeId] = []
        self.node = Node(identity, trust=self._meet)
        self.node_id, self.place = identity.node_id, ""

    async def _meet(self, candidate: Candidate) -> bool:
        self.met.append(candidate.node_id)
        return True


@asynccontextmanager
async def hosted(identity: Identity | None = None) -> AsyncIterator[Host]:
    """A host that listens."""
    host = Host(identity or Identity.create())
    async with host.node:
        host.place = (await host.node.listen("tcp://127.0.0.1:0")).partition("#")[0]
        yield host


async def call_on(place: str, **given: object) -> NodeId | None:
    """Dial a place as commands do; returns who was there."""
    async with connect(common(**given), Output(as_json=False), place) as peer:
        await peer.ping()
        return peer.node_id


def on_record() -> dict[NodeId, tuple[str, ...]]:
    return {peer.node_id: peer.names for peer in KnownPeers(default_known_peers())}


async def test_without_a_terminal_it_is_refused(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hosted() as host:
        with pytest.raises(NotTrustedError, match="--trust first-use") as refused:
            await call_on(host.place)
        for shown in (host.place, str(host.node_id), fingerprint(host.node_id), "#NODEID"):
            assert shown in str(refused.value)
        assert on_record() == {}
        assert host.met == []  # not even a throw-away id
        assert capsys.readouterr() == ("", "")


async def test_with_trust_and_without_a_terminal_it_is_a_line(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hosted() as host:
        assert await call_on(host.place, trust="first-use") == host.node_id
        assert capsys.readouterr() == (
            "",
            f"parley: trusting the node at {host.place} from now on: {host.node_id} "
            f"({fingerprint(host.node_id)})\n",
        )
        assert on_record() == {host.node_id: (host.place,)}
        await call_on(host.place)
        assert capsys.readouterr().err == ""
        assert host.met == [common().identity().node_id] * 2


async def test_at_a_terminal_it_is_asked_for_once(anyio_backend: str) -> None:
    async with hosted() as host:
        with at_terminal() as terminal:
            async with terminal.answered("yes\n"):
                await call_on(host.place)
            await call_on(host.place)
            shown = terminal.read()
        assert shown.count("[yes/no]") == 1
        assert f"    {host.node_id}\n" in shown
        assert fingerprint(host.node_id) in " ".join(shown.split())
        assert on_record() == {host.node_id: (host.place,)}


async def test_a_no_leaves_nothing_and_tells_nothing(anyio_backend: str) -> None:
    async with hosted() as host:
        with at_terminal() as terminal:
            async with terminal.answered("no\n"):
                with pytest.raises(
                    NotTrustedError, match=f"you declined; its ID is {host.node_id}"
                ):
                    await call_on(host.place)
        assert on_record() == {}
        assert host.met == []  # not even a throw-away id


async def test_a_known_peer_elsewhere_is_no_stranger(anyio_backend: str) -> None:
    async with hosted() as host:
        known_peers = KnownPeers(default_known_peers())
        known_peers.add(host.node_id, "tcp://elsewhere:1", SEEN)
        known_peers.add(host.node_id, "bob", SEEN)
        with at_terminal() as terminal:
            await call_on(host.place)
            shown = terminal.read()
        assert shown == f"parley: the node at {host.place} is already known as bob\n"
        assert on_record() == {host.node_id: ("tcp://elsewhere:1", "bob", host.place)}


async def test_the_successor_of_a_known_peer_is_no_stranger(anyio_backend: str) -> None:
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    async with hosted(new) as host:
        KnownPeers(default_known_peers()).add(old.node_id, "bob", SEEN)
        statement = create_succession(recovery, new)
        KeyStatements(default_key_statements()).apply(statement.encoded)
        with at_terminal() as terminal:
            await call_on(host.place)
            shown = terminal.read()
        assert shown == f"parley: the node at {host.place} is already known as bob\n"
        assert on_record() == {old.node_id: ("bob", host.place)}


@pytest.mark.parametrize("end", ["conflict", "refuse", "forget"])
async def test_a_successor_at_a_new_address_is_admitted_only_as_its_predecessor(
    anyio_backend: str, end: str
) -> None:
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    async with hosted(new) as host:
        KnownPeers(default_known_peers()).add(old.node_id, "bob", SEEN)
        statements = KeyStatements(default_key_statements())
        statements.apply(create_succession(recovery, new).encoded)
        await call_on(host.place, trust="first-use")
        await call_on(f"{host.place}#{new.node_id}", trust="known")
        match end:
            case "conflict":
                other, _ = Identity.create_recoverable()
                statements.apply(create_succession(recovery, other).encoded)
            case "refuse":
                statements.decide(old.node_id, None)
            case _:
                await to_thread.run_sync(
                    partial(
                        forget, "bob", accounts=False, known_peers=None, config=None, as_json=True
                    )
                )
        with pytest.raises(NotTrustedError):
            await call_on(host.place, trust="known")


async def test_one_s_own_node_is_dialled_with_a_throw_away_key(anyio_backend: str) -> None:
    own = common().identity()
    async with hosted(own) as host:
        for address in (f"{host.place}#{own.node_id}", host.place):
            with at_terminal() as terminal:
                assert await call_on(address) == own.node_id
                assert terminal.read() == (
                    f"{host.place} is your own node: connecting with a temporary identity\n"
                )
        await call_on(host.place)  # on record by now, and silent in scripts
        assert len(set(host.met)) == 3
        assert own.node_id not in host.met
        with pytest.raises(ConfigError, match="it is your own node ID"):
            await call_on(host.place, identity_path=default_key_path())
        with pytest.raises(NotTrustedError, match="the peer has this node's own ID"):
            await call_on(host.place, trust="any")  # the node there was not contacted


async def test_who_has_to_be_known_is_not_introduced(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hosted() as host:
        with pytest.raises(NotTrustedError, match="it is not in"):
            await call_on(host.place, trust="known")
        assert await call_on(host.place, trust="any") == host.node_id
        assert await call_on(f"{host.place}#{host.node_id}") == host.node_id
    assert capsys.readouterr().err == ""
    assert on_record() == {}


async def test_nobody_is_there(anyio_backend: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="socket"):
        async with open_node(common(), Output(as_json=False), f"unix://{tmp_path}/socket"):
            raise AssertionError("nobody answers there")


def test_a_server_does_not_dial_itself(parley: Parley, tmp_path: Path) -> None:
    key = tmp_path / "key"
    identity = Identity.create()
    save_identity(key, identity)
    itself = f"tcp://127.0.0.1:1#{identity.node_id}"
    for command in (
        ["serve", "--forward", f"news={itself}"],
        ["serve", "--link", itself],
    ):
        done = parley(*command, "--identity", str(key))
        assert (done.code, done.out) == (2, "")
        assert f"cannot connect to '{itself}': it has the node ID of this node" in done.err


def test_a_server_does_not_trust_whom_nobody_was_asked_about(parley: Parley) -> None:
    done = parley("serve", "--listen", "tcp://127.0.0.1:0", "--forward", "news=tcp://127.0.0.1:1")
    assert (done.code, done.out) == (4, "")
    assert "cannot trust the node at 'tcp://127.0.0.1:1': it is unknown" in done.err


def test_a_script_ends_with_code_4(parley: Parley, server: str) -> None:
    place, _, node_id = server.partition("#")
    for options in ((), ("--json",)):
        done = parley("call", place, "parley.echo", "hello", *options)
        assert done.code == 4
        assert node_id in done.err + done.out
    done = parley("call", place, "parley.echo", "hello", "--trust", "first-use")
    assert (done.code, done.out) == (0, "hello\n")


async def test_a_command_follows_the_successor_of_a_node(anyio_backend: str) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statements = KeyStatements()
    statements.apply(create_succession(recovery, new).encoded)
    async with Node(new, statements=statements) as node:
        place = (await node.listen("tcp://127.0.0.1:0")).partition("#")[0]
        KnownPeers(default_known_peers()).add(old.node_id, place, SEEN)
        assert await call_on(f"{place}#{old.node_id}") == new.node_id
        stored = KeyStatements(default_key_statements())
        stored.refresh()
        assert stored.table.current(old.node_id) == new.node_id
        assert await call_on(place) == new.node_id
        assert on_record() == {old.node_id: (place,)}
