"""Everything the reference can do wrong before a connection is open, as either side.

What the other side hears is what the tables of section 5 say (a Reject with its
code, Close, or nothing), no application code runs, and no other connection is hurt.
"""

import time
from collections.abc import Mapping
from typing import Any, Final
from unittest.mock import patch

import anyio
import pytest
from anyio import to_thread

from parley._node.errors import HandshakeError, NotTrustedError
from parley._node.protocol.codes import CloseCode
from parley._node.trust.policies import AnyPeer
from tests.interop.meeting import (
    PATIENCE,
    Ours,
    dial,
    listening,
    our_config,
    our_node,
    silence,
    their_config,
    their_identity,
    with_bystander,
)
from tests.reference import acts, cbor
from tests.reference.channel import ConnectionLost
from tests.reference.establish import Change, Misbehaviour
from tests.reference.handshake import (
    LIMITS,
    Config,
    handshake_cells,
    network_mac,
    reject_event,
    retry_event,
)
from tests.reference.identity import binding_message
from tests.reference.peer import ReferencePeer
from tests.reference.primitives import SigningKey
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, CODES, TYPES, Event, Violation, cells_payload

pytestmark = pytest.mark.anyio

KEY: Final = seed("network key")
BOTH_KEX: Final = ("x25519-mlkem768", "x25519")
STRANGER: Final = SigningKey("ed25519", seed("stranger"))


# Changes of an event.


def cells_of(event: bytes) -> dict[int, Any]:
    """All cells of a raw event, noise included."""
    return cbor.decode_payload(event[8:], keep_noise=True)


def having(also: Mapping[int, Any] | None = None, /, **cells: Any) -> Change:
    """Other values for some cells; None takes a cell away. A network mac is made anew."""
    changed = {CELLS[name]: value for name, value in cells.items()} | dict(also or {})

    def change(event: bytes) -> bytes:
        new = cells_of(event) | changed
        new = {key: value for key, value in new.items() if value is not None}
        if CELLS["mac"] in new and "mac" not in cells:
            new[CELLS["mac"]] = network_mac(KEY, new)
        return event[:8] + cbor.encode_payload(new)

    return change


def within(name: str, **changes: Any) -> Change:
    """Other entries of the map in a cell, by number 'n1' or by text; None takes one away."""

    def change(event: bytes) -> bytes:
        inner = dict(cells_of(event)[CELLS[name]])
        for key, value in changes.items():
            place = int(key[1:]) if key[0] == "n" and key[1:].isdigit() else key
            inner[place] = value
        inner = {key: value for key, value in inner.items() if value is not None}
        return having(**{name: inner})(event)

    return change


def head(event: Event) -> Change:
    """The head of another event before the same payload."""
    return lambda data: event.raw[:8] + data[8:]


def instead(event: bytes) -> Change:
    """Another event."""
    return lambda _: event


def ending(extra: bytes) -> Change:
    """More bytes at the end."""
    return lambda event: event + extra


