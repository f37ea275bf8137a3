"""Vectors for section 4: node ids, UUIDs, bindings, public keys, signatures, cell 14.

Keys come from seeds that the vectors name, so that each can be made again.
"""

from typing import Any

from tests.reference import cbor
from tests.reference.identity import (
    binding_message,
    node_id,
    node_text,
    node_uuid,
    read_identity,
)
from tests.reference.primitives import (
    P256_ORDER,
    SIGNING_NAMES,
    CryptoFailure,
    SigningKey,
    check_public,
    verify,
)
from tests.reference.recorded import RecordedKey, seed
from tests.reference.wire import Violation

Vector = dict[str, Any]
KEYS = {name: SigningKey(name, seed(f"identity {name}")) for name in SIGNING_NAMES}
SMALL_ORDER = {
    "order 1": "0100000000000000000000000000000000000000000000000000000000000000",
    "order 2": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 4": "0000000000000000000000000000000000000000000000000000000000000000",
    "order 4, other sign": "0000000000000000000000000000000000000000000000000000000000000080",
    "order 8": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "order 8, other sign": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "order 8, other y": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "order 8, both other": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "order 1, not canonical": "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 4, not canonical": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}


def identity_vectors() -> dict[str, Any]:
    """identity.json."""
    return {
        "about": "Node ids, UUIDs, bindings, public keys, signatures and the identity cell.",
        "section": "4",
        "vectors": [*_ids(), *_public_keys(), *_signatures(), *_bindings(), *_cells()],
    }


def _ids() -> list[Vector]:
    vectors: list[Vector] = []
    for name, key in KEYS.items():
        identifier = node_id(name, key.public)
        vectors.append(
            {
                "name": f"node id of {name}",
                "kind": "node-id",
                "algorithm": name,
                "seed": key.seed.hex(),
                "public": key.public.hex(),
                "expected": {
                    "node_id": identifier.hex(),
                    "text": node_text(identifier),
                    "uuid": str(node_uuid(identifier)),
                },
            }
        )
    for name, raw in (("all bits", b"\xff" * 32), ("no bits", bytes(32))):
        vectors.append(
            {
                "name": f"uuid and text of {name}",
                "kind": "node-text",
                "node_id": raw.hex(),
                "expected": {"text": node_text(raw), "uuid": str(node_uuid(raw))},
            }
        )
    good = node_text(node_id("ed25519", KEYS["ed25519"].public))
    for name, bad in {
        "51 characters": good[:-1],
        "53 characters": good + "a",
        "with padding": good + "====",
        "a character outside base32": "1" + good[1:],
        "bits set beyond 32 bytes": good[:-1] + "b",
    }.items():
        vectors.append(
            {
                "name": f"text of a node id: {name}",
                "kind": "node-text",
                "text": bad,
                "fails": "refused",
                "why": "52 characters of a-z, 2-7 that stand for 32 bytes",
            }
        )
    return vectors


def _public_keys() -> list[Vector]:
    point = KEYS["ecdsa-p256"].public
    wrong = [
        ("ed25519", name, bytes.fromhex(text), "a small-order key")
        for name, text in SMALL_ORDER.items()
    ]
    wrong += [(name, "one byte short", key.public[:-1], "size") for name, key in KEYS.items()] + [
        (name, "one byte long", key.public + b"\0", "size") for name, key in KEYS.items()
    ]
    wrong += [
        ("ecdsa-p256", "compressed", b"\x02" + point[1:33], "uncompressed points only"),
        ("ecdsa-p256", "hybrid form", bytes([6 + point[-1] % 2]) + point[1:], "likewise"),
        ("ecdsa-p256", "the point at infinity", b"\0", "likewise"),
        ("ecdsa-p256", "off the curve", point[:-1] + bytes([point[-1] ^ 1]), "not on P-256"),
        ("ecdsa-p256", "all zero", b"\x04" + bytes(64), "not on P-256"),
    ]
    vectors: list[Vector] = []
    for algorithm, name, data, why in wrong:
        try:
            check_public(algorithm, data)
        except CryptoFailure:
            vectors.append(
                {
                    "name": f"{algorithm} public key: {name}",
                    "kind": "public-key",
                    "algorithm": algorithm,
                    "public": data.hex(),
                    "fails": "refused",
                    "why": why,
                }
            )
            continue
        raise AssertionError(f"accepted {algorithm} {name}")
    return vectors


