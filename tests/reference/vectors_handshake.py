"""Vectors for what a responder makes of a Hello: negotiation, Retry, network mac (section 5).

Each vector is one decision: a side's settings and one raw event in,
an agreement, a Retry or a refusal out. Whole connections: vectors_connection.py.
"""

from typing import Any

from tests.reference import cbor, handshake, wire
from tests.reference.exchange import Offer
from tests.reference.handshake import Agreement, Config, Retry
from tests.reference.identity import Identity
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, TYPES, Event, Violation

Vector = dict[str, Any]
IDENTITY = Identity.from_seeds(
    *((name, seed(f"identity {name}")) for name in ("ed25519", "ecdsa-p256"))
)
OFFERS = {
    "x25519-mlkem768": Offer(
        "x25519-mlkem768", seed("initiator x25519"), seed("ml-kem d") + seed("ml-kem z")
    ),
    "x25519": Offer("x25519", seed("initiator x25519")),
}
NETWORK_KEY = seed("network key")
PLAIN = Config(IDENTITY, encrypted=False, plaintext=True)


def config_fields(config: Config) -> Vector:
    """A side's settings as the vectors write them."""
    fields: Vector = {name: config.names(name) for name in handshake.PARAMETERS}
    fields |= {"role": config.role, "limits": config.limits}
    fields |= {"encrypted": config.encrypted, "plaintext": config.plaintext}
    fields["network_key"] = config.network_key.hex() if config.network_key else None
    return fields


def hello(config: Config, *kexes: str, **cells: Any) -> bytes:
    """A Hello; `cells` by name replace cells, None takes one away; a network mac is made last."""
    event = handshake.hello_event(config, seed("hello random"), [OFFERS[kex] for kex in kexes])
    content = wire.parse_raw(event).cells()
    for name, value in cells.items():
        content[int(name[1:]) if name[0] == "_" else CELLS[name]] = value
    content = {key: value for key, value in content.items() if value is not None}
    if config.network_key is not None and "mac" not in cells:
        content[CELLS["mac"]] = handshake.network_mac(config.network_key, content)
    return Event(0, 0, *TYPES["Hello"], cbor.encode_payload(content)).raw