def flip(at: int) -> Change:
    """A change of one bit."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def inner_cells(**cells: Any) -> Change:
    """Other cells in a Proof, which is signed as it then is."""

    def change(inner: bytes) -> bytes:
        new = {**cbor.decode_payload(inner[4:]), **{CELLS[k]: v for k, v in cells.items()}}
        new = {key: value for key, value in new.items() if value is not None}
        return inner[:4] + cbor.encode_payload(new)

    return change


HELLO: Final = TYPES["Hello"]
EVENTS_BEFORE_THE_PROOFS: Final[dict[str, Change]] = {
    "on stream 1": head(Event(1, 0, *HELLO)),
    "with an async id": head(Event(0, 1, *HELLO)),
    "of category 2": head(Event(0, 0, 2, 1)),
    "of category 3": head(Event(0, 0, 3, 1)),
    "of category 0": head(Event(0, 0, 0, 1)),
    "of subcategory 0": head(Event(0, 0, 1, 0)),
    "Proof": head(Event(0, 0, *TYPES["Proof"])),
    "Ping": head(Event(0, 0, *TYPES["Ping"])),
    "Close": instead(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
    "1/13": head(Event(0, 0, 1, 13)),
    "1/255": head(Event(0, 0, 1, 255)),
    "without payload": instead(Event(0, 0, *HELLO).raw),
    "an empty event": instead(b""),
    "eight bytes": instead(bytes(8)),
    "zeros": instead(bytes(100)),
    "no LBM": instead(Event(0, 0, *HELLO, b"junk").raw),
    "bytes behind it": ending(b"\0"),
    "cut short": lambda event: event[:-1],
    "noise that is a text": having(noise="x"),
    "more than 256 items": having(node={f"{n:03}": None for n in range(260)}),
}

COMMON_FAULTS: Final[dict[str, Change]] = {
    "no version": having(version=None),
    "a version in text": having(version="1"),
    "no random": having(random=None),
    "random of 31 bytes": having(random=bytes(31)),
    "random of 33 bytes": having(random=bytes(33)),
    "no role": having(role=None),
    "an unknown role": having(role="guest"),
    "a role in bytes": having(role=b"peer"),
    "plaintext with an offer": having(plaintext=True),
    "plaintext as a number": having(plaintext=1),
    **{
        f"{name} below its least": having(**{name: smallest - 1})
        for name, (_, smallest, _) in LIMITS.items()
        if smallest
    },
    **{f"{name} in text": having(**{name: "64"}) for name in LIMITS},
    **{f"{name} negative": having(**{name: -1}) for name in LIMITS},
    **{f"{name} as a float": having(**{name: 64.0}) for name in LIMITS},
    "shares in an array": having(shares=[]),
    "a share in text": within("shares", x25519="x" * 32),
    "a short share": within("shares", x25519=bytes(31)),
    "a long share": within("shares", x25519=bytes(33)),
    "an empty share": within("shares", x25519=b""),
    "a zero share": within("shares", x25519=bytes(32)),
    "shares with numbers": having(shares={1: bytes(32)}),
}

HELLO_FAULTS: Final[dict[str, tuple[Change, str]]] = {
    **{name: (change, "protocol-error") for name, change in EVENTS_BEFORE_THE_PROOFS.items()},
    **{name: (change, "protocol-error") for name, change in COMMON_FAULTS.items()},
    "Reply": (head(Event(0, 0, *TYPES["Reply"])), "protocol-error"),
    "Retry": (head(Event(0, 0, *TYPES["Retry"])), "protocol-error"),
    "Reject": (instead(reject_event("protocol-error", "x")), "protocol-error"),
    "no offer": (having(offer=None), "protocol-error"),
    "an offer in an array": (having(offer=[]), "protocol-error"),
    "a name for an array": (within("offer", n1="x25519"), "protocol-error"),
    "a number for a name": (within("offer", n3=["sha256", 1]), "protocol-error"),
    "version 0": (having(version=0), "unsupported-version"),
    "version 2": (having(version=2), "unsupported-version"),
    "version 2 and all else unknown": (
        having(version=2, role=None, offer=None, random=None),
        "unsupported-version",
    ),
    **{
        f"nothing known for {parameter}": (
            within("offer", **{f"n{number}": ["rot13"]}),
            "no-common-algorithm",
        )
        for number, parameter in enumerate(("kex", "signing", "hash", "cipher", "sealing"), 1)
    },
    "an empty offer of ciphers": (within("offer", n4=[]), "no-common-algorithm"),
}


def rejected(peer: ReferencePeer) -> str:
    """The code that our node rejects a handshake with; nothing follows."""
    with pytest.raises(Violation, match="rejected") as violation:
        peer.handshake()
    reject = peer.channel.received[-1]
    kind, cells = handshake_cells(reject)
    assert kind == TYPES["Reject"]
    assert set(cells) == {CELLS["code"], CELLS["text"]}
    assert silence(peer)
    return violation.value.code


def lost(peer: ReferencePeer) -> list[bytes]:
    """What our node had sent before it ended the transport without a word."""
    with pytest.raises(ConnectionLost):
        peer.handshake()
    return peer.channel.received


@pytest.mark.parametrize("name", HELLO_FAULTS)
async def test_a_wrong_hello_is_rejected(name: str) -> None:
    change, code = HELLO_FAULTS[name]
    async with with_bystander() as ours:
        assert await ours.meet(rejected, wrong=Misbehaviour({"Hello": change})) == code
        assert await ours.ended() == code


@pytest.mark.parametrize("name", HELLO_FAULTS)
async def test_a_wrong_hello_to_a_network_meets_silence(name: str) -> None:
    """Also where cell 12 would be right, had only the rest been; and it is not made anew."""
    change = HELLO_FAULTS[name][0]

    def broken(event: bytes) -> bytes:
        mac = cells_of(event)[CELLS["mac"]]
        changed = change(event)
        try:
            return having(mac=mac)(changed)
        except cbor.LbmError:
            return changed

    async with with_bystander(our_config(network_key=KEY)) as ours:
        theirs = their_config(network_key=KEY)
        assert await ours.meet(lost, config=theirs, wrong=Misbehaviour({"Hello": broken})) == []
        assert ours.called == []


async def test_with_the_right_mac_even_a_network_speaks() -> None:
    async with with_bystander(our_config(network_key=KEY)) as ours:
        wrong = Misbehaviour({"Hello": having(version=2)})
        theirs = their_config(network_key=KEY)
        assert await ours.meet(rejected, config=theirs, wrong=wrong) == "unsupported-version"


@pytest.mark.parametrize(
    "share",
    [
        bytes([255]) * 1_184 + bytes([9]) * 32,  # coefficients above the modulus
        bytes(1_216),  # X25519 gives zero
        bytes(1_184),
        bytes([9]) * 32,
        b"",
    ],
    ids=len,
)
async def test_a_wrong_share_of_the_hybrid_kex_is_rejected(share: bytes) -> None:
    wrong = Misbehaviour({"Hello": within("shares", **{BOTH_KEX[0]: share})})
    async with with_bystander(our_config(algorithms={"kex": BOTH_KEX})) as ours:
        theirs = their_config(kex=BOTH_KEX)
        assert await ours.meet(rejected, config=theirs, wrong=wrong) == "protocol-error"


@pytest.mark.parametrize(
    "share", [bytes(1_120), bytes(1_119), bytes(1_088), bytes(32), b""], ids=len
)
async def test_a_wrong_answer_of_the_hybrid_kex_is_met_with_silence(share: bytes) -> None:
    wrong = Misbehaviour({"Reply": within("shares", **{BOTH_KEX[0]: share})})
    async with with_bystander(our_config(algorithms={"kex": BOTH_KEX})) as ours:
        code, received = await refused(ours, wrong, their_config(kex=BOTH_KEX))
        assert code == CloseCode.PROTOCOL_ERROR
        assert len(received) == 1


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "frame-too-large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "frame-too-large"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "frame-too-large"),
        (b"\xff" * 100, "frame-too-large"),
        ((16_385).to_bytes(4), "frame-too-large"),
        (bytes(4), "protocol-error"),
        (bytes(100), "protocol-error"),
    ],
)
async def test_who_speaks_another_protocol(sent: bytes, code: str) -> None:
    def act(peer: ReferencePeer) -> str:
        peer.send_raw(sent)
        kind, cells = handshake_cells(peer.channel.receive_frame())
        assert kind == TYPES["Reject"]
        assert silence(peer)
        return next(name for name, number in CODES.items() if number == cells[CELLS["code"]])

    async with with_bystander() as ours:
        assert await ours.meet(act) == code

    def silent(peer: ReferencePeer) -> bool:
        peer.send_raw(sent)
        return silence(peer)

    async with with_bystander(our_config(network_key=KEY)) as ours:
        assert await ours.meet(silent)


# What is not wrong.


def talk(peer: ReferencePeer) -> ReferencePeer:
    """Handshake, one call, Close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", "hi")[CELLS["data"]] == "hi"
    acts.close(peer)
    return peer


