"""Vectors for labels, the key schedule, key exchanges, stream keys and nonces.

Each vector contains every input, so that it needs no other file.
"""

from dataclasses import fields
from typing import Any

from tests.reference import exchange, primitives, schedule
from tests.reference.primitives import HASH_SIZES, NONCE_SIZES
from tests.reference.recorded import recorded_answer, seed
from tests.reference.sealing import Suite, associated_data, stream_key

Vector = dict[str, Any]
# label: contexts' kind, and the size of the result where it is not h
LABELS: dict[str, tuple[str, int | None]] = {
    "derived": ("empty", None),
    "commit": ("hash", None),
    "hs initiator": ("hash", None),
    "hs responder": ("hash", None),
    "ap initiator": ("hash", None),
    "ap responder": ("hash", None),
    "session": ("hash", 32),
    "exporter": ("hash", None),
    "rekey": ("empty", None),
    "update": ("empty", None),
    "code": ("session", 32),
    "resume": ("session", None),
    "resume tag": ("count", 16),
    "stream key": ("stream", 32),
    "stream iv": ("stream", 12),
}


def label_vectors() -> dict[str, Any]:
    """labels.json."""
    vectors: list[Vector] = []
    for name, size in HASH_SIZES.items():
        secret = (seed("a secret") + seed("its second half"))[:size]
        hashed = (seed("a hash") + seed("a second hash"))[:size]
        contexts = {"empty": b"", "hash": hashed, "stream": (3).to_bytes(4)}
        contexts |= {"session": seed("a session id")[:32], "count": (1).to_bytes(4)}
        for label, (kind, result) in LABELS.items():
            vectors.append(_label(name, secret, label, contexts[kind], result or size))
        vectors.append(_label(name, secret, "stream iv", (2**32 - 1).to_bytes(4), 24))
        for label in ("ap initiator", "ap responder", "commit"):
            both = hashed + secret
            vectors.append(_label(name, secret, label, both, size, note=", of a rekey (a || b)"))
        vectors.extend(_label(name, secret, "seal mask", hashed, length) for length in (64, 3309))
        vectors.append(
            {
                "name": f"{name}: more than 255 blocks",
                "hash": name,
                "secret": secret.hex(),
                "label": "seal mask",
                "context": "",
                "size": 255 * size + 1,
                "fails": "local",
                "why": "HKDF-Expand ends at 255 blocks (RFC 5869)",
            }
        )
        vectors.append(
            {
                "name": f"{name}: a context of 300 bytes",
                "hash": name,
                "secret": secret.hex(),
                "label": "commit",
                "context": bytes(300).hex(),
                "size": size,
                "fails": "local",
                "why": "the context's length is a u8",
            }
        )
        vectors.append(_label(name, secret, "commit", bytes(255), size, note=", of 255 bytes"))
        vectors.append(
            {
                "name": f"{name}: a context of 256 bytes",
                "hash": name,
                "secret": secret.hex(),
                "label": "commit",
                "context": bytes(256).hex(),
                "size": size,
                "fails": "local",
                "why": "the context's length is a u8",
            }
        )
        vectors.append(
            {
                "name": f"{name}: another label gives another key",
                "hash": name,
                "secret": secret.hex(),
                "label": "stream key",
                "context": "00000003",
                "size": 32,
                "claimed": primitives.derive(name, secret, "stream iv", b"\0\0\0\3", 32).hex(),
                "fails": "mismatch",
                "why": "`claimed` was made with the label 'stream iv'",
            }
        )
    return {
        "about": "Label(secret, label, context, size) = Expand(secret, info, size), each label of "
        "the protocol under each hash.",
        "section": "5",
        "vectors": vectors,
    }


def _label(
    name: str, secret: bytes, label: str, context: bytes, size: int, note: str = ""
) -> Vector:
    return {
        "name": f"{name}: {label}, {size} bytes{note}",
        "hash": name,
        "secret": secret.hex(),
        "label": label,
        "context": context.hex(),
        "size": size,
        "info": primitives.label_info(label, context, size).hex(),
        "expected": primitives.derive(name, secret, label, context, size).hex(),
    }


