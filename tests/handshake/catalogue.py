"""The catalogue of handshake faults (docs/protocol.md section 5).

Each fault names the changed event, the change, and the required reaction: the close code and the
answer on the wire. `test_core.py` tests them on the core in memory, `test_node.py` on a node over
TCP. `VARIANTS` and `PROOF_VARIANTS` are unusual but valid, so our side must accept them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.crypto.test_key_exchange import SMALL_ORDER
from tests.handshake.changes import (
    NETWORK_KEY,
    ending,
    flip,
    having,
    head,
    inner_cells,
    instead,
    keeping_mac,
    payload,
    within,
    without,
    zeros,
)
from tests.interop.meeting import our_identity, their_identity
from tests.reference.establish import HONEST, Change, Misbehaviour
from tests.reference.handshake import LIMITS, reject_event, retry_event
from tests.reference.identity import Identity, binding_message
from tests.reference.primitives import SIGNATURE_SIZES, SIGNING_NAMES, SigningKey
from tests.reference.recorded import seed
from tests.reference.resume import resume_event
from tests.reference.sealing import Suite
from tests.reference.wire import TYPES, Event, cells_payload

Answer = Literal["Reject", "Close", ""]

BOTH_KEX: Final = ("x25519-mlkem768", "x25519")
PARAMETERS: Final = ("kex", "signing", "hash", "cipher", "sealing")
# The first names are those that both sides prefer.
SUITE: Final = Suite(kex="x25519", signing="ed25519")
ALL: Final[Mapping[str, tuple[str, ...]]] = {
    "kex": BOTH_KEX,
    "hash": ("sha256", "sha512"),
    "cipher": ("aes-256-gcm", "xchacha20-poly1305"),
    "sealing": ("chain", "each"),
}


@dataclass(frozen=True)
class Setting:
    """Settings that differ from one suite, `SUITE`, on both sides.

    `ours` are fields of `CoreConfig` and `NodeConfig`, `theirs` of the reference's `Config`.
    """

    ours: Mapping[str, Any] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)


USUAL: Final = Setting()
# The responder requests another share. The second setting is for Replies after a Retry.
RETRY: Final = Setting(theirs={"kex": BOTH_KEX})
RETRIED: Final = Setting({"algorithms": {"kex": BOTH_KEX}}, {"kex": ("x25519",)})
HYBRID: Final = Setting({"algorithms": {"kex": BOTH_KEX}}, {"kex": BOTH_KEX})
NETWORK: Final = Setting({"network_key": NETWORK_KEY}, {"network_key": NETWORK_KEY})
RETRY_IN_NETWORK: Final = Setting(
    {"network_key": NETWORK_KEY}, {"network_key": NETWORK_KEY, "kex": BOTH_KEX}
)
PLAINTEXT: Final = Setting({"plaintext": "only"}, {"encrypted": False, "plaintext": True})


@dataclass(frozen=True)
class Fault:
    """One fault of the other side, and the required reaction.

    `code` is the name of the close code, `names` the text after the fixed sentence of a Reject,
    `heard` how many events our side sends before its answer.
    """

    name: str
    event: Literal["Hello", "second Hello", "Reply", "Proof"]
    wrong: Misbehaviour
    code: str = "protocol-error"
    answer: Answer = ""
    setting: Setting = USUAL
    names: str = ""
    heard: int = 0

    @property
    def rules(self) -> str:
        """The rules of docs/protocol.md that this fault breaks, or that a variant follows."""
        return next(
            rules
            for event, code, name, rules in RULES
            if self.event == event and self.code == code and re.match(name, self.name)
        )

    @property
    def title(self) -> str:
        return f"{self.rules} {self.name}"


# Raw events instead of a Hello or a Reply.

PLACES: Final[dict[str, Change]] = {
    "on stream 1": lambda data: head(1, 0, 1, data[7])(data),
    "on stream 3": lambda data: head(3, 0, 1, data[7])(data),
    "with async id 1": lambda data: head(0, 1, 1, data[7])(data),
    "of category 0": lambda data: head(0, 0, 0, data[7])(data),
    "of category 2": lambda data: head(0, 0, 2, data[7])(data),
    "of category 3": lambda data: head(0, 0, 3, data[7])(data),
    "of category 64": lambda data: head(0, 0, 64, data[7])(data),
    **{f"type 1/{number}": head(0, 0, 1, number) for number in (0, 3, *range(6, 14), 255)},
    "a Close": instead(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
    "no bytes": instead(b""),
    "1 byte": instead(bytes(1)),
    "8 bytes": instead(bytes(8)),
    "100 zeros": instead(bytes(100)),
}
PAYLOADS: Final[dict[str, Change]] = {
    "no payload": payload(b""),
    "payload: the byte 0": payload(b"\0"),
    "payload: not LBM": payload(b"junk"),
    "payload: an array": payload(b"\x80"),
    "payload: a map cut short": payload(b"\xa1\x01"),
    "payload: cut by a byte": lambda event: event[:-1],
    "payload: a byte more": ending(b"\0"),
    "payload: a cell twice": payload(b"\xa2\x01\x01\x01\x01"),
    "payload: cells out of order": payload(b"\xa2\x02\x01\x01\x01"),
    "payload: a number in a longer form": payload(b"\xa1\x01\x18\x01"),
    "payload: noise that is text": having(noise="x"),
    "payload: more than 256 items": having({300: [0] * 300}),
    "payload: 17 levels": having({300: [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}),
}
CELLS_OF_BOTH: Final[dict[str, Change]] = {
    "no version": having(version=None),
    "version: text": having(version="1"),
    "version: a boolean": having(version=True),
    "version: negative": having(version=-1),
    "version: a float": having(version=1.0),
    "no random": having(random=None),
    "random: 31 bytes": having(random=bytes(31)),
    "random: 33 bytes": having(random=bytes(33)),
    "random: text": having(random="x" * 32),
    "no role": having(role=None),
    "role: unknown": having(role="guest"),
    "role: bytes": having(role=b"peer"),
    "plaintext: a number": having(plaintext=1),
    "plaintext and algorithms": having(plaintext=True),
    "plaintext and shares": having(plaintext=True, offer=None, suite=None),
    **{
        f"{name} below its range": having(**{name: least - 1})
        for name, (_, least, _) in LIMITS.items()
        if least
    },
    **{f"{name}: text": having(**{name: "64"}) for name in LIMITS},
    **{f"{name}: negative": having(**{name: -1}) for name in LIMITS},
    **{f"{name}: a float": having(**{name: 64.0}) for name in LIMITS},
    "resume_ms: negative": having(resume_ms=-1),
    "resume_ms: text": having(resume_ms="1"),
    "shares: an array": having(shares=[]),
    "shares: numbers": having(shares={1: bytes(32)}),
    "share: text": within("shares", x25519="x" * 32),
    "share: no bytes": within("shares", x25519=b""),
    "share: 31 bytes": within("shares", x25519=bytes(31)),
    "share: 33 bytes": within("shares", x25519=bytes([9]) * 33),
    "share: one more, of text": within("shares", kyber9="x"),
    **{
        f"share of small order {number}": within("shares", x25519=point)
        for number, point in enumerate(SMALL_ORDER)
    },
}

# A Hello to our responder.

HELLO_CELLS: Final[dict[str, Change]] = {
    "no offer": having(offer=None),
    "plaintext and offer": having(plaintext=True, shares=None),
    "offer: an array": having(offer=[]),
    "offer: keys that are text": having(offer={"kex": ["x25519"]}),
    "offer: a name for an array": within("offer", n1="x25519"),
    "offer: a number for a name": within("offer", n3=["sha256", 1]),
    **{
        f"offer: no {parameter}": within("offer", **{f"n{number}": None})
        for number, parameter in enumerate(PARAMETERS, 1)
    },
}


def hello_faults() -> list[Fault]:
    """Return first Hellos that our responder answers with Reject."""
    changes = {
        **PLACES,
        **PAYLOADS,
        **CELLS_OF_BOTH,
        **HELLO_CELLS,
        "a Reply": head(0, 0, *TYPES["Reply"]),
        "a Retry": head(0, 0, *TYPES["Retry"]),
        "a Reject": instead(reject_event("protocol-error", "x")),
        "a Resume that is malformed": instead(Event(0, 0, *TYPES["Resume"], b"\xa0").raw),
    }
    faults = [_hello(name, change) for name, change in changes.items()]
    for version in (0, 2, 2**64 - 1):
        for what, others in (
            ("", {}),
            (" and no other cells", {"role": None, "offer": None, "random": None}),
            (" and a limit below its range", {"max_payload": 1}),
        ):
            change = having(version=version, **others)
            name = f"version {version}{what}"
            faults.append(_hello(name, change, code="unsupported-version", names=": 1"))
    for number, parameter in enumerate(PARAMETERS, 1):
        faults += [
            _hello(
                f"no common algorithm for {parameter}: {known}",
                within("offer", **{f"n{number}": known}),
                code="no-common-algorithm",
                names=f": {parameter}",
            )
            for known in ([], ["rot13"])
        ]
    for parameter, names in ALL.items():
        below = Setting(
            {"algorithms": ALL, "require": {parameter: frozenset(names[:1])}},
            {**ALL, parameter: names[1:]},
        )
        faults.append(
            _hello(
                f"{parameter} below what we require",
                None,
                code="no-common-algorithm",
                names=f": {parameter}",
                setting=below,
            )
        )
    for what, share in {
        "a coefficient above the modulus": b"\xff" * 1_184 + bytes([9]) * 32,
        "X25519 of small order": bytes(1_216),
        "ML-KEM alone": bytes(1_184),
        "X25519 alone": bytes([9]) * 32,
        "a byte less": bytes(1_215),
        "a byte more": bytes(1_217),
        "no bytes": b"",
    }.items():
        change = within("shares", **{BOTH_KEX[0]: share})
        faults.append(_hello(f"hybrid share: {what}", change, setting=HYBRID))
    encrypted = Setting({"plaintext": "only"})
    plain = Setting(theirs=PLAINTEXT.theirs)
    return [
        *faults,
        _hello("encrypted where only plaintext is accepted", None, setting=encrypted),
        _hello("plaintext", None, code="plaintext-refused", setting=plain),
        _hello(
            "version 2 with the right network mac",
            having(version=2),
            code="unsupported-version",
            names=": 1",
            setting=NETWORK,
        ),
        _hello("role: unknown, with the right network mac", having(role="x"), setting=NETWORK),
    ]


def _hello(name: str, change: Change | None, *, names: str = "", **given: Any) -> Fault:
    wrong = HONEST if change is None else Misbehaviour({"Hello": change})
    return Fault(name, "Hello", wrong, answer="Reject", names=names, **given)


def second_hello_faults() -> list[Fault]:
    """Return second Hellos that our responder answers with Reject."""
    changes = {
        **{name: change for name, change in PLACES.items() if name != "no bytes"},
        **{name: change for name, change in PAYLOADS.items() if "items" not in name},
        **CELLS_OF_BOTH,
        "another random": having(random=bytes(32)),
        "another role": having(role="client"),
        "another limit": having(max_streams=7),
        "a limit less": having(max_streams=None),
        "another offer": within("offer", n1=["x25519"]),
        "the offer in another order": within("offer", n1=["x25519", "x25519-mlkem768"]),
        "a name more": within("offer", n3=["sha256", "md5"]),
        "a cell more": having(label="x"),
        "version 2": having(version=2),
        "no shares": having(shares={}),
        "no cell of shares": having(shares=None),
        "a share more": within("shares", **{"x25519-mlkem768": bytes(1_216)}),
        "the first share again": having(shares={"x25519-mlkem768": bytes(1_216)}),
        "plaintext": having(plaintext=True, offer=None, shares=None),
        "a Resume": instead(resume_event(bytes(16), 1, 0, bytes(32))),
    }
    return [
        Fault(name, "second Hello", Misbehaviour({"second Hello": change}), answer="Reject",
              setting=RETRY, heard=1)
        for name, change in changes.items()
    ]  # fmt: skip


def silent_faults() -> list[Fault]:
    """Return Hellos without the right network MAC, to which our responder doesn't reply."""
    kept = {
        fault.name: fault.wrong.changes["Hello"]
        for fault in hello_faults()
        if fault.setting is USUAL
    }
    changes = {
        **{f"old mac: {name}": keeping_mac(change) for name, change in kept.items()},
        "old mac: more noise": keeping_mac(having(noise=b"x")),
        "old mac: an unknown cell": keeping_mac(having({300: None, 301: 1})),
        "old mac: another role": keeping_mac(having(role="client")),
        "old mac: a malformed share": keeping_mac(within("shares", x25519=b"")),
        "old mac: another Resume": instead(resume_event(bytes(16), 1, 0, bytes(32))),
        "no mac": having(mac=None),
        "no mac and version 2": having(mac=None, version=2),
        "no mac and no common algorithm": having(mac=None, offer={1: [], 2: []}),
        "mac: zeros": having(mac=bytes(32)),
        "mac: 1 byte": having(mac=b"x"),
        "mac: text": having(mac="x" * 32),
    }
    faults = [
        Fault(name, "Hello", Misbehaviour({"Hello": change}), "any", setting=NETWORK)
        for name, change in changes.items()
    ]
    for name, theirs in (
        ("the mac of another network", {"network_key": seed("another network key")}),
        ("no network key", {}),
        ("no network key and plaintext", PLAINTEXT.theirs),
    ):
        setting = Setting(NETWORK.ours, theirs)
        faults.append(Fault(name, "Hello", HONEST, "authentication-failed", setting=setting))
    for name, change in {
        "second Hello: mac of zeros": having(mac=bytes(32)),
        "second Hello: no mac": having(mac=None),
        "second Hello: old mac": keeping_mac(having(noise=b"x")),
    }.items():
        wrong = Misbehaviour({"second Hello": change})
        faults.append(
            Fault(name, "second Hello", wrong, "authentication-failed", setting=RETRY_IN_NETWORK,
                  heard=1)
        )  # fmt: skip
    return faults