def filled(event: bytes) -> bytes:
    """Noise up to 16,384 bytes."""
    room = 16_384 - len(having(noise=bytes(1_000))(event)) + 1_000
    event = having(noise=bytes(room))(event)
    assert len(event) == 16_384
    return event


HELLO_VARIANTS: Final[dict[str, Change]] = {
    "noise": having(noise=bytes(100)),
    "16,384 bytes": filled,
    "unknown cells": having(label="any", topic="t"),
    "an application's cells": having({300: [1, {"a": None}], 2**64 - 1: b"x"}),
    "no limits at all": having(**dict.fromkeys(LIMITS)),
    "limits beyond the greatest": having(**dict.fromkeys(LIMITS, 2**64 - 1)),
    "unknown names offered": within(
        "offer",
        n1=["kyber9", "x25519"],
        n2=["ed448", "ed25519"],
        n3=["md5", "sha256"],
        n4=["rc4", "aes-256-gcm"],
        n5=["none", "chain"],
    ),
    "a name twice": within("offer", n1=["x25519", "x25519"]),
    "a sixth parameter": within("offer", n6=["x"]),
    "a share of an unknown kex": within("shares", kyber9=b"x"),
    "plaintext: false": having(plaintext=False),
}


@pytest.mark.parametrize("name", HELLO_VARIANTS)
@pytest.mark.parametrize("network_key", [None, KEY], ids=["open", "network"])
async def test_hellos_that_our_node_takes(name: str, network_key: bytes | None) -> None:
    async with our_node(our_config(network_key=network_key)) as ours:
        wrong = Misbehaviour({"Hello": HELLO_VARIANTS[name]})
        await ours.meet(talk, config=their_config(network_key=network_key), wrong=wrong)