def _signatures() -> list[Vector]:
    vectors: list[Vector] = []
    message = b"parley1 test message"
    for name, key in KEYS.items():
        good = RecordedKey(key).sign(message)
        shown = {
            "kind": "signature",
            "algorithm": name,
            "seed": key.seed.hex(),
            "public": key.public.hex(),
            "message": message.hex(),
        }
        vectors.append(
            {"name": f"{name}: right", **shown, "signature": good.hex(), "expected": "valid"}
        )
        wrong = {
            "of another message": RecordedKey(key).sign(message + b"!"),
            "one bit changed": good[:-1] + bytes([good[-1] ^ 1]),
            "cut": good[:-1],
            "longer": good + b"\0",
            "empty": b"",
        }
        if name == "ecdsa-p256":
            high = P256_ORDER - int.from_bytes(good[32:])
            wrong["high s"] = good[:32] + high.to_bytes(32)
            wrong["r = 0"] = bytes(32) + good[32:]
            wrong["s = 0"] = good[:32] + bytes(32)
            wrong["DER"] = b"\x30\x44\x02\x20" + good[:32] + b"\x02\x20" + good[32:]
        if name == "ed25519":
            order = 2**252 + 27742317777372353535851937790883648493
            scalar = int.from_bytes(good[32:], "little") + order
            wrong["S not reduced"] = good[:32] + scalar.to_bytes(32, "little")
        for reason, data in wrong.items():
            _must_fail(lambda n=name, k=key, d=data: verify(n, k.public, message, d), CryptoFailure)
            vectors.append(
                {
                    "name": f"{name}: {reason}",
                    **_brief(shown),
                    "signature": data.hex(),
                    "fails": "refused",
                    "why": reason,
                }
            )
    return vectors


def _brief(shown: Vector) -> Vector:
    return {key: value for key, value in shown.items() if key != "seed"}


def _bindings() -> list[Vector]:
    vectors: list[Vector] = []
    for primary in KEYS.values():
        identifier = node_id(primary.algorithm, primary.public)
        for further in KEYS.values():
            if further is primary:
                continue
            message = binding_message(identifier, further.algorithm, further.public)
            vectors.append(
                {
                    "name": f"{primary.algorithm} binds {further.algorithm}",
                    "kind": "binding",
                    "primary": {"algorithm": primary.algorithm, "public": primary.public.hex()},
                    "further": {"algorithm": further.algorithm, "public": further.public.hex()},
                    "expected": {
                        "message": message.hex(),
                        "signature": RecordedKey(primary).sign(message).hex(),
                    },
                }
            )
    return vectors


def _entry(primary: SigningKey, algorithm: str, public: bytes) -> list[Any]:
    message = binding_message(node_id(primary.algorithm, primary.public), algorithm, public)
    return [algorithm, public, RecordedKey(primary).sign(message)]