def respond_vectors() -> list[Vector]:
    """What a responder makes of a Hello."""
    usual = Config(IDENTITY)
    only = Config(IDENTITY, kex=("x25519",))
    hybrid = "x25519-mlkem768"
    vectors: list[Vector] = []

    def add(
        name: str, config: Config, event: bytes, first: bytes | None = None, **more: Any
    ) -> None:
        vectors.append(_respond(name, config, event, first) | more)

    add("the default", usual, hello(usual, hybrid))
    add("both shares: the responder's first", usual, hello(usual, hybrid, "x25519"))
    x_first = Config(IDENTITY, kex=("x25519", hybrid))
    add("the responder's own order decides", x_first, hello(usual, hybrid, "x25519"))
    add("a share comes before the order: no Retry", x_first, hello(usual, hybrid))
    own = Config(
        IDENTITY,
        signing=("ecdsa-p256", "ed25519"),
        hash=("sha512", "sha256"),
        cipher=("xchacha20-poly1305",),
        sealing=("each", "chain"),
    )
    add("the responder's order of every parameter", own, hello(usual, hybrid))
    add(
        "one cell of each is unknown to the responder",
        usual,
        hello(
            usual,
            hybrid,
            offer={
                1: ["future", hybrid],
                2: ["future", "ed25519"],
                3: ["future", "sha512"],
                4: ["future", "aes-256-gcm"],
                5: ["future", "each"],
            },
        ),
    )
    add(
        "limits absent: the defaults",
        usual,
        hello(usual, hybrid, **dict.fromkeys(handshake.LIMITS)),
    )
    small = Config(IDENTITY, limits={"max_payload": 2_048, "seal_events": 8, "max_streams": 0})
    add("limits: the minimum of both holds", small, hello(usual, hybrid, seal_delay_ms=0))
    add(
        "limits above the greatest count as the greatest",
        usual,
        hello(usual, hybrid, **dict.fromkeys(handshake.LIMITS, 2**64 - 1)),
    )
    add("an unknown cell is ignored", usual, hello(usual, hybrid, _200=1, _70000="x"))
    add("noise is dropped", usual, hello(usual, hybrid, noise=bytes(50)))
    for role in handshake.ROLES:
        add(f"role {role}", usual, hello(usual, "x25519", role=role))
    add("Retry: no share for what both know", only, hello(usual, hybrid))
    add("Retry: no share at all", usual, hello(usual))
    first = hello(usual, hybrid)
    add("the second Hello", only, hello(usual, "x25519"), first)
    add("the second Hello with other noise", only, hello(usual, "x25519", noise=b"x"), first)
    for name, bad in {
        "other random": hello(usual, "x25519", random=seed("other")),
        "another role": hello(usual, "x25519", role="client"),
        "a limit changed": hello(usual, "x25519", max_streams=5),
        "a limit left out": hello(usual, "x25519", max_streams=None),
        "an unknown cell added": hello(usual, "x25519", _200=1),
        "another offer": hello(only, "x25519"),
        "both shares": hello(usual, hybrid, "x25519"),
        "the first share again": first,
        "no share": hello(usual),
    }.items():
        add(f"second Hello: {name}", only, bad, first)
    for name in handshake.PARAMETERS:
        lists = {n: usual.names(key) for key, n in handshake.PARAMETERS.items()}
        lists[handshake.PARAMETERS[name]] = ["future"]
        add(f"no common {name}", usual, hello(usual, "x25519", offer=lists), names=name)
    add(
        "signing that the responder has no key for",
        usual,
        hello(
            usual,
            hybrid,
            offer={1: [hybrid], 2: ["ml-dsa-65"], 3: ["sha256"], 4: ["aes-256-gcm"], 5: ["chain"]},
        ),
        names="signing",
    )
    add("version 2", usual, hello(usual, "x25519", version=2))
    add("version 0", usual, hello(usual, "x25519", version=0))
    add("the greatest version", usual, hello(usual, "x25519", version=2**64 - 1))
    foreign: dict[str, dict[str, Any]] = {
        "other types": {"random": 1, "role": b"", "offer": "x", "shares": 0, "max_payload": "1"},
        "a limit below its range": {"max_payload": 1},
        "no other cells": dict.fromkeys(("random", "role", "offer", "shares")),
        "plaintext": {"plaintext": True},
    }
    for name, cells in foreign.items():
        add(f"version 2 with {name}", usual, hello(usual, "x25519", version=2, **cells))
    for name, cells in _malformed().items():
        add(f"malformed: {name}", usual, hello(usual, "x25519", **cells))
    for name, event in _misplaced(hello(usual, "x25519")).items():
        add(name, usual, event)
    add("plaintext, not allowed", usual, hello(PLAIN))
    add("plaintext, allowed", PLAIN, hello(PLAIN))
    both = Config(IDENTITY, plaintext=True)
    add("plaintext where both are allowed", both, hello(PLAIN))
    add("encrypted where both are allowed", both, hello(usual, hybrid))
    add(
        "encrypted where only plaintext is spoken",
        PLAIN,
        hello(usual, hybrid),
        ambiguous="section 5 does not name the code of this refusal",
    )
    add("cell 13 false is an encrypted Hello", usual, hello(usual, hybrid, plaintext=False))
    return vectors + _optional_hash_vectors() + _network_vectors()


def _optional_hash_vectors() -> list[Vector]:
    """blake3 is offered and taken where it is there, and is one more unknown name elsewhere."""
    without = Config(IDENTITY)
    having = Config(IDENTITY, hash=("blake3", *without.hash))
    alone = Config(IDENTITY, hash=("blake3",))
    pairs = {
        "both sides have it": (having, having),
        "the initiator lacks it": (having, without),
        "the responder lacks it": (without, having),
        "the responder wants it, the initiator lacks it": (alone, without),
        "the initiator wants it, the responder lacks it": (without, alone),
        "a name in capitals is another name": (alone, Config(IDENTITY, hash=("BLAKE3",))),
    }
    return [
        _respond(f"blake3: {name}", ours, hello(theirs, "x25519"))
        for name, (ours, theirs) in pairs.items()
    ]


def _malformed() -> dict[str, dict[str, Any]]:
    return {
        "no version": {"version": None},
        "no random": {"random": None},
        "31 bytes of random": {"random": bytes(31)},
        "33 bytes of random": {"random": bytes(33)},
        "random that is text": {"random": "x" * 32},
        "no role": {"role": None},
        "an unknown role": {"role": "boss"},
        "a role that is bytes": {"role": b"peer"},
        "no offer": {"offer": None},
        "an offer that is an array": {"offer": [1]},
        "an offer of numbers": {"offer": {1: [1], 2: [1], 3: [1], 4: [1], 5: [1]}},
        "a share that is text": {"shares": {"x25519": "x"}},
        "shares that are an array": {"shares": [b"x"]},
        "plaintext that is a number": {"plaintext": 1},
        "version that is negative": {"version": -1},
        "version that is a float": {"version": 1.0},
        "max_payload 1023": {"max_payload": 1_023},
        "max_payload negative": {"max_payload": -1},
        "seal_events 0": {"seal_events": 0},
        "stream_window 1023": {"stream_window": 1_023},
        "max_streams that is text": {"max_streams": "1"},
        "noise that is text": {"noise": "x"},
        "more than 256 items": {"_300": [0] * 300},
        "17 levels": {"_300": [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]},
    }