@pytest.mark.parametrize("network_key", [None, KEY], ids=["open", "network"])
@pytest.mark.parametrize("change", [having(noise=b"x" * 50), having(noise=None)])
async def test_only_noise_shares_and_mac_may_differ_in_a_second_hello(
    network_key: bytes | None, change: Change
) -> None:
    wrong = Misbehaviour({"Hello": having(noise=b"first"), "second Hello": change})
    async with our_node(our_config(network_key=network_key)) as ours:
        theirs = their_config(kex=BOTH_KEX, network_key=network_key)
        await ours.meet(talk, config=theirs, wrong=wrong)


SECOND_HELLOS: Final[dict[str, Change]] = {
    **{
        name: change
        for name, change in EVENTS_BEFORE_THE_PROOFS.items()
        if name != "more than 256 items"
    },
    **COMMON_FAULTS,
    "another random": having(random=bytes(32)),
    "another role": having(role="client"),
    "another limit": having(max_streams=7),
    "a limit less": having(max_streams=None),
    "another offer": within("offer", n1=["x25519"]),
    "the offer in another order": within("offer", n1=["x25519", "x25519-mlkem768"]),
    "a cell more": having(label="x"),
    "version 2": having(version=2),
    "no share": having(shares={}),
    "shares gone": having(shares=None),
    "a share more": within("shares", **{"x25519-mlkem768": bytes(1216)}),
    "another share": having(shares={"x25519-mlkem768": bytes(1216)}),
    "plaintext": having(plaintext=True, offer=None, shares=None),
}


@pytest.mark.parametrize("name", SECOND_HELLOS)
async def test_a_wrong_second_hello_is_rejected(name: str) -> None:
    wrong = Misbehaviour({"second Hello": SECOND_HELLOS[name]})
    async with with_bystander() as ours:
        got = await ours.meet(rejected, config=their_config(kex=BOTH_KEX), wrong=wrong)
        assert got == "protocol-error"
        assert await ours.ended() == "protocol-error"


async def test_the_second_hello_needs_its_own_mac() -> None:
    def old(event: bytes) -> bytes:
        return having(mac=bytes(32))(event)

    async with with_bystander(our_config(network_key=KEY)) as ours:
        theirs = their_config(kex=BOTH_KEX, network_key=KEY)
        wrong = Misbehaviour({"second Hello": old})
        (retry,) = await ours.meet(lost, config=theirs, wrong=wrong)
        assert retry[6:8] == bytes(TYPES["Retry"])


# To our initiator.


