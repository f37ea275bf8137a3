"""Row 26, a stolen online key: the thief can't move the identity to a key of its own, can't outlive
the owner's succession, and can't block it.

tests/crypto/test_statements.py covers each check with vectors, and tests/node/trust/test_ended_ids
each trust policy. Here, the thief makes statements with all that it has, and offers them to a node.
"""

from datetime import UTC, datetime
from typing import Final

import anyio
import pytest

from parley import Identity, Node, create_revocation, create_succession
from parley._crypto.identity import RecoveryKey, make_commitment
from parley._crypto.registry import SIGNING
from parley._lbm import keys
from parley._node.federation.cards import sign_card
from parley.errors import IdentityEndedError, NotTrustedError, PeerClosedError, StatementError
from parley.trust import OneOf
from tests.node.trust.server_with_peers import EVE, Members, server_with_peers
from tests.security.forgery import CONSENT, content_of, part_of, sign, statement

pytestmark = pytest.mark.anyio
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)

# The thief has the primary key of OWNER, but not RECOVERY. THIEF is an identity of its own.
OWNER, RECOVERY = Identity.create_recoverable()
STOLEN = OWNER.keys[0]
THIEF, THIEVES_RECOVERY = Identity.create_recoverable()
THIEVES = THIEVES_RECOVERY.key
BOB, _ = Identity.create_recoverable()
FIRST_FORM = Identity.create()
TRUE: Final = create_succession(RECOVERY, BOB).encoded

# The owner's identity with the commitment of the thief, and without one.
SWAPPED = Identity.from_keys([STOLEN], THIEF.primary_key.commitment)
DROPPED = Identity.from_keys([STOLEN])
OF_OWNER: Final = {keys.ORIGIN: OWNER.node_id}
# The same key, with a recovery key that the thief can use.
REUSED = Identity.from_keys(
    [STOLEN], RecoveryKey(THIEVES, STOLEN.algorithm, STOLEN.public).primary_key.commitment
)


