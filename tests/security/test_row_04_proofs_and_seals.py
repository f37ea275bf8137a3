"""Row 4. Mistake: a Proof that is missing, empty, foreign or unsealed is accepted, or a seal is
stripped or moved by somebody in between.

Promise: every such Proof and every such seal, on every transport and with every signing
algorithm, ends the connection with a typed error, and no callback sees anything of it.

More faults of a Proof's contents, over TCP with Ed25519: tests/interop/
test_handshake_faults.py::test_a_proof_that_our_responder_refuses and its neighbours; more
of seals: tests/interop/test_violations.py (`SEALS`), tests/node/protocol/test_sealing.py.
Whose keys sign what: rows 9 to 12.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from unittest.mock import patch

import pytest

from parley._crypto.registry import NAMES
from parley._node.errors import HandshakeError, NotTrustedError
from parley._node.protocol.codes import CloseCode, code_name
from tests.interop.meeting import (
    SIDES,
    our_config,
    our_identity,
    silence,
    their_config,
    their_identity,
)
from tests.interop.test_handshake_faults import flip, inner_cells, instead, say_more
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.establish import Change, Misbehaviour
from tests.reference.handshake import handshake_cells, reject_event
from tests.reference.peer import ReferencePeer, Side
from tests.reference.primitives import SIGNATURE_SIZES, SigningKey
from tests.reference.recorded import seed
from tests.reference.sealing import Suite
from tests.reference.wire import TYPES, Event, cells_payload
from tests.security.witness import TRANSPORTS, Witness, witness

pytestmark = pytest.mark.anyio

each_side = pytest.mark.parametrize("side", SIDES)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
each_algorithm = pytest.mark.parametrize("algorithm", NAMES["signing"])

# The transports carry bytes and know nothing of sealings: the second one is tried on one.
each_way = pytest.mark.parametrize(
    ("sealing", "transport"), [*(("chain", each) for each in TRANSPORTS), ("each", "memory")]
)

AFTER_STREAM_AND_CHAIN: Final = {"chain": 4 + 1 + 16, "each": 4}


def suite(algorithm: str, sealing: str = "chain") -> Suite:
    """The one suite of a meeting."""
    return Suite(kex="x25519", signing=algorithm, sealing=sealing)


def zeros(begin: int, size: int) -> Change:
    """Zeros in place of some bytes."""
    return lambda event: event[:begin] + bytes(size) + event[begin + size :]


def without(begin: int, size: int) -> Change:
    """Some bytes left out."""
    return lambda event: event[:begin] + event[begin + size :]


# Proofs.


def refused_proofs(algorithm: str, sealing: str) -> dict[str, Misbehaviour]:
    """Those that decrypt as a Proof: our responder answers them with Close."""
    begin, size = AFTER_STREAM_AND_CHAIN[sealing], SIGNATURE_SIZES[algorithm]
    stranger = SigningKey(algorithm, seed(f"stranger {algorithm}"))
    others = [name for name in NAMES["signing"] if name != algorithm]
    inner: dict[str, Change] = {
        "empty: no payload": lambda inner: inner[:4] + b"\0",
        "empty: no cells": lambda inner: inner[:4] + b"\xa0",
        "empty: no identity": inner_cells(keys=None),
        "empty: no keys": inner_cells(keys=[]),
        "foreign: a stranger's keys": inner_cells(keys=[[algorithm, stranger.public, None]]),
        "foreign: our own keys": inner_cells(keys=their_identity_as_ours(algorithm)),
        "foreign: keys of another algorithm": inner_cells(keys=their_identity(others[0]).cell()),
        "foreign: a key of no algorithm": inner_cells(keys=[["none", bytes(32), None]]),
    }
    faults = {name: Misbehaviour({"Proof inner": change}) for name, change in inner.items()}
    faults |= {
        "foreign: signed by a stranger": Misbehaviour(proof_signer=stranger),
        "the seal's first bit": Misbehaviour({"Proof": flip(begin)}),
        "the seal's last bit": Misbehaviour({"Proof": flip(begin + size - 1)}),
        "an empty seal": Misbehaviour({"Proof": zeros(begin, size)}),
    }
    if sealing == "chain":
        faults["unsealed"] = Misbehaviour(proof_form=False)
    return faults


def their_identity_as_ours(algorithm: str) -> list[list[object]]:
    """Our node's own identity, as it shows it in its own Proof."""
    return [list(cell) for cell in our_identity(algorithm).cells()]