async def refused(
    ours: Ours, wrong: Misbehaviour, config: Config | None = None
) -> tuple[int, list[bytes]]:
    """The code our `connect` raises, and what our node sent."""
    received = await ours.meet(lost, "responder", config=config, wrong=wrong, trust=AnyPeer())
    assert isinstance(ours.refusal, HandshakeError)
    return ours.refusal.code, received


REPLY_FAULTS: Final[dict[str, Change]] = {
    **EVENTS_BEFORE_THE_PROOFS,
    **COMMON_FAULTS,
    "version 2": having(version=2),
    "Hello": head(Event(0, 0, *HELLO)),
    "no suite": having(suite=None),
    "a suite in an array": having(suite=[]),
    **{
        f"{parameter} unnamed": within("suite", **{f"n{number}": None})
        for number, parameter in enumerate(("kex", "signing", "hash", "cipher", "sealing"), 1)
    },
    **{
        f"an unknown {parameter}": within("suite", **{f"n{number}": "rot13"})
        for number, parameter in enumerate(("kex", "signing", "hash", "cipher", "sealing"), 1)
    },
    "a kex not offered": within("suite", n1="x25519-mlkem768"),
    "a signing not offered": within("suite", n2="ml-dsa-65"),
    "a hash not offered": within("suite", n3="sha512"),
    "a cipher not offered": within("suite", n4="xchacha20-poly1305"),
    "a sealing not offered": within("suite", n5="each"),
    "a number for a name": within("suite", n1=1),
    "no shares": having(shares=None),
    "an empty map of shares": having(shares={}),
    "a share more": within("shares", **{"x25519-mlkem768": bytes(1120)}),
    "a share of another kex": having(shares={"x25519-mlkem768": bytes(1120)}),
    "plaintext": having(plaintext=True, suite=None, shares=None),
    "Retry of what was shared": instead(retry_event("x25519")),
    "Retry of what was not offered": instead(retry_event("x25519-mlkem768")),
    "Retry of the unknown": instead(retry_event("rot13")),
    "Retry without a name": instead(Event(0, 0, *TYPES["Retry"], cells_payload(suite={})).raw),
    "Retry of more": instead(
        Event(0, 0, *TYPES["Retry"], cells_payload(suite={1: "x25519", 3: "sha256"})).raw
    ),
    "Retry without cells": instead(Event(0, 0, *TYPES["Retry"], b"\xa0").raw),
    "Reject without code": instead(Event(0, 0, *TYPES["Reject"], cells_payload(text="x")).raw),
    "Reject with a text for a code": instead(
        Event(0, 0, *TYPES["Reject"], cells_payload(code="2")).raw
    ),
    "Reject that is no LBM": instead(Event(0, 0, *TYPES["Reject"], b"junk").raw),
}
ONE_OF_EACH: Final = {
    "kex": ("x25519",),
    "signing": ("ed25519",),
    "hash": ("sha256",),
    "cipher": ("aes-256-gcm",),
    "sealing": ("chain",),
}


@pytest.mark.parametrize("name", REPLY_FAULTS)
async def test_a_wrong_reply_is_met_with_silence(name: str) -> None:
    async with with_bystander(our_config(algorithms=ONE_OF_EACH)) as ours:
        code, received = await refused(ours, Misbehaviour({"Reply": REPLY_FAULTS[name]}))
        wanted = (CloseCode.PROTOCOL_ERROR, CloseCode.UNSUPPORTED_VERSION)
        assert code == wanted[name == "version 2"]
        assert len(received) == 1


@pytest.mark.parametrize("number", [1, 2, 5, 6, 7, 8, 9, 12, 13, 64, 2**32 - 1])
async def test_a_reject_tells_the_caller_its_code(number: int) -> None:
    reject = Event(0, 0, *TYPES["Reject"], cells_payload(code=number, text="so it is")).raw
    async with with_bystander() as ours:
        code, received = await refused(ours, Misbehaviour({"Reply": instead(reject)}))
        assert code == number
        assert "so it is" in str(ours.refusal) or isinstance(ours.refusal, NotTrustedError)
        assert len(received) == 1