def schedule_vectors() -> dict[str, Any]:
    """schedule.json."""
    vectors: list[Vector] = []
    shared = seed("shared secret")
    t1 = b"Hello event" + b"Reply event"
    proof_r, proof_i = b"responder's Proof event", b"initiator's Proof event"
    for name in HASH_SIZES:
        for network_key in (None, seed("network key")):
            keys = schedule.handshake_keys(name, t1, shared, network_key)
            application = schedule.application_keys(keys, proof_r, proof_i)
            start_r = schedule.chain_start_responder(keys)
            start_i = schedule.chain_start_initiator(keys, proof_r)
            a, b = (primitives.digest(name, text) for text in (b"a", b"b"))
            rekeyed = schedule.rekey_keys(name, application.rekey, seed("rekey secret"), a, b)
            step = schedule.chain_step(name, start_r, 0x01020304, b"a blob")
            vectors.append(
                {
                    "name": f"{name}, {'a' if network_key else 'no'} network key",
                    "hash": name,
                    "t1": t1.hex(),
                    "responder_proof": proof_r.hex(),
                    "initiator_proof": proof_i.hex(),
                    "shared_secret": shared.hex(),
                    "network_key": network_key.hex() if network_key else None,
                    "rekey_shared_secret": seed("rekey secret").hex(),
                    "rekey_a": a.hex(),
                    "rekey_b": b.hex(),
                    "step_stream": 0x01020304,
                    "step_blob": b"a blob".hex(),
                    "expected": {
                        **_hexed(keys, skip=("hash", "t1")),
                        **_hexed(application),
                        "chain_start_responder": start_r.hex(),
                        "chain_start_initiator": start_i.hex(),
                        "chain_step": step.hex(),
                        "chain_bound_responder": schedule.chain_bind(
                            name, start_r, application.th2
                        ).hex(),
                        "chain_rekeyed": schedule.chain_rekey(name, step, rekeyed.rcommit).hex(),
                        "ap_initiator_1": schedule.updated(name, application.ap_initiator).hex(),
                        **{f"rekey_{key}": value for key, value in _hexed(rekeyed).items()},
                    },
                }
            )
    zero = schedule.handshake_keys("sha256", t1, shared, bytes(32))
    none = schedule.handshake_keys("sha256", t1, shared, None)
    if zero != none:
        raise AssertionError("an all-zero network key is the same as none")
    vectors.append(
        {
            "name": "an all-zero network key",
            "hash": "sha256",
            "network_key": bytes(32).hex(),
            "fails": "configuration",
            "why": "it would be the same as no network key",
        }
    )
    vectors.extend(
        {
            "name": f"a network key of {length} bytes",
            "hash": "sha256",
            "network_key": (b"\x01" * length).hex(),
            "fails": "configuration",
            "why": "a network key has 32 bytes",
        }
        for length in (0, 31, 33)
    )
    return {
        "about": "The key schedule from T1 and the shared secret, chain starts, step, bind and "
        "rekey. T1 and the Proofs are stand-ins: any bytes do. chain_step is one step from "
        "chain_start_responder; chain_rekeyed follows on chain_step.",
        "section": "5, 6",
        "vectors": vectors,
    }


def _hexed(record: Any, skip: tuple[str, ...] = ()) -> dict[str, str]:
    return {f.name: getattr(record, f.name).hex() for f in fields(record) if f.name not in skip}


def stream_key_vectors() -> dict[str, Any]:
    """stream-keys.json."""
    vectors: list[Vector] = []
    inner = bytes.fromhex("000703016869")
    for name in HASH_SIZES:
        secret = (seed("ap secret") + seed("its second half"))[: HASH_SIZES[name]]
        for cipher in NONCE_SIZES:
            suite = Suite(hash=name, cipher=cipher)
            for stream, counter, form in (
                (0, 0, 1),
                (1, 0, 0),
                (1, 1, 0),
                (3, 255, 1),
                (2**32 - 1, 2**32, 0),
                (4, 2**64 - 1, 1),
            ):
                key, iv = stream_key(suite, secret, stream)
                nonce = primitives.nonce_for(iv, counter)
                associated = associated_data(stream, form)
                vectors.append(
                    {
                        "name": f"{name}, {cipher}, stream {stream}, counter {counter}",
                        "hash": name,
                        "cipher": cipher,
                        "secret": secret.hex(),
                        "stream": stream,
                        "counter": str(counter),
                        "form": form,
                        "inner": inner.hex(),
                        "expected": {
                            "key": key.hex(),
                            "iv": iv.hex(),
                            "nonce": nonce.hex(),
                            "associated_data": associated.hex(),
                            "blob": primitives.encrypt(cipher, key, nonce, inner, associated).hex(),
                        },
                    }
                )
            vectors += _wrong_blobs(suite, secret, inner)
    return {
        "about": "Key, iv and nonce of a stream's event, and its blob. Vectors that fail have the "
        "blob that a reader at this stream, counter and form gets.",
        "section": "6",
        "vectors": vectors,
    }


