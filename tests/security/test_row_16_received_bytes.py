"""Row 16. Mistake: verifying a re-encoding of what was received. Promise: transcripts, seals,
the network mac and key bindings are computed over the bytes as they came; and what would not
come out the same if it were encoded again, but for cells that we pass over, is no LBM.

The protocol allows one encoding of a map, but any cells that a reader does not know, noise, and
limits in more than one spelling: a reader that encoded what it understood would arrive at other
bytes. Hellos and Proofs of that kind: tests/interop/test_handshake_faults.py (HELLO_VARIANTS,
ACCEPTED_PROOFS); here is the rest.
"""

from typing import Any

import pytest

from parley._crypto.identity import Identity, NodeId, PublicIdentity
from parley._crypto.registry import SIGNING
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.hello import parse_hello
from parley._node.protocol.observer import Checkpoint
from parley._node.protocol.reports import PeerIdentified
from tests.interop.meeting import SIDES, our_config, our_node, their_config
from tests.interop.test_handshake_faults import (
    KEY,
    cells_of,
    having,
    inner_cells,
    talk,
)
from tests.node.protocol.pair import Pair, events_of
from tests.reference import acts
from tests.reference.establish import Change, Misbehaviour
from tests.reference.handshake import LIMITS
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, TYPES, Event, cells_payload
from tests.security.changed_bytes import at
from tests.security.insider import ALGORITHMS, Insider, meeting
from tests.security.middle import Middle
from tests.security.shapes import BOTH_KEX, HELLO, SHAPES, Shape, identity
from tests.security.tampering import recelled

# Cells that change nothing of what an event means.
IDLE: dict[int, Any] = {
    CELLS["noise"]: bytes(60),
    CELLS["label"]: "any",
    300: [1, {"a": None, "b": 1.5}],
    2**64 - 1: b"x",
}
VARIANTS = {
    "unknown cells and noise": having(IDLE),
    "limits left out": having(dict.fromkeys((CELLS[name] for name in LIMITS), None)),
    "limits beyond the greatest": having(
        dict.fromkeys((CELLS[name] for name in LIMITS), 2**64 - 1)
    ),
    "a default in so many words": having({CELLS["plaintext"]: False}),
}


@pytest.mark.anyio
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("network_key", [None, KEY], ids=["open", "network"])
@pytest.mark.parametrize("side", SIDES)
async def test_raw_events_of_the_reference(
    anyio_backend: str, side: Side, network_key: bytes | None, variant: str
) -> None:
    """Its transcript has what it sent: both arrive at the same keys, and every seal of the talk
    is right, only if ours has the same. The network mac is of all cells likewise."""
    change = VARIANTS[variant]
    names = ("Hello", "second Hello") if side == "initiator" else ("Reply",)
    wrong = Misbehaviour(dict.fromkeys(names, change))
    kex = BOTH_KEX[::-1] if side == "initiator" else ("x25519",)
    async with our_node(our_config(network_key=network_key)) as ours:
        await ours.meet(
            talk, side, config=their_config(kex=kex, network_key=network_key), wrong=wrong
        )


@pytest.mark.anyio
@pytest.mark.parametrize("network_key", [None, KEY], ids=["open", "network"])
async def test_a_retry_of_the_reference(anyio_backend: str, network_key: bytes | None) -> None:
    wrong = Misbehaviour({"Retry": having({CELLS["noise"]: b"x", 300: None})})
    settings = our_config(algorithms={"kex": BOTH_KEX[::-1]}, network_key=network_key)
    async with our_node(settings) as ours:
        theirs = their_config(kex=("x25519",), network_key=network_key)
        await ours.meet(talk, "responder", config=theirs, wrong=wrong)


@pytest.mark.anyio
@pytest.mark.parametrize("side", SIDES)
async def test_events_after_the_handshake(anyio_backend: str, side: Side) -> None:
    """Their chain covers blobs, whatever cells those have; so do the keys of a rekey."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for number in range(1, 4):
            cells = {CELLS["topic"]: "parley.echo", CELLS["data"]: number, **IDLE}
            payload = named_payload(cells)
            peer.send_event(1, number, *TYPES["Call"], payload, sealed=True)
            assert acts.result(peer, number)[CELLS["data"]] == number
            acts.rekey(peer) if number == 1 else peer.update_keys()
        acts.close(peer)

    proofs = Misbehaviour({"Proof inner": inner_cells(noise=bytes(99), label="x")})
    async with our_node() as ours:
        await ours.meet(act, side, wrong=proofs)
        assert [data for _, data in ours.called] == [1, 2, 3]
        assert await ours.ended() == "normal"


def named_payload(cells: dict[int, Any]) -> bytes:
    """LBM of any cells, from the reference's encoder."""
    empty = cells_payload(topic="x")
    changed = having(cells)(bytes(8) + empty)
    return changed[8:]


