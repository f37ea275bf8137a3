"""Tests of the catalogue of handshake faults with a node over TCP, and the reference as its peer.

One node for each setting gets all its faults in turn. Its log contains the code, `connect` raises a
typed error, no handler runs, the trust policy isn't called, and another connection of the node
stays open.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, cast

import pytest

from parley._crypto.identity import Identity, PublicIdentity
from parley._crypto.registry import NAMES
from parley._node.errors import HandshakeError, NotTrustedError
from parley._node.protocol.codes import SENTENCES, code_name
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import AcceptHook, AnyPeer, FirstUse, Known, Pinned, TrustPolicy
from parley.trust import Candidate
from tests.handshake.catalogue import (
    FOREIGN_BYTES,
    NETWORK,
    SUITE,
    USUAL,
    Fault,
    Setting,
    hello_faults,
    proof_faults,
    proof_variants,
    reply_faults,
    second_hello_faults,
    silent_faults,
    variants,
)
from tests.handshake.outcome import Seen, assert_answer, look
from tests.interop.meeting import (
    SIDES,
    Ours,
    our_config,
    our_node,
    silence,
    their_config,
    with_bystander,
)
from tests.reference import acts
from tests.reference.establish import HONEST
from tests.reference.handshake import handshake_cells
from tests.reference.peer import ReferencePeer
from tests.reference.peer import Side as WhichSide
from tests.reference.wire import CELLS, TYPES
from tests.reference.wire import NAMES as CODE_NAMES

pytestmark = pytest.mark.anyio

# A node logs this many failed handshakes per second before it limits their rate.
MOST: Final = 80


class WatchedTrust(AnyPeer):
    """Trusts every peer and counts its calls."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        self.asked += 1


def by_setting(faults: list[Fault]) -> Iterator[tuple[Setting, list[Fault]]]:
    """Group faults by their setting, because each setting requires a separate node."""
    settings = {id(fault.setting): fault.setting for fault in faults}
    for key, setting in settings.items():
        group = [fault for fault in faults if id(fault.setting) == key]
        for start in range(0, len(group), MOST):
            yield setting, group[start : start + MOST]


@asynccontextmanager
async def node_in(setting: Setting, trust: TrustPolicy) -> AsyncIterator[Ours]:
    """Run our node with a setting, and another connection to it."""
    settings: dict[str, Any] = dict(setting.ours)
    settings["algorithms"] = {
        **{name: (getattr(SUITE, name),) for name in NAMES},
        **settings.get("algorithms", {}),
    }
    config = our_config(handshakes_per_second=100_000.0, **settings)
    async with with_bystander(config, trust=trust) as ours:
        yield ours


def forget(ours: Ours) -> None:
    """Clear the log and the error of earlier faults."""
    ours.log.clear()
    ours.refusal = None


async def refuse(ours: Ours, fault: Fault, side: WhichSide, trust: TrustPolicy) -> Seen:
    """Test a fault on our node, which is the initiator or the responder."""
    forget(ours)
    other: WhichSide = "responder" if side == "initiator" else "initiator"
    theirs = their_config(SUITE, **fault.setting.theirs)
    seen = await ours.meet(look, other, config=theirs, wrong=fault.wrong, trust=trust)
    if side == "responder":
        code = await ours.ended()
    else:
        assert isinstance(ours.refusal, HandshakeError)
        code = code_name(ours.refusal.code)
        refused_proof = fault.event == "Proof" and fault.answer == "Close"
        assert isinstance(ours.refusal, NotTrustedError) or not refused_proof
    assert fault.code in ("any", code)
    assert ours.called == []
    assert_answer(fault, seen, ours=side, sentences=SENTENCES)
    return seen


async def refuse_all(
    faults: list[Fault], side: WhichSide, subtests: pytest.Subtests
) -> dict[str, list[Seen]]:
    """Test faults on nodes with their settings; return the observations by kind of answer."""
    found: dict[str, list[Seen]] = {"Reject": [], "Close": [], "": []}
    for setting, group in by_setting(faults):
        trust = WatchedTrust()
        async with node_in(setting, trust) as ours:
            asked = trust.asked
            for fault in group:
                with subtests.test(f"{fault.event} to our {side}: {fault.title}"):
                    found[fault.answer].append(await refuse(ours, fault, side, trust))
            assert trust.asked == asked
    return found