def _wrong_blobs(suite: Suite, secret: bytes, inner: bytes) -> list[Vector]:
    key, iv = stream_key(suite, secret, 3)

    def blob(counter: int = 5, form: int = 0, stream: int = 3) -> bytes:
        nonce = primitives.nonce_for(iv, counter)
        return primitives.encrypt(suite.cipher, key, nonce, inner, associated_data(stream, form))

    right = blob()
    wrong = {
        "a replayed event (counter 4)": blob(counter=4),
        "a dropped event before it (counter 6)": blob(counter=6),
        "the form byte flipped": blob(form=1),
        "moved from another stream": blob(stream=4),
        "a changed tag": right[:-1] + bytes([right[-1] ^ 1]),
        "a changed first byte": bytes([right[0] ^ 1]) + right[1:],
        "cut by one byte": right[:-1],
        "shorter than a tag": right[:15],
    }
    return [
        {
            "name": f"{suite.hash}, {suite.cipher}: {name}",
            "hash": suite.hash,
            "cipher": suite.cipher,
            "secret": secret.hex(),
            "stream": 3,
            "counter": "5",
            "form": 0,
            "blob": data.hex(),
            "fails": "bad-record",
            "why": name,
        }
        for name, data in wrong.items()
    ]


def exchange_vectors() -> dict[str, Any]:
    """exchange.json."""
    vectors: list[Vector] = []
    for kex in exchange.KEX_NAMES:
        mlkem_seed = seed("ml-kem d") + seed("ml-kem z") if kex != "x25519" else b""
        offer = exchange.Offer(kex, seed("initiator x25519"), mlkem_seed)
        share, secret = recorded_answer(offer, seed("responder x25519"))
        shown = {
            "kex": kex,
            "x25519_private": offer.scalar.hex(),
            "mlkem768_seed": offer.seed.hex(),
            "offered_share": offer.share.hex(),
        }
        vectors.append(
            {
                "name": f"{kex}: an exchange",
                **shown,
                "responder_x25519_private": seed("responder x25519").hex(),
                "answered_share": share.hex(),
                "expected": secret.hex(),
            }
        )
        wrong: dict[str, bytes] = {
            "an answer cut by one byte": share[:-1],
            "an answer one byte longer": share + b"\0",
            "an empty answer": b"",
            "an answer whose x25519 public key is 0": share[:-32] + bytes(32),
            "an answer whose x25519 public key is 1": share[:-32] + b"\1" + bytes(31),
        }
        for name, bad in wrong.items():
            vectors.append(
                {
                    "name": f"{kex}: {name}",
                    **_short(shown),
                    "answered_share": bad.hex(),
                    "fails": "refused",
                    "why": "an all-zero result or a wrong size",
                }
            )
        offered = offer.share
        wrong = {
            "an offer cut by one byte": offered[:-1],
            "an offer one byte longer": offered + b"\0",
            "an offer whose x25519 public key is 0": offered[:-32] + bytes(32),
            "an offer of order 8": offered[:-32]
            + bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        }
        if kex != "x25519":
            wrong["a coefficient of 3329"] = b"\x01\x0d" + b"\0" + offered[3:]
            wrong["a coefficient of 4095"] = b"\xff\x0f" + b"\0" + offered[3:]
        for name, bad in wrong.items():
            vectors.append(
                {
                    "name": f"{kex}: {name}",
                    "kex": kex,
                    "offered_share": bad.hex(),
                    "fails": "refused",
                    "why": "an all-zero result, a size or FIPS 203's modulus check",
                }
            )
    return {
        "about": "Key exchanges. With answered_share: complete the offer made of x25519_private "
        "and mlkem768_seed (d || z). With offered_share alone: answering it is refused.",
        "section": "5",
        "vectors": vectors,
    }


def _short(shown: Vector) -> Vector:
    return {key: value for key, value in shown.items() if key != "offered_share"}
