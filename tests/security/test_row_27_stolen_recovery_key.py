"""Row 27, a stolen recovery key: peers follow the thief's successor, but it gets no granted rights;
it can't undo a person's choice, and the owner's statement ends the trust in it.

tests/node/trust/test_statement_table.py covers the rules of the table. Here, real nodes decide.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import pytest

from parley import CallRefused, Identity, Node, Statement, create_succession
from parley.errors import HandshakeError, IdentityEndedError, PeerClosedError
from parley.trust import KeyStatements, Known, KnownPeers, OneOf, TrustPolicy

pytestmark = pytest.mark.anyio
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)

OWNER, RECOVERY = Identity.create_recoverable()
THIEF, _ = Identity.create_recoverable()
NEW, NEW_RECOVERY = Identity.create_recoverable()
OF_THIEF: Final = create_succession(RECOVERY, THIEF)
OF_OWNER: Final = create_succession(RECOVERY, NEW)


def known(path: Path) -> Known:
    """Return a policy that knows the owner by a name."""
    peers = KnownPeers(path / "known_peers")
    peers.add(OWNER.node_id, "owner", NOW)
    return Known(peers)


async def admits(policy: TrustPolicy, statements: KeyStatements, identity: Identity) -> bool:
    """Return whether a server with a policy admits a node."""
    server = Node(Identity.create(), trust=policy, statements=statements)
    async with server, Node(identity) as client:
        address = await server.listen("memory://server")
        try:
            await (await client.connect(address)).ping()
        except (HandshakeError, PeerClosedError):
            return False
        return True


async def test_the_thief_gets_names_but_not_what_a_person_granted(tmp_path: Path) -> None:
    statements = KeyStatements()
    statements.apply(OF_THIEF.encoded)
    assert await admits(known(tmp_path), statements, THIEF)
    assert not await admits(OneOf([OWNER.node_id]), statements, THIEF)


async def test_where_the_list_of_peers_grants_access_a_person_is_asked(tmp_path: Path) -> None:
    statements = KeyStatements(follow=False)
    statements.apply(OF_THIEF.encoded)
    assert not await admits(known(tmp_path), statements, THIEF)


@pytest.mark.parametrize("order", [(OF_OWNER, OF_THIEF), (OF_THIEF, OF_OWNER)])
async def test_the_statement_of_the_owner_ends_the_trust_in_both(
    order: tuple[Statement, Statement], tmp_path: Path
) -> None:
    statements = KeyStatements()
    for one in order:
        statements.apply(one.encoded)
    policy = known(tmp_path)
    assert not await admits(policy, statements, THIEF)
    assert not await admits(policy, statements, NEW)
    statements.decide(OWNER.node_id, NEW.node_id)
    assert not await admits(policy, statements, THIEF)
    assert await admits(policy, statements, NEW)


async def test_the_thief_loses_its_session_when_the_owner_speaks(tmp_path: Path) -> None:
    server = Node(Identity.create(), trust=known(tmp_path))
    server.statements.apply(OF_THIEF.encoded)
    async with server, Node(THIEF) as thief:
        peer = await thief.connect(await server.listen("memory://server"))
        await peer.ping()
        server.statements.apply(OF_OWNER.encoded)
        with anyio.fail_after(10):
            await peer.closed()
        with pytest.raises(IdentityEndedError, match="two successors"):
            await server.connect(f"memory://owner#{OWNER.node_id}")


async def test_the_thief_cannot_undo_the_choice_of_a_person() -> None:
    server = Node(Identity.create(), watch=[OWNER.node_id])
    server.statements.apply(OF_OWNER.encoded)
    server.statements.decide(OWNER.node_id, NEW.node_id)
    assert server.connections.offer_statement(OF_THIEF.encoded) == "stored"
    assert server.successor_of(OWNER.node_id) == NEW.node_id


async def test_an_accepted_successor_cannot_pass_the_rights_on() -> None:
    """The thief has the recovery key of a successor that a person accepted."""
    statements, policy = KeyStatements(), OneOf([OWNER.node_id])
    statements.apply(OF_OWNER.encoded)
    statements.decide(OWNER.node_id, NEW.node_id)
    assert await admits(policy, statements, NEW)
    statements.apply(create_succession(NEW_RECOVERY, THIEF).encoded)
    assert statements.table.current(OWNER.node_id) == THIEF.node_id
    assert not await admits(policy, statements, THIEF)


async def test_a_call_that_was_granted_waits_for_a_person() -> None:
    server = Node(Identity.create(), watch=[OWNER.node_id])

    @server.on_call("open", allow=[OWNER.node_id])
    async def open_door(call: object) -> str:
        return "opened"

    server.statements.apply(OF_OWNER.encoded)
    async with server, Node(NEW) as new:
        peer = await new.connect(await server.listen("memory://server"))
        with pytest.raises(CallRefused) as caught:
            await peer.call("open")
        assert caught.value.code == 20  # not-authorised
        server.statements.decide(OWNER.node_id, NEW.node_id)
        peer = await new.connect(await server.listen("memory://server-2"))
        assert await peer.call("open") == "opened"