def _misplaced(first: bytes) -> dict[str, bytes]:
    payload = first[8:]
    return {
        "Hello on stream 1": Event(1, 0, 1, 1, payload).raw,
        "Hello with an async id": Event(0, 1, 1, 1, payload).raw,
        "a Reply instead of a Hello": Event(0, 0, 1, 2, payload).raw,
        "a Ping instead of a Hello": Event(0, 0, 1, 6).raw,
        "a Call instead of a Hello": Event(1, 1, 3, 1, payload).raw,
        "an empty Hello": Event(0, 0, 1, 1).raw,
        "a Hello that is an array": Event(0, 0, 1, 1, b"\x80").raw,
        "a Hello with a trailing byte": first + b"\0",
    }


def _network_vectors() -> list[Vector]:
    keyed = Config(IDENTITY, network_key=NETWORK_KEY)
    other = Config(IDENTITY, network_key=seed("another network key"))
    plain = Config(IDENTITY)
    only = Config(IDENTITY, kex=("x25519",), network_key=NETWORK_KEY)
    good = hello(keyed, "x25519")
    first = hello(keyed)  # no share: a Retry follows
    mac = wire.parse_raw(good).cells()[CELLS["mac"]]
    vectors: list[Vector] = [
        _respond("network key: right mac", keyed, good),
        _respond(
            "network key: mac over noise and unknown cells",
            keyed,
            hello(keyed, "x25519", noise=b"noise", _200=[1], _70000="x"),
        ),
        _respond("network key: a node without one ignores the cell", plain, good),
        _respond("network key: Retry", only, first),
        _respond("network key: the second Hello has its own mac", only, good, first),
    ]
    for name, event in {
        "no mac": hello(plain, "x25519"),
        "another network's mac": hello(other, "x25519"),
        "a changed mac": hello(keyed, "x25519", mac=bytes([mac[0] ^ 1]) + mac[1:]),
        "a cut mac": hello(keyed, "x25519", mac=mac[:31]),
        "an empty mac": hello(keyed, "x25519", mac=b""),
        "mac of a Hello without its unknown cell": hello(keyed, "x25519", _200=1, mac=mac),
        "mac of a Hello without its noise": hello(keyed, "x25519", noise=b"x", mac=mac),
        "version 2 and no mac": hello(plain, "x25519", version=2),
        "malformed and no mac": hello(plain, "x25519", role=None),
        "not LBM": Event(0, 0, 1, 1, b"\x80").raw,
        "a Ping": Event(0, 0, 1, 6).raw,
        "plaintext": hello(PLAIN),
    }.items():
        vectors.append(_respond(f"network key: {name}", keyed, event))
    vectors.append(
        _respond("network key: right mac, version 2", keyed, hello(keyed, "x25519", version=2))
    )
    vectors.append(
        _respond(
            "network key: the second Hello with the first one's mac",
            only,
            hello(keyed, "x25519", mac=wire.parse_raw(first).cells()[CELLS["mac"]]),
            first,
        )
        | {"ambiguous": "a right value came with the first Hello: a Reject would do as well"}
    )
    return vectors


def _respond(name: str, config: Config, event: bytes, first: bytes | None = None) -> Vector:
    vector: Vector = {
        "name": name,
        "kind": "respond",
        "config": config_fields(config),
        "hello": event.hex(),
    }
    if first is not None:
        vector["first_hello"] = first.hex()
    try:
        handshake.check_network_key(config, event)
    except Violation as violation:
        return vector | {"fails": violation.code, "reject": False, "why": "closes without a word"}
    try:
        outcome = handshake.respond(config, event, first)
    except Violation as violation:
        return vector | {"fails": violation.code, "reject": True, "why": violation.why}
    return vector | {"expected": decision(outcome)}


def decision(outcome: Agreement | Retry) -> Vector:
    """A decision as the vectors write it."""
    if isinstance(outcome, Retry):
        return {"retry": outcome.kex}
    suite = outcome.suite
    chosen = {name: getattr(suite, name) for name in handshake.PARAMETERS} if suite else None
    return {"suite": chosen, "limits": outcome.limits, "remote_role": outcome.remote_role}