def missing_proofs(algorithm: str, sealing: str) -> dict[str, Misbehaviour]:
    """What is no Proof, or opens as none: our responder meets it with silence."""
    begin, size = AFTER_STREAM_AND_CHAIN[sealing], SIGNATURE_SIZES[algorithm]
    call = b"\0\0\3\1" + cells_payload(topic="parley.echo", data="too early")
    faults = {
        f"missing: {name} in its place": Misbehaviour({"Proof inner": instead(inner)})
        for name, inner in {
            "a Call": call,
            "a Call that wants an answer": b"\0\1" + call[2:],
            "an application's event": b"\0\0\x40\1x",
            "Open": b"\0\0\2\1" + cells_payload(label="echo"),
            "Seal": b"\0\0\1\x08\0",
            "Close": b"\0\0\1\x0c" + cells_payload(code=0),
        }.items()
    }
    raw = {
        "a raw Proof": Event(0, 0, *TYPES["Proof"], cells_payload(keys=[], node={})).raw,
        "a raw Call": Event(1, 1, *TYPES["Call"], call[4:]).raw,
        "a raw Close": Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw,
        "a Reject": reject_event("authentication-failed", ""),
        "an empty event": b"",
    }
    faults |= {name: Misbehaviour({"Proof": instead(event)}) for name, event in raw.items()}
    faults["the seal cut out"] = Misbehaviour({"Proof": without(begin, size)})
    if sealing == "chain":
        stripped: Change = lambda event: event[:4] + b"\0" + without(begin, size)(event)[5:]  # noqa: E731  # typed
        faults["the seal stripped"] = Misbehaviour({"Proof": stripped})
    return faults


async def refuses_proof(
    seen: Witness, side: Side, transport: str, algorithm: str, sealing: str, wrong: Misbehaviour
) -> str:
    """Meet somebody who shows a wrong Proof and goes on as if it were right; what our node
    said: the name of its Close's code, or nothing at all."""

    def to_responder(peer: ReferencePeer) -> str:
        peer.handshake()
        say_more(peer)
        try:
            return acts.closed_with(peer)
        except ConnectionLost:
            return ""

    def to_initiator(peer: ReferencePeer) -> str:
        with pytest.raises(ConnectionLost):
            peer.handshake()
        kinds = [handshake_cells(event)[0] for event in peer.channel.received]
        assert kinds == [TYPES["Hello"]]  # and not a word after it
        return ""

    act = to_responder if side == "initiator" else to_initiator
    theirs = their_config(suite(algorithm, sealing))
    before = len(seen.log)
    said = await seen.meets(act, side, transport, theirs, wrong)
    await seen.settled(lambda: any(" ended: " in line for line in seen.log[before:]))
    return said


