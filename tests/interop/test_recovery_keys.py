"""Identities with a recovery key on both sides of a connection (section 22)."""

from dataclasses import replace

import pytest

from parley import Identity
from parley._crypto.identity import RecoveryKey
from parley._crypto.registry import SIGNING
from tests.interop.meeting import SIDES, our_identity, our_node, their_config, their_identity
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.identity import Identity as ReferenceIdentity
from tests.reference.identity import commit
from tests.reference.peer import Closed, ReferencePeer, Side
from tests.reference.primitives import SigningKey
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, Violation

pytestmark = pytest.mark.anyio


def ours_with_recovery(*algorithms: str) -> Identity:
    keys = our_identity(*algorithms).keys
    recovery = SIGNING[keys[0].algorithm].load(seed("our recovery"))
    recovered = RecoveryKey(recovery, keys[0].algorithm, keys[0].public)
    return Identity.from_keys(keys, recovered.primary_key.commitment)


def theirs_with_recovery(*algorithms: str) -> ReferenceIdentity:
    identity = their_identity(*algorithms)
    primary = identity.keys[0]
    recovery = SigningKey(primary.algorithm, seed("their recovery"))
    return replace(identity, commitment=commit(primary.algorithm, primary.public, recovery))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("algorithms", [("ed25519",), ("ecdsa-p256", "ed25519"), ("ml-dsa-65",)])
async def test_both_sides_have_a_recovery_key(side: Side, algorithms: tuple[str, ...]) -> None:
    ours, theirs = ours_with_recovery(*algorithms), theirs_with_recovery(*algorithms)

    def act(peer: ReferencePeer) -> ReferencePeer:
        peer.handshake()
        assert acts.call(peer, "parley.echo", "hi")[CELLS["data"]] == "hi"
        acts.close(peer)
        return peer

    async with our_node(identity=ours) as node:
        config = their_config(identity=theirs)
        await node.meet(act, side, config=config, expected=ours.node_id)
        assert await node.ended() == "normal"


class _LaterVersion(ReferenceIdentity):
    """An identity with an entry that this version doesn't know."""

    def cell(self) -> list[list[object]]:
        return [*super().cell(), ["delegation", bytes(32), None]]


async def test_an_entry_of_a_later_version_is_refused_with_a_hint() -> None:
    def connect(peer: ReferencePeer) -> None:
        peer.handshake()
        acts.ping(peer)

    def act(peer: ReferencePeer) -> None:
        with pytest.raises((Violation, ConnectionLost, Closed)):
            connect(peer)

    async with our_node() as node:
        theirs = _LaterVersion(their_identity().keys)
        await node.meet(act, config=their_config(identity=theirs))
        hint = "unsupported identity entry 'delegation'; upgrade this node"
        await node.until(lambda: any(hint in line for line in node.log))
