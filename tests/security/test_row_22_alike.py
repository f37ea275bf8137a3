"""Row 22, failures that can be told apart: whatever was wrong with who somebody says to be,
the other side sees the same bytes, the same lengths and the same end; why is in our log only.

Every single wrong Proof and its code stand in tests/interop/test_handshake_faults.py
(`REFUSED_PROOFS`, `UNREADABLE_PROOFS`), from which this file takes them, and adds those that
are right and refused all the same. Network keys: here, and in tests/interop/
test_handshake_faults.py `test_a_wrong_hello_to_a_network_meets_silence`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pytest

from parley._crypto.identity import Identity
from parley._node.trust.accept_hook import AcceptHook
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import FirstUse, Known, Pinned, TrustPolicy
from parley.trust import Candidate
from tests.interop.meeting import (
    Ours,
    our_config,
    our_identity,
    our_node,
    their_config,
)
from tests.interop.test_handshake_faults import (
    REFUSED_PROOFS,
    UNREADABLE_PROOFS,
    having,
    inner_cells,
)
from tests.reference.channel import ConnectionLost
from tests.reference.establish import HONEST, Misbehaviour
from tests.reference.handshake import Config
from tests.reference.identity import Identity as ReferenceIdentity
from tests.reference.peer import Closed, ReferencePeer, Side
from tests.reference.recorded import seed
from tests.reference.wire import CODES, Violation

pytestmark = pytest.mark.anyio

KEY: Final = seed("network key")
OURS: Final = ReferenceIdentity.from_seeds(("ed25519", seed("ours ed25519")))  # our node's
NOWHERE: Final = Path("/proc/nonexistent/known_peers")


@dataclass(frozen=True)
class Case:
    """What is wrong: with the reference, or with what our node thinks of it."""

    wrong: Misbehaviour = HONEST
    trust: Callable[[], TrustPolicy | AcceptHook] | None = None
    config: Config | None = None


@dataclass(frozen=True)
class Seen:
    """All that the other side has: each event's size and first bytes, what it was told in
    Close, and how the transport ended."""

    sizes: tuple[int, ...]
    heads: tuple[bytes, ...]
    told: tuple[tuple[str, object], ...]
    end: str


def look(peer: ReferencePeer) -> Seen:
    """Shake hands, and read until the end."""
    told: tuple[tuple[str, object], ...] = ()
    try:
        peer.handshake()
        peer.recv_event()
    except Closed as closed:
        told = (("code", closed.code), ("text", closed.text))
    except (ConnectionLost, Violation):
        told = ()
    received = peer.channel.received
    # Stream and form; of raw events the whole head.
    heads = tuple(event[:8] if event[6] == 1 else event[:5] for event in received[:1])
    heads += tuple(event[:5] for event in received[1:])
    return Seen(tuple(map(len, received)), heads, told, end_of(peer))


def end_of(peer: ReferencePeer) -> str:
    """How the transport ends; anything more is part of what is told apart."""
    try:
        more = peer.channel.sock.recv(1)
    except ConnectionResetError:
        return "reset"
    return "more" if more else "end"


async def nobody(candidate: Candidate) -> bool:
    return False


async def failing(candidate: Candidate) -> bool:
    raise ValueError("a secret of the application")


def strangers() -> TrustPolicy:
    """A file of known peers in which nobody is."""
    return Known(KnownPeers(NOWHERE))


def unreadable() -> TrustPolicy:
    """A file that cannot be read."""
    return FirstUse(KnownPeers(Path("/dev/null/known_peers")))


# Right Proofs, whose sender is refused all the same; the last one claims to be ourselves.
UNTRUSTED: Final = {
    "pinned to another": Case(trust=lambda: Pinned(Identity.create().node_id)),
    "not known": Case(trust=strangers),
    "nobody can be looked up": Case(trust=unreadable),
    "refused by a hook": Case(trust=lambda: nobody),
    "a hook that failed": Case(trust=lambda: failing),
    "our own id": Case(
        Misbehaviour({"Proof inner": inner_cells(keys=OURS.cell())}, proof_signer=OURS.keys[0])
    ),
}
READABLE: Final = {name: Case(wrong) for name, wrong in REFUSED_PROOFS.items()} | UNTRUSTED
UNREADABLE: Final = {name: Case(wrong) for name, wrong in UNREADABLE_PROOFS.items()}
HELLOS: Final = {
    "no mac": Case(),
    "the mac of another network": Case(config=their_config(network_key=seed("another"))),
    **{
        name: Case(Misbehaviour({"Hello": change}), config=their_config(network_key=KEY))
        for name, change in {
            "a mac of zeros": having(mac=bytes(32)),
            "a short mac": having(mac=b"x"),
            "a mac that is no bytes": having(mac="x" * 32),
            "no mac, and nothing in common": having(mac=None, offer={1: [], 2: []}),
            "no mac, and another version": having(mac=None, version=7),
            "no mac, and malformed": having(mac=None, random=b""),
            "no LBM": lambda event: event[:8] + b"junk",
            "another event": lambda event: event[:7] + b"\5" + event[8:],
        }.items()
    },
    "plaintext": Case(config=their_config(encrypted=False, plaintext=True)),
}


def test_the_case_of_our_own_id_has_our_id() -> None:
    assert OURS.id == our_identity().node_id


async def seen(case: Case, side: Side, network_key: bytes | None = None) -> tuple[Seen, Ours]:
    """What the other side saw, and our node with its log."""
    # A hook will do where a policy does.
    trust = cast("TrustPolicy | None", case.trust() if case.trust else None)
    async with our_node(our_config(network_key=network_key), trust=trust) as ours:
        found = await ours.meet(
            look,
            side,
            config=case.config,
            wrong=case.wrong,
            trust=trust,
        )
        if side == "initiator":
            await ours.ended()
        assert ours.called == []
    return found, ours


async def alike(
    cases: dict[str, Case], side: Side, network_key: bytes | None = None
) -> tuple[Seen, set[str]]:
    """The one thing that is seen in all cases, and what our log says of them."""
    found: dict[str, Seen] = {}
    reasons: set[str] = set()
    for name, case in cases.items():
        found[name], ours = await seen(case, side, network_key)
        assert len(ours.log) >= (side == "initiator"), name
        reasons.update(ours.log)
        reasons.add(str(ours.refusal))
    assert len(set(found.values())) == 1, found
    return next(iter(found.values())), reasons


async def test_a_refused_initiator_cannot_tell_why() -> None:
    """One Close, whatever was wrong: the same size, the same code, no text, the same end."""
    common, reasons = await alike(READABLE, "initiator")
    close = common.sizes[2]
    assert common.told == (("code", CODES["authentication-failed"]), ("text", ""))
    assert common.end == "end"
    assert common.heads[2] == b"\0\0\0\0\1"
    # Sealed, of one cell: nothing in its size says more.
    assert close == 4 + 17 + 64 + 4 + len(bytes.fromhex("a11005")) + 16
    # The log can tell them apart.
    assert len(reasons) > 15


async def test_a_proof_that_cannot_be_read_is_met_with_silence() -> None:
    """Who has not the keys is told nothing at all."""
    common, _ = await alike(UNREADABLE, "initiator")
    assert len(common.sizes) == 2  # Reply and our Proof, which were sent before
    assert common.told == ()


async def test_a_refused_responder_is_told_nothing() -> None:
    """Our initiator hangs up, whether it could read the Proof or not, and whatever it says."""
    common, reasons = await alike(READABLE | UNREADABLE, "responder")
    assert len(common.sizes) == 1  # our Hello
    assert common.told == ()
    assert len(reasons) > 15


async def test_without_the_network_key_nothing_is_told() -> None:
    """Neither a wrong key nor anything else about a Hello is answered by a single byte."""
    common, _ = await alike(HELLOS, "initiator", KEY)
    assert common == Seen((), (), (), "end")


async def test_a_responder_without_the_network_key_looks_like_a_forger() -> None:
    """Our initiator hangs up on its Proof as it does on one that was altered."""
    key = their_config(network_key=KEY)
    forger = Case(UNREADABLE_PROOFS["a changed tag"], config=key)
    common, _ = await alike({"no key": Case(), "forger": forger}, "responder", KEY)
    assert len(common.sizes) == 1


async def test_the_reason_is_in_our_log_alone() -> None:
    """Each refusal has one line with its reason; who caused it was told a code, if anything."""
    for name, case in READABLE.items():
        found, ours = await seen(case, "initiator")
        (line,) = [line for line in ours.log if " ended: " in line]
        assert line.rpartition("(")[2].strip(")"), name
        assert found.told == (("code", CODES["authentication-failed"]), ("text", ""))
        assert "a secret" not in line