@each_side
@each_way
@each_algorithm
async def test_every_wrong_proof_on_every_transport(
    sealing: str, algorithm: str, transport: str, side: Side, anyio_backend: str
) -> None:
    refused = refused_proofs(algorithm, sealing)
    faults = refused | missing_proofs(algorithm, sealing)
    config = our_config(suite(algorithm, sealing))
    async with witness(config, our_identity(algorithm)) as seen:
        for name, wrong in faults.items():
            seen.log.clear()
            said = await refuses_proof(seen, side, transport, algorithm, sealing, wrong)
            assert seen.untouched, name
            assert seen.trust.asked == [], name
            codes = ["authentication-failed"] + ["bad-record"] * (name not in refused)
            assert any(f" ended: {code} (" in line for line in seen.log for code in codes), name
            speaks = name in refused and side == "initiator"
            assert said == ("authentication-failed" if speaks else ""), name
        raised = transport == "memory" or side == "responder"
        assert len(seen.errors) == (len(faults) if raised else 0)
        for error, name in zip(seen.errors, faults, strict=False):
            assert isinstance(error, HandshakeError), name
            assert isinstance(error, NotTrustedError) or name not in refused, name
            assert error.code in (CloseCode.AUTHENTICATION_FAILED, CloseCode.BAD_RECORD), name


@each_side
@each_transport
@each_algorithm
async def test_the_right_proof_on_every_transport(
    algorithm: str, transport: str, side: Side, anyio_backend: str
) -> None:
    """What the tests above refuse is refused for its fault alone."""

    def act(peer: ReferencePeer) -> ReferencePeer:
        peer.handshake()
        acts.call(peer, "parley.echo", "heard")
        acts.close(peer)
        return peer

    config = our_config(suite(algorithm))
    async with witness(config, our_identity(algorithm)) as seen:
        await seen.meets(act, side, transport, their_config(suite(algorithm)))
        assert seen.called == ["heard"]
        assert len(seen.trust.asked) == 1
        assert not seen.errors


# Seals.


def a_call(peer: ReferencePeer, corrupt: Change | None = None, *, sealed: bool = True) -> bytes:
    """A Call with a seal; `corrupt` is what somebody in between makes of it."""
    payload = cells_payload(topic="parley.echo", data="forged")
    return peer.send_event(1, 1, *TYPES["Call"], payload, sealed=sealed, corrupt=corrupt)


def withheld(peer: ReferencePeer, *sealed: bool) -> list[bytes]:
    """Calls that are encrypted and not sent."""
    with patch.object(peer.channel, "send_raw"):
        return [a_call(peer, sealed=each) for each in sealed]


def refused_seals(algorithm: str, sealing: str) -> dict[str, Callable[[ReferencePeer], object]]:
    """What a sender, or somebody in between, may do to a seal on a Call."""
    begin, size = AFTER_STREAM_AND_CHAIN[sealing], SIGNATURE_SIZES[algorithm]
    end = begin + size

    def foreign(peer: ReferencePeer) -> None:
        peer.signer = SigningKey(algorithm, seed(f"stranger {algorithm}"))
        a_call(peer)

    def exchanged(peer: ReferencePeer) -> None:
        one, two = withheld(peer, True, True)
        peer.send_frame(one[:begin] + two[begin:end] + one[end:])
        peer.send_frame(two[:begin] + one[begin:end] + two[end:])

    def moved_from_the_proof(peer: ReferencePeer) -> None:
        proof = peer.channel.sent[-1]
        (event,) = withheld(peer, True)
        peer.send_frame(event[:begin] + proof[begin:end] + event[end:])

    faults: dict[str, Callable[[ReferencePeer], object]] = {
        "foreign": foreign,
        "empty": lambda p: a_call(p, zeros(begin, size)),
        "its first bit": lambda p: a_call(p, flip(begin)),
        "its last bit": lambda p: a_call(p, flip(end - 1)),
        "cut out": lambda p: a_call(p, without(begin, size)),
        "moved from the next event, and back": exchanged,
        "moved from the Proof": moved_from_the_proof,
    }
    if sealing == "each":
        return faults

    def moved_to_an_unsealed_event(peer: ReferencePeer) -> None:
        one, two = withheld(peer, False, True)
        peer.send_frame(one[:4] + b"\1" + one[5:begin] + two[begin:end] + one[begin:])
        peer.send_frame(two[:4] + b"\0" + two[5:begin] + two[end:])

    stripped: Change = lambda event: event[:4] + b"\0" + without(begin, size)(event)[5:]  # noqa: E731  # typed
    return faults | {
        "stripped": lambda p: a_call(p, stripped),
        "its form alone": lambda p: a_call(p, flip(4)),
        "moved to an unsealed event": moved_to_an_unsealed_event,
    }