@pytest.mark.parametrize("again", BOTH_KEX)
async def test_a_second_retry_is_met_with_silence(again: str) -> None:
    wrong = Misbehaviour({"Reply": instead(retry_event(again))})
    async with with_bystander(our_config(algorithms={"kex": BOTH_KEX})) as ours:
        code, received = await refused(ours, wrong, their_config())
        assert code == CloseCode.PROTOCOL_ERROR
        assert len(received) == 2


async def test_a_plaintext_dialler_takes_no_encrypted_reply_and_no_retry() -> None:
    plain = their_config(encrypted=False, plaintext=True)
    for change in (
        having(plaintext=None),
        having(plaintext=False),
        having(suite={1: "x25519"}),
        having(shares={"x25519": bytes(32)}),
        instead(retry_event("x25519")),
    ):
        async with our_node(our_config(plaintext="only")) as ours:
            code, received = await refused_in_plaintext(ours, change, plain)
            assert code == CloseCode.PROTOCOL_ERROR
            assert received == 1


async def refused_in_plaintext(ours: Ours, change: Change, config: Config) -> tuple[int, int]:
    """The code our `connect` raises, and how many events our node sent."""

    def act(peer: ReferencePeer) -> int:
        peer.handshake()  # the reference is content with a plaintext Hello
        assert silence(peer)
        return len(peer.channel.received)

    received = await ours.meet(
        act, "responder", config=config, wrong=Misbehaviour({"Reply": change})
    )
    assert isinstance(ours.refusal, HandshakeError)
    return ours.refusal.code, received


async def test_a_frame_that_is_too_long_before_the_proofs() -> None:
    def act(peer: ReferencePeer) -> bool:
        peer.channel.receive_frame()
        peer.send_raw((16_385).to_bytes(4))
        return silence(peer)

    async with with_bystander() as ours:
        assert await ours.meet(act, "responder")
        assert isinstance(ours.refusal, HandshakeError)
        assert ours.refusal.code == CloseCode.FRAME_TOO_LARGE


# Proofs.


def entry(algorithm: str, public: bytes, binding: bytes | None = None) -> list[Any]:
    """A further key, bound as it should be unless a binding is given."""
    theirs = their_identity()
    message = binding_message(theirs.id, algorithm, public)
    return [algorithm, public, theirs.keys[0].sign(message) if binding is None else binding]


def proof_keys(*further: list[Any]) -> Change:
    """A Proof with these further keys."""
    return inner_cells(keys=[*their_identity().cell(), *further])