# An answer to our initiator, which stays silent when it refuses.


def reply_faults() -> list[Fault]:
    """Return Replies, Retries and Rejects that our initiator refuses."""
    numbers = list(enumerate(PARAMETERS, 1))
    others = ("x25519-mlkem768", "ml-dsa-65", "sha512", "xchacha20-poly1305", "each")
    changes = {
        **PLACES,
        **PAYLOADS,
        **CELLS_OF_BOTH,
        "a Hello": head(0, 0, *TYPES["Hello"]),
        "no suite": having(suite=None),
        "suite: an array": having(suite=[]),
        "suite: a number for a name": within("suite", n1=1),
        "suite: arrays of names": within("suite", n1=["x25519"], n2=["ed25519"]),
        **{f"suite: no {name}": within("suite", **{f"n{n}": None}) for n, name in numbers},
        **{f"suite: unknown {name}": within("suite", **{f"n{n}": "rot13"}) for n, name in numbers},
        **{
            f"suite: {name} not offered": within("suite", **{f"n{n}": other})
            for (n, name), other in zip(numbers, others, strict=True)
        },
        "suite: kex not offered, with its share": having(
            suite=dict(enumerate(("x25519-mlkem768", *SUITE_NAMES[1:]), 1)),
            shares={"x25519-mlkem768": bytes([9]) * 1_120},
        ),
        "no shares": having(shares=None),
        "shares: an empty map": having(shares={}),
        "shares: one more": within("shares", **{"x25519-mlkem768": bytes(1_120)}),
        "shares: of another kex": having(shares={"x25519-mlkem768": bytes(1_120)}),
        "plaintext": having(plaintext=True, suite=None, shares=None),
        "Retry: already shared": instead(retry_event("x25519")),
        "Retry: not offered": instead(retry_event("x25519-mlkem768")),
        "Retry: unknown": instead(retry_event("rot13")),
        **{
            f"Retry: {what}": instead(Event(0, 0, *TYPES["Retry"], cells).raw)
            for what, cells in {
                "no name": cells_payload(suite={}),
                "a number": cells_payload(suite={1: 1}),
                "a text": cells_payload(suite="x25519"),
                "no cells": b"\xa0",
                "not LBM": b"junk",
            }.items()
        },
        **{
            f"Reject: {what}": instead(Event(0, 0, *TYPES["Reject"], cells).raw)
            for what, cells in {
                "no code": cells_payload(text="x"),
                "no cells": b"\xa0",
                "a text for a code": cells_payload(code="2"),
                "a negative code": cells_payload(code=-1),
                "a code above 32 bits": cells_payload(code=2**32),
                "a number for a text": cells_payload(code=2, text=1),
                "not LBM": b"junk",
            }.items()
        },
    }
    faults = [_reply(name, change) for name, change in changes.items()]
    for version in (0, 2):
        change = having(version=version)
        faults.append(_reply(f"version {version}", change, code="unsupported-version"))
    for what, share in {
        "X25519 of small order": bytes([9]) * 1_088 + bytes(32),
        "a byte less": bytes(1_119),
        "ML-KEM alone": bytes(1_088),
        "X25519 alone": bytes(32),
        "no bytes": b"",
    }.items():
        change = within("shares", **{BOTH_KEX[0]: share})
        faults.append(_reply(f"hybrid share: {what}", change, setting=HYBRID))
    more = Event(0, 0, *TYPES["Retry"], cells_payload(suite={1: "x25519", 3: "sha256"})).raw
    required = Setting(
        {"algorithms": ALL, "require": {"cipher": frozenset({"aes-256-gcm"})}}, {"kex": BOTH_KEX}
    )
    kex_required = Setting({"algorithms": ALL, "require": {"kex": frozenset(BOTH_KEX[:1])}},
                           {"kex": BOTH_KEX})  # fmt: skip
    faults += [
        _reply("Retry: names more than a kex", instead(more), setting=HYBRID),
        _reply("Retry: below what we require", instead(retry_event("x25519")),
               setting=kex_required),
        _reply("suite: cipher below what we require", within("suite", n4="xchacha20-poly1305"),
               setting=required),
        _reply("suite: a kex without our share", having(
            suite=dict(enumerate(SUITE_NAMES, 1)), shares={"x25519": bytes([9]) * 32}),
            setting=HYBRID),
    ]  # fmt: skip
    faults += [
        _reply(f"a second Retry, for {again}", instead(retry_event(again)), setting=RETRIED,
               heard=2)
        for again in BOTH_KEX
    ]  # fmt: skip
    faults += [
        _reply(f"to a plaintext Hello: {what}", change, setting=PLAINTEXT)
        for what, change in {
            "not plaintext": having(plaintext=None),
            "plaintext: false": having(plaintext=False),
            "a suite": having(suite={1: "x25519"}),
            "shares": having(shares={"x25519": bytes(32)}),
            "encrypted": having(
                plaintext=None,
                suite=dict(enumerate(SUITE_NAMES, 1)),
                shares={"x25519": bytes([9]) * 32},
            ),
            "a Retry": instead(retry_event("x25519")),
        }.items()
    ]
    return faults