async def refuses_seal(
    seen: Witness,
    side: Side,
    transport: str,
    config: Suite,
    fault: Callable[[ReferencePeer], object],
) -> str:
    """Meet somebody who is who it says, then a fault; the code of our node's Close."""

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        with suppress(ConnectionLost):  # our node was faster
            fault(peer)
        return acts.closed_with(peer)

    return await seen.meets(act, side, transport, their_config(config))


@each_side
@each_way
@each_algorithm
async def test_every_wrong_seal_on_every_transport(
    sealing: str, algorithm: str, transport: str, side: Side, anyio_backend: str
) -> None:
    chosen = suite(algorithm, sealing)
    async with witness(our_config(chosen), our_identity(algorithm)) as seen:
        for name, fault in refused_seals(algorithm, sealing).items():
            seen.log.clear()
            code = await refuses_seal(seen, side, transport, chosen, fault)
            assert code in ("seal-violation", "bad-record"), name
            await seen.settled(lambda code=code: any(f" ended: {code} (" in x for x in seen.log))  # type: ignore[misc]  # binds it
            assert seen.called == [], name
        for peer in seen.met:
            ended = await peer.closed()
            assert code_name(ended.code) in ("seal-violation", "bad-record")
            assert not ended.remote


@each_side
@each_transport
@each_algorithm
async def test_an_event_that_must_be_sealed_and_is_not(
    algorithm: str, transport: str, side: Side, anyio_backend: str
) -> None:
    """The missing seal: of all six that are acted upon only when sealed."""
    payloads = {
        "Proof": b"",
        "Seal": b"",
        "KeyUpdate": cells_payload(epoch=1),
        "RekeyOffer": cells_payload(share=b"\x09" * 32),
        "RekeyAnswer": cells_payload(share=b"\x09" * 32),
        "Close": cells_payload(code=0),
    }
    async with witness(our_config(suite(algorithm)), our_identity(algorithm)) as seen:
        for name, payload in payloads.items():

            def fault(peer: ReferencePeer, name: str = name, payload: bytes = payload) -> None:
                peer.send_event(0, 0, *TYPES[name], payload, sealed=False)

            code = await refuses_seal(seen, side, transport, suite(algorithm), fault)
            assert code == "seal-violation", name
        assert seen.called == []


@each_side
@each_transport
@each_algorithm
async def test_with_sealed_delivery_nothing_is_heard_before_a_right_seal(
    algorithm: str, transport: str, side: Side, anyio_backend: str
) -> None:
    """Three Calls wait for their seal; it is wrong, or never comes."""

    def wrong(peer: ReferencePeer) -> None:
        for _ in range(3):
            a_call(peer, sealed=False)
        peer.send_event(0, 0, *TYPES["Seal"], flip_seal=True)

    def right(peer: ReferencePeer) -> None:
        a_call(peer, sealed=False)
        peer.send("Seal", 0)
        peer.send("Close", 0, code=0)

    def never(peer: ReferencePeer) -> bool:
        peer.handshake()
        a_call(peer, sealed=False)
        peer.channel.finish()
        return silence(peer)

    config = our_config(suite(algorithm), deliver="sealed")
    async with witness(config, our_identity(algorithm)) as seen:
        code = await refuses_seal(seen, side, transport, suite(algorithm), wrong)
        assert code == "seal-violation"
        theirs = their_config(suite(algorithm))
        await seen.meets(never, side, transport, theirs, automatic=False)
        assert seen.called == []

        def act(peer: ReferencePeer) -> bool:
            peer.handshake()
            right(peer)
            return silence(peer)

        await seen.meets(act, side, transport, theirs, automatic=False)
        assert seen.called == ["forged"]