ATTACKS: Final = {
    "the primary names a successor": (
        statement(content_of(OWNER, THIEF), STOLEN, THIEF.keys[0]),
        "successor",
    ),
    "the first form of the key": (
        statement(content_of(DROPPED, THIEF, changed=OF_OWNER), STOLEN, THIEF.keys[0]),
        "identity",
    ),
    "another commitment": (
        statement(content_of(SWAPPED, THIEF, THIEVES, changed=OF_OWNER), THIEVES, THIEF.keys[0]),
        "identity",
    ),
    "another recovery key": (
        statement(content_of(OWNER, THIEF, THIEVES), THIEVES, THIEF.keys[0]),
        "signer",
    ),
    "the primary as recovery key": (
        statement(content_of(OWNER, THIEF, STOLEN), STOLEN, THIEF.keys[0]),
        "signer",
    ),
    "a signature of another statement": (
        statement(
            content_of(OWNER, THIEF, RECOVERY.key),
            RECOVERY.key,
            THIEF.keys[0],
            changed={keys.SIGNATURE: part_of(TRUE, keys.SIGNATURE)},
        ),
        "signature",
    ),
    "a consent of another statement": (
        statement(
            part_of(TRUE, keys.CONTENT),
            RECOVERY.key,
            changed={keys.CONSENT: sign(BOB.keys[0], CONSENT, part_of(TRUE, keys.CONTENT)[:-1])},
        ),
        "consent",
    ),
    "a consent as signature": (
        statement(content_of(FIRST_FORM, THIEF), FIRST_FORM.keys[0], THIEF.keys[0], label=CONSENT),
        "signature",
    ),
    "a card as statement": (
        sign_card(OWNER, number=1, made_ms=1, links={BOB.node_id: True}),
        "unsupported",
    ),
    "the leaked key again": (statement(content_of(OWNER, REUSED), STOLEN, STOLEN), "successor"),
    "bob without his consent": (
        statement(content_of(FIRST_FORM, BOB), FIRST_FORM.keys[0], FIRST_FORM.keys[0]),
        "consent",
    ),
    "bob without any consent": (
        statement(content_of(FIRST_FORM, BOB), FIRST_FORM.keys[0]),
        "successor",
    ),
    "a revocation in the owner's name": (statement(content_of(OWNER), THIEF.keys[0]), "signature"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_statement_of_the_thief_moves_the_identity(attack: str) -> None:
    """Neither is the owner's ID ended by it: the owner stays connected."""
    encoded, reason = ATTACKS[attack]
    server = Node(Identity.create(), watch=[OWNER.node_id, FIRST_FORM.node_id])
    async with server, Node(OWNER) as owner:
        peer = await owner.connect(await server.listen("memory://attacked"))
        with pytest.raises(StatementError) as caught:
            server.connections.offer_statement(encoded)
        assert caught.value.reason == reason
        assert not server.statements.table.stored
        await peer.ping()


def test_an_ml_dsa_identity_cannot_be_moved_to_a_weaker_key() -> None:
    strong = Identity.create(("ml-dsa-65",))
    encoded = statement(content_of(strong, THIEF), strong.keys[0], THIEF.keys[0])
    node = Node(Identity.create(), watch=[strong.node_id])
    with pytest.raises(StatementError) as caught:
        node.connections.offer_statement(encoded)
    assert caught.value.reason == "successor"


def test_an_ml_dsa_identity_has_no_weaker_recovery_key() -> None:
    primary = SIGNING["ml-dsa-65"].load(bytes(32))
    commitment = make_commitment(
        primary.algorithm, primary.public, THIEVES.algorithm, THIEVES.public
    )
    origin = Identity.from_keys([primary], commitment)
    successor, _ = Identity.create_recoverable(("ml-dsa-65",))
    encoded = statement(content_of(origin, successor, THIEVES), THIEVES, successor.keys[0])
    node = Node(Identity.create(), watch=[origin.node_id])
    with pytest.raises(StatementError) as caught:
        node.connections.offer_statement(encoded)
    assert caught.value.reason == "signer"


@pytest.mark.parametrize("posing", [DROPPED, SWAPPED, REUSED], ids=["first", "swapped", "own"])
async def test_another_recovery_key_is_another_identity(posing: Identity) -> None:
    """The thief shows the stolen key without the owner's commitment, or with another one."""
    alice = Node(Identity.create(), trust=OneOf([OWNER.node_id]))
    async with alice, Node(posing) as thief, Node(OWNER) as owner:
        place = await alice.listen("memory://alice")
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await thief.connect(place)).ping()
        await thief.listen("memory://thief")
        with pytest.raises(NotTrustedError):
            await alice.connect(f"memory://thief#{OWNER.node_id}")
        await (await owner.connect(place)).ping()


async def test_the_thief_is_locked_out_in_every_direction() -> None:
    """Its own sessions and those that were dialled to it end, and it can't open others."""
    alice = Node(Identity.create(), watch=[OWNER.node_id])
    async with alice, Node(OWNER) as thief, Node(BOB) as bob:
        place = await alice.listen("memory://alice")
        incoming = await thief.connect(place)
        dialled = await alice.connect(await thief.listen("memory://thief"))
        await incoming.ping()
        assert alice.connections.offer_statement(TRUE) == "stored"
        with anyio.fail_after(10):
            assert (await incoming.closed()).code == 5
            assert not (await dialled.closed()).remote
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await (await thief.connect(place)).ping()
        await bob.listen("memory://bob")
        again = await alice.connect(f"memory://bob#{OWNER.node_id}")
        assert again.node_id == BOB.node_id
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await alice.connect(f"memory://thief#{OWNER.node_id}")
        with pytest.raises(NotTrustedError):
            await alice.connect(f"memory://thief#{BOB.node_id}")


async def test_a_suspended_session_of_the_thief_ends() -> None:
    async with server_with_peers(Members()) as there:
        await there.suspend()
        there.server.statements.apply(create_revocation(EVE).encoded)
        with anyio.fail_after(10):
            await there.eve_there.closed()
        await there.alice_stays()
        await there.eve.live.changes.until(lambda: there.eve.live.unknown)
        there.eve.live.lost("she gives up")


async def test_a_revocation_of_the_thief_does_not_block_the_owner() -> None:
    client = Node(Identity.create(), watch=[OWNER.node_id])
    async with client, Node(BOB) as bob:
        assert client.connections.offer_statement(create_revocation(OWNER).encoded) == "stored"
        await bob.listen("memory://bob")
        with pytest.raises(IdentityEndedError):
            await client.connect(f"memory://bob#{OWNER.node_id}")
        assert client.connections.offer_statement(TRUE) == "stored"
        peer = await client.connect(f"memory://bob#{OWNER.node_id}")
        assert peer.node_id == BOB.node_id