SUITE_NAMES: Final = ("x25519", "ed25519", "sha256", "aes-256-gcm", "chain")


def _reply(name: str, change: Change, *, heard: int = 1, **given: Any) -> Fault:
    return Fault(name, "Reply", Misbehaviour({"Reply": change}), heard=heard, **given)


# Proofs to either side. Our responder answers a Proof that it could decrypt with Close; our
# initiator doesn't answer.


def proof_faults(suite: Suite = SUITE) -> list[Fault]:
    """Return wrong Proofs with the keys of a suite."""
    return [*_refused_proofs(suite), *_unreadable_proofs(suite)]


def _refused_proofs(suite: Suite) -> list[Fault]:
    algorithm = suite.signing
    theirs = their_identity(algorithm)
    own = theirs.cell()[0]
    stranger = SigningKey(algorithm, seed(f"stranger {algorithm}"))
    another = next(name for name in SIGNING_NAMES if name != algorithm)
    further = SigningKey(another, seed("further"))
    ours = our_keys(algorithm)

    def bound(name: str, public: bytes, binding: bytes | None = None) -> list[Any]:
        message = binding_message(theirs.id, name, public)
        return [name, public, theirs.keys[0].sign(message) if binding is None else binding]

    def keys(*cells: list[Any]) -> Change:
        return inner_cells(keys=list(cells))

    def further_keys(*cells: list[Any]) -> Change:
        return inner_cells(keys=[*theirs.cell(), *cells])

    inner: dict[str, Change] = {
        "no payload": lambda inner: inner[:4] + b"\0",
        "not LBM": lambda inner: inner[:4] + b"junk",
        "no cells": lambda inner: inner[:4] + b"\xa0",
        "a byte more": ending(b"\0"),
        "a count in a longer form": lambda inner: inner[:4] + b"\xb8\x02" + inner[5:],
        "more than 256 items": lambda inner: (
            inner[:4] + cells_payload(keys=theirs.cell(), node={}, shares=[0] * 300)
        ),
        "no keys": inner_cells(keys=None),
        "keys: an empty array": keys(),
        "keys: a map": inner_cells(keys={}),
        "keys: bytes": inner_cells(keys=b""),
        "keys: a key that is a text": inner_cells(keys=["ed25519"]),
        "keys: two parts": keys(own[:2]),
        "keys: four parts": keys([*own, None]),
        "keys: a public key in text": keys([algorithm, "x" * 32, None]),
        "keys: an algorithm in bytes": keys([algorithm.encode(), own[1], None]),
        "keys: a primary with a binding": keys([*own[:2], bytes(64)]),
        "keys: a primary of an unknown kind": keys(["ed448", bytes(57), None], own),
        "keys: a byte less": keys([algorithm, own[1][:-1], None]),
        "keys: a byte more": keys([algorithm, own[1] + b"\0", None]),
        "keys: a stranger's": keys([algorithm, stranger.public, None]),
        "keys: without the signing algorithm": keys([another, further.public, None]),
        "keys: two of one algorithm": further_keys(bound(algorithm, stranger.public)),
        "keys: the same twice": keys(own, own),
        "keys: two further ones of one algorithm": further_keys(
            bound(another, further.public), bound(another, further.public)
        ),
        "keys: a further one without a binding": further_keys(["x", b"x", None]),
        "keys: a wrong binding": further_keys(bound("x", b"x", bytes(64))),
        "keys: a binding of another key": further_keys(["x", b"x", bound("x", b"y")[2]]),
        "keys: a known further one with a wrong binding": further_keys(
            bound(another, further.public, bytes(64))
        ),
        "keys: a further one that is malformed": further_keys(bound(another, further.public[:-1])),
        "information: an array": inner_cells(node=[]),
        "information: keys that are numbers": inner_cells(node={1: "x"}),
        "information: 1,025 bytes": inner_cells(node={"name": "x" * 1_016}),
        "statements: five": inner_cells(statements=[b""] * 5),
        "statements: 8,193 bytes": inner_cells(statements=[bytes(8_192), b"x"]),
        "statements: a text": inner_cells(statements=[b"", "text"]),
        "statements: bytes": inner_cells(statements=b""),
        "our own keys, not ours to sign": inner_cells(keys=ours.cell()),
    }
    if algorithm == "ed25519":  # nine bindings of ML-DSA don't fit into an event
        inner["keys: nine"] = further_keys(*(bound(f"x{n}", b"x") for n in range(8)))
        inner["keys: of small order"] = keys(["ed25519", bytes(32), None])
        off_curve = bound("ecdsa-p256", b"\4" + bytes(64))
        inner["keys: a further one off its curve"] = further_keys(off_curve)
    begin, size = seal_of(suite)
    wrongs = {name: Misbehaviour({"Proof inner": change}) for name, change in inner.items()}
    wrongs |= {
        "signed by a stranger": Misbehaviour(proof_signer=stranger),
        "our own keys, signed by them": Misbehaviour(
            {"Proof inner": inner_cells(keys=ours.cell())}, proof_signer=ours.keys[0]
        ),
        "seal: first bit": Misbehaviour({"Proof": flip(begin)}),
        "seal: last bit": Misbehaviour({"Proof": flip(begin + size - 1)}),
        "seal: zeros": Misbehaviour({"Proof": zeros(begin, size)}),
    }
    if suite.sealing == "chain":
        wrongs["unsealed"] = Misbehaviour(proof_form=False)
    return [
        Fault(name, "Proof", wrong, "authentication-failed", "Close")
        for name, wrong in wrongs.items()
    ]