async def test_wrong_hellos(subtests: pytest.Subtests) -> None:
    await refuse_all([*hello_faults(), *second_hello_faults()], "responder", subtests)


async def test_wrong_hellos_to_a_network(subtests: pytest.Subtests) -> None:
    await refuse_all(silent_faults(), "responder", subtests)


async def test_wrong_replies(subtests: pytest.Subtests) -> None:
    await refuse_all(reply_faults(), "initiator", subtests)


# All failures of authentication look the same on the wire.


async def hook(candidate: Candidate) -> bool:
    return False


async def failing_hook(candidate: Candidate) -> bool:
    raise ValueError("a secret of the application")


# Valid Proofs of a peer that is refused nevertheless.
UNTRUSTED: Final[dict[str, Callable[[], TrustPolicy | AcceptHook]]] = {
    "pinned to another": lambda: Pinned(Identity.create().node_id),
    "not known": lambda: Known(KnownPeers(Path("/proc/nonexistent/known_peers"))),
    "a file that cannot be read": lambda: FirstUse(KnownPeers(Path("/dev/null/known_peers"))),
    "refused by a hook": lambda: hook,
    "a hook that failed": lambda: failing_hook,
}


@pytest.mark.parametrize("side", SIDES)
async def test_wrong_proofs(side: WhichSide, subtests: pytest.Subtests) -> None:
    found = await refuse_all(proof_faults(), side, subtests)
    for name, make in UNTRUSTED.items():
        with subtests.test(f"to our {side}: {name}"):
            trust = cast(TrustPolicy, make())
            fault = Fault(name, "Proof", HONEST, "peer-not-trusted", "Close")
            async with our_node(our_config(SUITE), trust=trust) as ours:
                found["Close"].append(await refuse(ours, fault, side, trust))
                reason = "".join([*ours.log, str(ours.refusal)])
                assert "refused" in reason or "failed" in reason
                assert "a secret of" not in reason
    for alike in found.values():
        assert len({(seen.sizes, seen.said) for seen in alike}) <= 1, alike


def silent(data: bytes) -> Callable[[ReferencePeer], str]:
    """Send bytes that get no answer."""

    def act(peer: ReferencePeer) -> str:
        peer.send_raw(data)
        return "" if silence(peer) else "an answer"

    return act


def rejected(data: bytes) -> Callable[[ReferencePeer], str]:
    """Send bytes that are answered with Reject; return its code."""

    def act(peer: ReferencePeer) -> str:
        peer.send_raw(data)
        kind, cells = handshake_cells(peer.channel.receive_frame())
        assert kind == TYPES["Reject"]
        assert silence(peer)
        return CODE_NAMES[cells[CELLS["code"]]]

    return act


async def test_bytes_of_other_protocols(subtests: pytest.Subtests) -> None:
    async with node_in(USUAL, AnyPeer()) as ours, node_in(NETWORK, AnyPeer()) as network:
        for data, code in FOREIGN_BYTES.items():
            with subtests.test(repr(data[:20])):
                assert await ours.meet(rejected(data)) == code
                assert await network.meet(silent(data)) == ""


def talk(peer: ReferencePeer) -> None:
    """Run a handshake, make a call and close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", "hi")[CELLS["data"]] == "hi"
    acts.close(peer)


async def test_unusual_events_are_accepted(subtests: pytest.Subtests) -> None:
    for setting, group in by_setting([*variants(), *proof_variants()]):
        async with node_in(setting, AnyPeer()) as ours:
            for fault, side in product(group, SIDES):
                if fault.event == "Proof" or (fault.event == "Reply") == (side == "responder"):
                    with subtests.test(f"{fault.event} of the {side}: {fault.title}"):
                        theirs = their_config(SUITE, **setting.theirs)
                        await ours.meet(talk, side, config=theirs, wrong=fault.wrong)