def _cells() -> list[Vector]:
    ed, ml, p256 = (KEYS[name] for name in SIGNING_NAMES)
    alone = ["ed25519", ed.public, None]
    second = _entry(ed, "ecdsa-p256", p256.public)
    future = _entry(ed, "slh-dsa-128s", b"a key of an algorithm to come")
    right: dict[str, list[Any]] = {
        "one ed25519 key": [alone],
        "one ecdsa-p256 key": [["ecdsa-p256", p256.public, None]],
        "one ml-dsa-65 key": [["ml-dsa-65", ml.public, None]],
        "two keys": [alone, second],
        "three keys": [alone, _entry(ed, "ml-dsa-65", ml.public), second],
        "an ml-dsa-65 primary": [["ml-dsa-65", ml.public, None], _entry(ml, "ed25519", ed.public)],
        "an algorithm to come, bound": [alone, future],
        "eight keys": [alone, *(_entry(ed, f"future-{n}", bytes([n])) for n in range(7))],
    }
    foreign = binding_message(node_id("ed25519", p256.public[:32]), "ecdsa-p256", p256.public)
    wrong: dict[str, Any] = {
        "no key": [],
        "nine keys": [alone, *(_entry(ed, f"future-{n}", bytes([n])) for n in range(8))],
        "two keys of one algorithm": [
            alone,
            second,
            _entry(ed, "ecdsa-p256", SigningKey("ecdsa-p256", seed("another p256")).public),
        ],
        "the primary's algorithm twice": [alone, _entry(ed, "ed25519", ed.public)],
        "a primary with a binding": [["ed25519", ed.public, ed.sign(b"x")]],
        "a further key without a binding": [alone, ["ecdsa-p256", p256.public, None]],
        "a binding bound to another node id": [
            alone,
            ["ecdsa-p256", p256.public, ed.sign(foreign)],
        ],
        "a binding made for another purpose": [
            alone,
            ["ecdsa-p256", p256.public, ed.sign(b"parley1 seal" + second[1])],
        ],
        "a binding for another algorithm name": [alone, ["ecdsa-p384", p256.public, second[2]]],
        "a wrong binding of an unknown algorithm": [alone, [*future[:2], future[2][:-1] + b"\0"]],
        "a binding signed by the further key": [
            alone,
            [
                "ecdsa-p256",
                p256.public,
                p256.sign(
                    binding_message(node_id("ed25519", ed.public), "ecdsa-p256", p256.public)
                ),
            ],
        ],
        "an unknown primary": [["slh-dsa-128s", b"key", None]],
        "a small-order primary": [["ed25519", bytes(32), None]],
        "a primary of the wrong size": [["ed25519", ed.public + b"\0", None]],
    }
    vectors: list[Vector] = []
    for name, cell in right.items():
        identity = read_identity(cell)
        vectors.append(
            {
                "name": f"cell: {name}",
                "kind": "cell",
                "input": cbor.encode_payload({14: cell}).hex(),
                "expected": {"node_id": identity.id.hex(), "algorithms": sorted(identity.keys)},
            }
        )
    for name, cell in wrong.items():
        _must_fail(lambda cell=cell: read_identity(cell), Violation)
        vectors.append(
            {
                "name": f"cell: {name}",
                "kind": "cell",
                "input": cbor.encode_payload({14: cell}).hex(),
                "fails": "authentication-failed",
                "why": name,
            }
        )
    malformed: dict[str, list[Any]] = {
        "an entry of two": [["ed25519", ed.public]],
        "an entry that is a map": [{"ed25519": ed.public}],
        "an algorithm that is bytes": [[b"ed25519", ed.public, None]],
        "a key that is text": [["ed25519", "text", None]],
        "a binding that is text": [alone, ["ecdsa-p256", p256.public, "text"]],
    }
    for name, cell in malformed.items():
        _must_fail(lambda cell=cell: read_identity(cell), Violation)
        vectors.append(
            {
                "name": f"cell: {name}",
                "kind": "cell",
                "input": cbor.encode_payload({14: cell}).hex(),
                "fails": "authentication-failed",
                "also": "protocol-error",
                "why": f"{name}: malformed; what a Proof is refused for looks alike on the wire",
            }
        )
    return vectors


def _must_fail(action: Any, error: type[Exception]) -> None:
    try:
        action()
    except error:
        return
    raise AssertionError("accepted what must fail")