def our_keys(algorithm: str = "ed25519") -> Identity:
    """Return the identity of our side as the reference represents it."""
    ours = Identity.from_seeds((algorithm, seed(f"ours {algorithm}")))
    assert ours.id == our_identity(algorithm).node_id
    return ours


def _unreadable_proofs(suite: Suite) -> list[Fault]:
    begin, size = seal_of(suite)
    events: dict[str, Change] = {
        "a changed tag": flip(-1),
        "on stream 1": flip(3),
        "cut short": lambda event: event[:-1],
        "a byte more": ending(b"\0"),
        "no bytes": instead(b""),
        "300 zeros": instead(bytes(300)),
        "seal: cut out": without(begin, size),
        "a raw Proof": instead(Event(0, 0, *TYPES["Proof"], b"\xa0").raw),
        "a raw Hello": instead(Event(0, 0, *TYPES["Hello"], b"\xa0").raw),
        "a raw Call": instead(Event(1, 1, *TYPES["Call"], cells_payload(topic="parley.echo")).raw),
        "a raw Reject": instead(reject_event("protocol-error", "x")),
        "a raw Close": instead(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
    }
    if suite.sealing == "chain":
        events |= {
            "a changed chain value": flip(5),
            "another form": flip(4),
            "form 2": lambda event: event[:4] + b"\2" + event[5:],
            "seal: stripped": lambda event: event[:4] + b"\0" + without(begin, size)(event)[5:],
        }
    found = {name: ("bad-record", Misbehaviour({"Proof": c})) for name, c in events.items()}
    too_long = Misbehaviour({"Proof": instead(bytes(16_385))})
    found["16,385 bytes"] = "frame-too-large", too_long
    call = cells_payload(topic="parley.echo")
    inners: dict[str, Change] = {
        "an encrypted Seal": instead(b"\0\0\1\x08\0"),
        "an encrypted Ping": instead(b"\0\0\1\6\0"),
        "an encrypted Close": instead(b"\0\0\1\x0c" + cells_payload(code=0)),
        "an encrypted Hello": instead(b"\0\0\1\1\xa0"),
        "an encrypted Call": instead(b"\0\0\3\1" + call),
        "an encrypted Call that wants an answer": instead(b"\0\1\3\1" + call),
        "an encrypted event of the application": instead(b"\0\0\x40\1x"),
        "a Proof in a Seal": lambda inner: inner[:3] + b"\x08" + inner[4:],
        "a Proof in a Call": lambda inner: b"\0\0\3\1" + inner[4:],
        "a Proof with async id 1": lambda inner: b"\0\1" + inner[2:],
    }
    for name, change in inners.items():
        found[name] = "authentication-failed", Misbehaviour({"Proof inner": change})
    return [Fault(name, "Proof", wrong, code) for name, (code, wrong) in found.items()]


def seal_of(suite: Suite) -> tuple[int, int]:
    """Return the position and size of the seal of an encrypted event."""
    begin = {"chain": 4 + 1 + 16, "each": 4}[suite.sealing]
    return begin, SIGNATURE_SIZES[suite.signing]


# Bytes that are not a handshake, and the code of our responder's Reject.
FOREIGN_BYTES: Final[dict[bytes, str]] = {
    b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n": "frame-too-large",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": "frame-too-large",
    b"SSH-2.0-OpenSSH_9.6\r\n": "frame-too-large",
    b"\xff" * 100: "frame-too-large",
    (16_385).to_bytes(4): "frame-too-large",
    bytes(4): "protocol-error",
    bytes(100): "protocol-error",
}


_OTHER_EVENT: Final = f"(?:{'|'.join(map(re.escape, PLACES))}|a Reply|a Retry|a Reject)$"
# By event, code and the beginning of the name; the first match counts.
RULES: Final = (
    ("Hello", "unsupported-version", "", "5.2, 5.49"),
    ("Hello", "no-common-algorithm", "", "5.13, 5.50"),
    ("Hello", "plaintext-refused", "", "5.51, 5.82"),
    ("Hello", "protocol-error", "encrypted where", "5.83"),
    ("Hello", "protocol-error", _OTHER_EVENT, "5.1, 5.56"),
    ("Hello", "protocol-error", "a Resume", "17.39"),
    ("Hello", "protocol-error", ".* below its range", "5.22, 5.53"),
    ("Hello", "protocol-error", "share|hybrid share", "5.26, 5.27"),
    ("Hello", "protocol-error", "plaintext and", "5.53, 5.80"),
    ("Hello", "protocol-error", "role", "5.4, 5.53"),
    ("Hello", "protocol-error", "random|no random", "5.3, 5.53"),
    ("Hello", "protocol-error", "", "5.53"),
    ("Hello", "any", "", "5.44, 5.46"),
    ("Hello", "authentication-failed", "no network key and plaintext", "5.44, 5.85"),
    ("Hello", "authentication-failed", "", "5.44, 5.46"),
    ("Hello", "", "a mac", "5.45"),
    ("Hello", "", "resume_ms", "17.1"),
    ("Hello", "", "no limits", "5.21"),
    ("Hello", "", "limits above", "5.22"),
    ("Hello", "", "unknown names|a share of an unknown", "5.15"),
    ("Hello", "", "plaintext: false", "13.3"),
    ("Hello", "", "16,384", "2.9"),
    ("Hello", "", "", "3.6, 5.47"),
    ("second Hello", "protocol-error", _OTHER_EVENT, "5.56"),
    ("second Hello", "protocol-error", "", "5.9, 5.58"),
    ("second Hello", "authentication-failed", "", "5.44"),
    ("second Hello", "", "", "5.9, 5.57"),
    ("Reply", "unsupported-version", "", "5.2, 5.67"),
    ("Reply", "protocol-error", "Retry|a second Retry", "5.10, 5.64"),
    ("Reply", "protocol-error", "suite: .*not offered|suite: .*require", "5.10"),
    ("Reply", "protocol-error", "share|hybrid share", "5.26, 5.27"),
    ("Reply", "protocol-error", "to a plaintext|plaintext", "5.67, 5.84"),
    ("Reply", "protocol-error", "Reject", "5.17, 11.8"),
    ("Reply", "protocol-error", "", "5.67"),
    ("Reply", "", "a Retry", "5.63"),
    ("Reply", "", "", "3.6, 5.65"),
    ("Proof", "authentication-failed", "keys: (?:nine|an empty|two of|the same)", "4.1, 5.60"),
    ("Proof", "authentication-failed", "keys: .*bind", "4.4, 4.5, 5.60"),
    ("Proof", "authentication-failed", "information: 1,025", "5.5, 5.60"),
    ("Proof", "authentication-failed", "statements", "22.37, 5.60"),
    ("Proof", "authentication-failed", "our own keys", "5.34, 5.60"),
    ("Proof", "authentication-failed", "(?:signed|seal|unsealed)", "5.34, 5.38, 5.60"),
    ("Proof", "authentication-failed", "an encrypted|a Proof", "5.62, 5.70"),
    ("Proof", "authentication-failed", "", "5.40, 5.60"),
    ("Proof", "bad-record", "", "5.61, 5.69"),
    ("Proof", "frame-too-large", "", "2.13, 5.62"),
    ("Proof", "", "statements", "22.37, 22.40, 5.59"),
    ("Proof", "", "", "3.6, 5.59"),
)


def every_fault() -> list[Fault]:
    return [
        *hello_faults(),
        *second_hello_faults(),
        *silent_faults(),
        *reply_faults(),
        *proof_faults(),
        *variants(),
        *proof_variants(),
    ]


# Valid variants.


def _filled(event: bytes) -> bytes:
    room = 16_384 - len(having(noise=bytes(1_000))(event)) + 1_000
    return having(noise=bytes(room))(event)


SPELLINGS: Final[dict[str, Change]] = {
    "noise": having(noise=bytes(100)),
    "16,384 bytes": _filled,
    "unknown cells": having({300: [1, {"a": None, "b": 1.5}], 2**64 - 1: b"x"}, label="any"),
    "no limits": having(**dict.fromkeys(LIMITS)),
    "limits above their range": having(**dict.fromkeys(LIMITS, 2**64 - 1)),
    "plaintext: false": having(plaintext=False),
}
OFFERS: Final[dict[str, Change]] = {
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
}


def variants() -> list[Fault]:
    """Return Hellos and Replies that are unusual but valid."""
    found = []
    for setting, where in ((USUAL, ""), (NETWORK, ", in a network")):
        for name, change in {**SPELLINGS, **OFFERS}.items():
            wrong = Misbehaviour({"Hello": change})
            found.append(Fault(name + where, "Hello", wrong, "", setting=setting))
        for name, change in SPELLINGS.items():
            wrong = Misbehaviour({"Reply": change})
            found.append(Fault(name + where, "Reply", wrong, "", setting=setting))
    resumed = Setting({}, {"resume_ms": 600_000})
    greatest = Misbehaviour({"Hello": having(resume_ms=2**64 - 1)})
    found.append(Fault("resume_ms above its range", "Hello", greatest, "", setting=resumed))
    for setting, where in ((RETRY, ""), (RETRY_IN_NETWORK, ", in a network")):
        for name, change in {
            "other noise": having(noise=b"x" * 50),
            "no noise": having(noise=None),
        }.items():
            wrong = Misbehaviour({"Hello": having(noise=b"first"), "second Hello": change})
            found.append(Fault(name + where, "second Hello", wrong, "", setting=setting))
    ignored = Misbehaviour({"Hello": having({12: b"not checked"})})
    found.append(Fault("a mac, and no network key here", "Hello", ignored, ""))
    retry = Misbehaviour({"Retry": having({300: None}, noise=b"x")})
    found.append(Fault("a Retry with noise", "Reply", retry, "", setting=RETRIED))
    return found


def proof_variants() -> list[Fault]:
    """Return Proofs of either side that are unusual but valid."""
    theirs = their_identity()

    def bound(name: str, public: bytes) -> list[Any]:
        return [name, public, theirs.keys[0].sign(binding_message(theirs.id, name, public))]

    def keys(*further: list[Any]) -> Change:
        return inner_cells(keys=[*theirs.cell(), *further])

    changes: dict[str, Callable[[bytes], bytes]] = {
        "noise": inner_cells(noise=bytes(500)),
        "unknown cells": inner_cells(label="x"),
        "information: 1,024 bytes": inner_cells(node={"name": "x" * 1_015}),
        "statements: 8,192 bytes, none of them a statement": inner_cells(
            statements=[bytes(2_048)] * 4
        ),
        "statements: none": inner_cells(statements=[]),
        "keys: an unknown algorithm": keys(bound("ed448", b"any")),
        "keys: eight": keys(*(bound(f"x{n}", b"x") for n in range(7))),
        "keys: a further one": keys(
            bound("ecdsa-p256", SigningKey("ecdsa-p256", seed("x")).public)
        ),
    }
    return [
        Fault(name, "Proof", Misbehaviour({"Proof inner": change}), "")
        for name, change in changes.items()
    ]
