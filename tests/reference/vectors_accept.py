"""Vectors for what an initiator makes of the answer to its Hello (section 5), and handshake.json.

Each vector is one decision, as in vectors_handshake.py.
"""

from typing import Any

from tests.reference import cbor, handshake, wire
from tests.reference.handshake import Config, Retry
from tests.reference.recorded import recorded_answer, seed
from tests.reference.sealing import Suite
from tests.reference.vectors_handshake import (
    IDENTITY,
    OFFERS,
    PLAIN,
    Vector,
    config_fields,
    decision,
    hello,
    respond_vectors,
)
from tests.reference.wire import CELLS, TYPES, Event, Violation


def accept_vectors() -> list[Vector]:
    """What an initiator makes of the answer to its Hello."""
    usual = Config(IDENTITY)
    hybrid = "x25519-mlkem768"
    vectors: list[Vector] = []

    def add(
        name: str,
        event: bytes,
        config: Config = usual,
        sent: tuple[str, ...] = (hybrid,),
        retried: bool = False,
        **more: Any,
    ) -> None:
        vectors.append(_accept(name, config, sent, event, retried) | more)

    def reply(**cells: Any) -> bytes:
        return changed(handshake.reply_event(usual, seed("reply random"), suite, share), **cells)

    def changed(event: bytes, **cells: Any) -> bytes:
        content = wire.parse_raw(event).cells()
        content |= {CELLS[name]: value for name, value in cells.items()}
        content = {key: value for key, value in content.items() if value is not None}
        return Event(0, 0, *TYPES["Reply"], cbor.encode_payload(content)).raw

    suite = Suite()
    share, _ = recorded_answer(OFFERS[hybrid], seed("responder x25519"))
    short, _ = recorded_answer(OFFERS["x25519"], seed("responder x25519"))
    names = dict(enumerate((hybrid, "ed25519", "sha256", "aes-256-gcm", "chain"), 1))
    add("Reply", reply())
    add(
        "Reply after a Retry",
        reply(suite=names | {1: "x25519"}, shares={"x25519": short}),
        sent=("x25519",),
        retried=True,
    )
    add("Reply with the smaller limits", reply(max_payload=4_096, seal_delay_ms=0))
    add("Retry", handshake.retry_event("x25519"))
    add("a second Retry", handshake.retry_event("x25519"), sent=("x25519",), retried=True)
    add(
        "a second Retry for another kex",
        handshake.retry_event(hybrid),
        sent=("x25519",),
        retried=True,
    )
    add("Retry for what was shared", handshake.retry_event(hybrid))
    add("Retry for what was not offered", handshake.retry_event("x448"))
    only = Config(IDENTITY, kex=(hybrid,))
    add("Retry for what this side does not offer", handshake.retry_event("x25519"), config=only)
    for number, name in enumerate(handshake.PARAMETERS, 1):
        add(f"Reply choosing a {name} not offered", reply(suite=names | {number: "future"}))
        add(f"Reply without a {name}", reply(suite={k: v for k, v in names.items() if k != number}))
    restricted = Config(IDENTITY, cipher=("chacha20-poly1305",))
    add("Reply choosing a known cipher that was not offered", reply(), config=restricted)
    having = Config(IDENTITY, hash=("blake3", *usual.hash))
    add("Reply choosing blake3", reply(suite=names | {3: "blake3"}), config=having)
    add("Reply choosing sha256 where blake3 came first", reply(), config=having)
    add("Reply choosing blake3, not offered", reply(suite=names | {3: "blake3"}))
    add(
        "Reply choosing sha256, not offered",
        reply(),
        config=Config(IDENTITY, hash=("blake3",)),
    )
    add(
        "Reply for a kex without a share",
        reply(suite=names | {1: "x25519"}, shares={"x25519": short}),
    )
    add("Reply with the share of another kex", reply(shares={"x25519": short}))
    add("Reply with two shares", reply(shares={"x25519": short, hybrid: share}))
    add("Reply without a share", reply(shares=None))
    add("Reply without a suite", reply(suite=None))
    add("Reply of version 2", reply(version=2), also="unsupported-version")
    add("Reply with 31 bytes of random", reply(random=bytes(31)))
    add("Reply with an unknown role", reply(role="boss"))
    add("Reply with a limit below the smallest", reply(max_payload=1))
    add(
        "a plaintext Reply to an encrypted Hello",
        handshake.reply_event(PLAIN, seed("reply random"), None, b""),
    )
    add("an encrypted Reply to a plaintext Hello", reply(), config=PLAIN, sent=())
    add(
        "a plaintext Reply to a plaintext Hello",
        handshake.reply_event(PLAIN, seed("reply random"), None, b""),
        config=PLAIN,
        sent=(),
    )
    add("a Retry to a plaintext Hello", handshake.retry_event("x25519"), config=PLAIN, sent=())
    for code in (
        "no-common-algorithm",
        "unsupported-version",
        "plaintext-refused",
        "protocol-error",
    ):
        add(f"Reject {code}", handshake.reject_event(code, "a sentence"))
    add("a Hello instead of a Reply (reflection)", hello(usual, hybrid))
    add("Reply on stream 1", Event(1, 0, 1, 2, reply()[8:]).raw)
    add("Reply with an async id", Event(0, 1, 1, 2, reply()[8:]).raw)
    add("a Proof before the Reply", Event(0, 0, 1, 3, reply()[8:]).raw)
    return vectors


def _accept(
    name: str, config: Config, sent: tuple[str, ...], event: bytes, retried: bool
) -> Vector:
    vector: Vector = {
        "name": name,
        "kind": "accept",
        "config": config_fields(config),
        "shares_sent": list(sent),
        "retried": retried,
        "answer": event.hex(),
    }
    try:
        outcome = handshake.accept(config, {kex: OFFERS[kex] for kex in sent}, event, retried)
    except Violation as violation:
        return vector | {"fails": violation.code, "why": violation.why}
    return vector | {"expected": decision(outcome if isinstance(outcome, Retry) else outcome[0])}


def handshake_vectors() -> dict[str, Any]:
    """handshake.json."""
    return {
        "about": "One decision each: a responder's on a Hello, an initiator's on the answer.",
        "section": "5",
        "offers": {
            kex: {"x25519_private": offer.scalar.hex(), "mlkem768_seed": offer.seed.hex()}
            for kex, offer in OFFERS.items()
        },
        "vectors": [*respond_vectors(), *accept_vectors()],
    }