OWN: Final = their_identity().cell()[0]
# Those that decrypt as a Proof: our responder answers them with Close.
REFUSED_PROOFS: Final[dict[str, Misbehaviour]] = {
    "signed by a stranger": Misbehaviour(proof_signer=STRANGER),
    "unsealed": Misbehaviour(proof_form=False),
    "a changed seal": Misbehaviour({"Proof": flip(30)}),
    "the end of the seal changed": Misbehaviour({"Proof": flip(84)}),
    **{
        name: Misbehaviour({"Proof inner": change})
        for name, change in {
            "no cells": lambda inner: inner[:4] + b"\xa0",
            "no payload": lambda inner: inner[:4] + b"\0",
            "no LBM": lambda inner: inner[:4] + b"junk",
            "bytes behind it": ending(b"\0"),
            "no keys": inner_cells(keys=None),
            "an empty array of keys": inner_cells(keys=[]),
            "keys in a map": inner_cells(keys={}),
            "a key that is no array": inner_cells(keys=["ed25519"]),
            "a key of two parts": inner_cells(keys=[OWN[:2]]),
            "a key of four parts": inner_cells(keys=[[*OWN, None]]),
            "a key in text": inner_cells(keys=[["ed25519", "x" * 32, None]]),
            "an algorithm in bytes": inner_cells(keys=[[b"ed25519", OWN[1], None]]),
            "a primary with a binding": inner_cells(keys=[[*OWN[:2], bytes(64)]]),
            "a primary of an unknown kind": inner_cells(keys=[["ed448", bytes(57), None], OWN]),
            "a short key": inner_cells(keys=[["ed25519", OWN[1][:-1], None]]),
            "a small-order key": inner_cells(keys=[["ed25519", bytes(32), None]]),
            "a stranger's key": inner_cells(keys=[["ed25519", STRANGER.public, None]]),
            "no key of the signing algorithm": inner_cells(
                keys=[["ecdsa-p256", SigningKey("ecdsa-p256", seed("x")).public, None]]
            ),
            "two keys of one kind": proof_keys(entry("ed25519", STRANGER.public)),
            "a key without binding": proof_keys(["x", b"x", None]),
            "a wrong binding": proof_keys(entry("x", b"x", bytes(64))),
            "a binding of another key": proof_keys(["x", b"x", entry("x", b"y")[2]]),
            "a further key off its curve": proof_keys(entry("ecdsa-p256", b"\4" + bytes(64))),
            "nine keys": proof_keys(*(entry(f"x{n}", b"x") for n in range(8))),
            "information in an array": inner_cells(node=[]),
            "information with numbers": inner_cells(node={1: "x"}),
            "information of 1,025 bytes": inner_cells(node={"name": "x" * 1_016}),
        }.items()
    },
}  # fmt: skip
# Those that do not: silence.
UNREADABLE_PROOFS: Final[dict[str, Misbehaviour]] = {
    **{
        name: Misbehaviour({"Proof": change})
        for name, change in {
            "a changed tag": flip(-1),
            "a changed chain value": flip(5),
            "another form": flip(4),
            "form 2": lambda event: event[:4] + b"\2" + event[5:],
            "on stream 1": flip(3),
            "cut short": lambda event: event[:-1],
            "an empty event": instead(b""),
            "zeros": instead(bytes(300)),
            "a raw event": instead(Event(0, 0, *TYPES["Proof"], b"\xa0").raw),
            "a raw Reject": instead(reject_event("protocol-error", "x")),
            "a raw Close": instead(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
            "16,385 bytes": instead(bytes(16_385)),
        }.items()
    },
    **{
        name: Misbehaviour({"Proof inner": instead(inner)})
        for name, inner in {
            "Seal": b"\0\0\1\x08\0",
            "Ping": b"\0\0\1\6\0",
            "Close": b"\0\0\1\x0c" + cells_payload(code=0),
            "Hello": b"\0\0\1\1\xa0",
            "Call": b"\0\0\3\1" + cells_payload(topic="parley.echo"),
        }.items()
    },
    "an async id": Misbehaviour({"Proof inner": lambda inner: b"\0\1" + inner[2:]}),
}
ACCEPTED_PROOFS: Final[dict[str, Change]] = {
    "noise": inner_cells(noise=bytes(500)),
    "unknown cells": inner_cells(label="x"),
    "information of 1,024 bytes": inner_cells(node={"name": "x" * 1_015}),
    "a key of an unknown kind": proof_keys(entry("ed448", b"any")),
    "eight keys": proof_keys(*(entry(f"x{n}", b"x") for n in range(7))),
    "a further key": proof_keys(entry("ecdsa-p256", SigningKey("ecdsa-p256", seed("x")).public)),
}


def say_more(peer: ReferencePeer) -> None:
    """A call right after the Proof, which must not be heard."""
    try:
        peer.send("Call", 1, 1, topic="parley.echo", data="too early")
    except ConnectionLost:
        return  # our node was faster


@pytest.mark.parametrize("name", REFUSED_PROOFS)
async def test_a_proof_that_our_responder_refuses(name: str) -> None:
    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        say_more(peer)
        return acts.closed_with(peer)

    async with with_bystander() as ours:
        assert await ours.meet(act, wrong=REFUSED_PROOFS[name]) == "authentication-failed"
        assert await ours.ended() == "authentication-failed"
        assert ours.called == []


@pytest.mark.parametrize("name", UNREADABLE_PROOFS)
async def test_a_proof_that_our_responder_cannot_read(name: str) -> None:
    def act(peer: ReferencePeer) -> bool:
        peer.handshake()
        say_more(peer)
        return silence(peer)

    async with with_bystander() as ours:
        assert await ours.meet(act, wrong=UNREADABLE_PROOFS[name])
        assert await ours.ended() in ("bad-record", "frame-too-large", "authentication-failed")
        assert ours.called == []


@pytest.mark.parametrize("name", [*REFUSED_PROOFS, *UNREADABLE_PROOFS])
async def test_any_wrong_proof_is_met_with_silence_by_our_initiator(name: str) -> None:
    wrong = {**REFUSED_PROOFS, **UNREADABLE_PROOFS}[name]
    async with with_bystander() as ours:
        code, received = await refused(ours, wrong)
        assert len(received) == 1  # Hello, and no word more
        if name in REFUSED_PROOFS:
            assert isinstance(ours.refusal, NotTrustedError)
            assert code == CloseCode.AUTHENTICATION_FAILED
        else:
            codes = ("bad-record", "frame-too-large", "authentication-failed")
            assert code in {CODES[name] for name in codes}


@pytest.mark.parametrize("name", ACCEPTED_PROOFS)
@pytest.mark.parametrize("side", ["initiator", "responder"])
async def test_proofs_that_our_node_takes(side: Any, name: str) -> None:
    async with our_node() as ours:
        wrong = Misbehaviour({"Proof inner": ACCEPTED_PROOFS[name]})
        await ours.meet(talk, side, wrong=wrong)


# Pieces, deadlines, bounds.


@pytest.mark.parametrize("side", ["initiator", "responder"])
async def test_a_handshake_that_comes_byte_by_byte(side: Any) -> None:
    def act(peer: ReferencePeer) -> None:
        whole = peer.channel.send_raw

        def slowly(data: bytes) -> None:
            for at in range(len(data)):
                whole(data[at : at + 1])

        with patch.object(peer.channel, "send_raw", slowly):
            talk(peer)

    async with our_node() as ours:
        await ours.meet(act, side)


async def test_hello_twice_in_one_piece() -> None:
    def act(peer: ReferencePeer) -> None:
        whole = peer.channel.send_raw
        with patch.object(peer.channel, "send_raw", lambda data: whole(data + data)):
            lost(peer)

    async with with_bystander() as ours:
        await ours.meet(act)
        assert await ours.ended() == "bad-record"


async def test_nothing_is_answered_to_who_says_nothing() -> None:
    async with with_bystander(our_config(handshake_timeout=0.2)) as ours:
        assert await ours.meet(silence)
        assert await ours.ended() == "timeout"


async def test_a_proof_that_never_comes() -> None:
    def act(peer: ReferencePeer) -> tuple[int, bool]:
        frames = iter([peer.channel.send_frame])

        def only_hello(event: bytes) -> None:
            for send in frames:
                send(event)

        with patch.object(peer.channel, "send_frame", only_hello):
            peer.handshake()
        return len(peer.channel.received), silence(peer)

    async with with_bystander(our_config(handshake_timeout=0.3)) as ours:
        assert await ours.meet(act) == (2, True)
        assert await ours.ended() == "timeout"


async def test_our_dial_has_a_deadline() -> None:
    async with our_node() as ours:
        with listening("tcp", ours.directory) as (_, place):
            began = time.perf_counter()
            with pytest.raises(HandshakeError) as error:
                await ours.node.connect(place, trust=AnyPeer(), timeout=0.2)
            assert error.value.code == CloseCode.TIMEOUT
            assert 0.1 < time.perf_counter() - began < 2


async def test_half_open_connections_are_bounded_and_the_oldest_goes() -> None:
    async with with_bystander(our_config(half_open=2)) as ours:
        address = await ours.listen()
        sockets = []
        try:
            for _ in range(3):
                sockets.append(await to_thread.run_sync(dial, address))
                await anyio.sleep(0.02)
            with anyio.fail_after(PATIENCE):
                assert await to_thread.run_sync(lambda: sockets[0].recv(1)) == b""
            for sock in sockets[1:]:
                sock.setblocking(False)
                with pytest.raises(BlockingIOError):
                    sock.recv(1)
            await ours.meet(talk)
        finally:
            for sock in sockets:
                sock.close()