class Journal:
    """An observer that keeps what the handshake left."""

    def __init__(self) -> None:
        self.agreed: Agreed | None = None

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        self.agreed = agreed

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        return

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        return

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        return

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        return

    def direction_ended(self, stream: int) -> None:
        return

    def session_parted(self, reason: str) -> None:
        return

    def session_resumed(self, number: int) -> None:
        return

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        return


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_the_transcript_is_the_wire(shape: Shape) -> None:
    """What both sides hashed and kept is, byte for byte, what passed."""
    journals = Journal(), Journal()
    pair = Pair(shape.config("initiator"), shape.config("responder"), observers=journals)
    pair.pump()
    sent = [events_of(side.wire) for side in pair.sides]
    raw = [event for both in zip(*[e[:-1] for e in sent], strict=True) for event in both]
    for journal in journals:
        agreed = journal.agreed
        assert agreed is not None
        assert agreed.t1 == b"".join(raw)
        assert agreed.initiator_proof == sent[0][-1]
        assert agreed.responder_proof == sent[1][-1]


def test_one_meaning_has_more_than_one_spelling() -> None:
    """The variants above are read as the plain event is: whoever encodes what was read gets
    the same bytes for both, and so other bytes than came for one."""
    plain = SHAPES["chain"].frames()[HELLO][4:]
    greatest = having({CELLS[name]: bounds[2] for name, bounds in LIMITS.items()})(plain)
    for name, change in VARIANTS.items():
        spelled = greatest if name == "limits beyond the greatest" else plain
        assert change(spelled) != spelled, name
        assert parse_hello(cells_of(change(spelled))) == parse_hello(cells_of(spelled)), name


# What is not the one encoding is nothing, however well it is signed.

NOT_CANONICAL: dict[str, Change] = {
    "keys out of order": lambda p: b"\xa2\x0f\xa0" + p[1:-2],
    "a key twice": lambda p: b"\xa3" + p[1:] + b"\x0f\xa0",
    "a longer count": lambda p: b"\xb8\x02" + p[1:],
    "a longer key": lambda p: b"\xa2\x18\x0e" + p[2:],
    "an indefinite map": lambda p: b"\xbf" + p[1:] + b"\xff",
    "an indefinite array": lambda p: (
        p[:2] + b"\x9f" + p[3 : p.index(b"\x0f\xa0")] + b"\xff\x0f\xa0"
    ),
    "a tag": lambda p: p[:2] + b"\xc1" + p[2:],
    "a byte behind it": lambda p: p + b"\x00",
}


def as_it_is(payload: bytes) -> bytes:
    return payload


@pytest.mark.parametrize("what", NOT_CANONICAL)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_encoding_of_a_proof(algorithm: str, what: str) -> None:
    """It says the same, and its seal is right over it as it is."""
    for change, taken in ((NOT_CANONICAL[what], False), (as_it_is, True)):
        pair = meeting(algorithm)
        pair.carry(pair.a)
        pair.carry(pair.b)
        own = pair.a.core.config.identity
        payload = encode({keys.IDENTITY_KEYS: list(own.cells()), keys.NODE_INFO: {}})
        assert payload.endswith(b"\x0f\xa0")
        event = Event(0, 0, *TYPES["Proof"], change(payload))
        insider = Insider(pair.b.handshake)
        forged = insider.in_place_of_the_proof(event, own.key(algorithm), initiators=True)
        pair.deliver(pair.b, forged)
        assert bool(pair.b.all(PeerIdentified)) == taken
        assert taken or pair.b.code == CloseCode.AUTHENTICATION_FAILED


def test_the_network_mac_is_of_what_came() -> None:
    """One who could be content with the mac of the cells that it knows would take these."""
    shape = SHAPES["network"]
    for more in ({keys.NOISE: b"x"}, {300: None}, {keys.LABEL: "x"}):
        middle = Middle(shape, at(HELLO, recelled(lambda c, m=more: c.update(m))))  # type: ignore[misc]  # a default binds it now
        middle.conclude()
        assert not middle.b.wire
        assert middle.b.code == CloseCode.AUTHENTICATION_FAILED


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bindings_are_of_the_key_as_it_came(algorithm: str) -> None:
    """Also of a key whose algorithm nobody here knows, and so cannot encode anew."""
    key = identity("both", algorithm).keys[0]
    own = Identity.from_keys([key])
    node_id = NodeId.of_key(algorithm, key.public)
    for public in (b"\x00\x01", b"\x01", b"\x01\x00"):
        binding = key.sign(b"parley1 key binding" + node_id + b"\x05other" + public)
        cells = [*own.cells(), ["other", public, binding]]
        (entries,) = decode(encode({keys.IDENTITY_KEYS: cells})).values()
        assert PublicIdentity.parse(entries).entries[1] == ("other", public, binding)
        assert set(PublicIdentity.parse(entries).algorithms) <= set(SIGNING)
