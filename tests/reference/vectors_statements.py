"""Vectors for section 22: identities with a recovery key, key files, statements and their files,
and Proofs that present statements.

A case is one change of something right; the reference determines its outcome. Seeds are 32 times
one byte, as in the document's example.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.reference import cbor, statements
from tests.reference.identity import (
    Identity,
    RemoteIdentity,
    binding_message,
    commit,
    node_text,
    read_identity,
    read_origin,
)
from tests.reference.identity import node_id as id_of
from tests.reference.primitives import SIGNATURE_SIZES, SIGNING_NAMES, CryptoFailure, SigningKey
from tests.reference.recorded import RecordedKey
from tests.reference.statements import (
    CONSENT_LABEL,
    KEY_FILE,
    RECOVERY_FILE,
    STATEMENT_LABEL,
    Invalid,
    signed_message,
)
from tests.reference.wire import CELLS, Violation

Vector = dict[str, Any]
MADE_MS = 1_800_000_000_000
WEAK = bytes(32)  # a point of order 4 (section 4)


def key_of(byte: int, algorithm: str = "ed25519") -> SigningKey:
    """The key of a seed of one byte, 32 times."""
    return SigningKey(algorithm, bytes([byte]) * 32)


OLD, RECOVERY, NEW, NEW_RECOVERY, OTHER = (key_of(byte) for byte in range(1, 6))
ML_RECOVERY = key_of(6, "ml-dsa-65")


def keys_vectors() -> dict[str, Any]:
    """keys.json."""
    return {
        "about": "Identities with a recovery key, key files, statements and their files.",
        "section": "22",
        "vectors": [
            *_identities(),
            *_cells(),
            *_origins(),
            *_key_files(),
            *_recovery_files(),
            *_statements(),
            *_statement_files(),
            *_proofs(),
            *_presented(),
            *_chains(),
            *_answers(),
        ],
    }


def _identities() -> Iterator[Vector]:
    for name in SIGNING_NAMES:
        key = key_of(1, name)
        for recovery in (None, *(key_of(2, algorithm) for algorithm in SIGNING_NAMES)):
            if name == "ml-dsa-65" and recovery and recovery.algorithm != name:
                continue  # too weak
            commitment = commit(name, key.public, recovery) if recovery else None
            form = f"with an {recovery.algorithm} recovery key" if recovery else "alone"
            node = id_of(name, key.public, commitment)
            yield {
                "name": f"identity: {name} {form}",
                "kind": "identity",
                **_seeds(key, recovery),
                "expected": {
                    "commitment": commitment and commitment.hex(),
                    "node_id": node.hex(),
                    "text": node_text(node),
                },
            }
    commitment = commit("ed25519", OLD.public, RECOVERY)
    for name, claimed in {
        "the id of the first form": id_of("ed25519", OLD.public),
        "the commitment of another primary key": id_of(
            "ed25519", OLD.public, commit("ed25519", OTHER.public, RECOVERY)
        ),
        "the keys in the other order": id_of(
            "ed25519", RECOVERY.public, commit("ed25519", RECOVERY.public, OLD)
        ),
        "the recovery key in place of the commitment": id_of(
            "ed25519", OLD.public, RECOVERY.public
        ),
        "the commitment as the key of the first form": id_of("ed25519", commitment),
    }.items():
        yield {
            "name": f"identity: {name}",
            "kind": "identity",
            **_seeds(OLD, RECOVERY),
            "claimed": claimed.hex(),
            "fails": "mismatch",
            "why": name,
        }


def _seeds(key: SigningKey, recovery: SigningKey | None) -> Vector:
    return {
        "algorithm": key.algorithm,
        "seed": key.seed.hex(),
        "recovery_algorithm": recovery and recovery.algorithm,
        "recovery_seed": recovery and recovery.seed.hex(),
    }


def second_form(key: SigningKey, recovery: SigningKey, *further: SigningKey) -> Identity:
    """An identity with a recovery key."""
    return Identity((key, *further), commit(key.algorithm, key.public, recovery))


def _cells() -> Iterator[Vector]:
    p256 = key_of(1, "ecdsa-p256")
    whole = second_form(OLD, RECOVERY, p256)
    primary, recovery, further = whole.cell()
    commitment = recovery[1]
    first = Identity((OLD, p256)).cell()[1]

    def bound(name: str) -> list[Any]:
        return [name, b"k", OLD.sign(binding_message(whole.id, name, b"k"))]

    right: dict[str, list[Any]] = {
        "one key and a commitment": [primary, recovery],
        "two keys and a commitment": [primary, recovery, further],
        "seven keys and a commitment": [primary, recovery, *(bound(f"x{n}") for n in range(6))],
        "an ecdsa-p256 key and a commitment": second_form(p256, RECOVERY).cell(),
        "an ml-dsa-65 key and a commitment": second_form(
            key_of(1, "ml-dsa-65"), key_of(2, "ml-dsa-65")
        ).cell(),
        "a commitment that fits no key": [primary, ["recovery", bytes(32), None]],
    }
    wrong: dict[str, list[Any]] = {
        "the commitment first": [recovery, primary],
        "a commitment alone": [recovery],
        "the commitment third": [primary, further, recovery],
        "two commitments": [primary, recovery, recovery],
        "two commitments, of which one is the third": [primary, recovery, further, recovery],
        "a commitment with a binding": [
            primary,
            [
                "recovery",
                commitment,
                OLD.sign(binding_message(whole.id, "recovery", commitment)),
            ],
        ],
        "a commitment of 31 bytes": [primary, ["recovery", commitment[:-1], None]],
        "a commitment of 33 bytes": [primary, ["recovery", commitment + b"\0", None]],
        "an empty commitment": [primary, ["recovery", b"", None]],
        "another entry without a binding": [primary, ["delegation", commitment, None]],
        "another entry without a binding, after the commitment": [
            primary,
            recovery,
            ["ecdsa-p256", p256.public, None],
        ],
        "eight keys and a commitment": [primary, recovery, *(bound(f"x{n}") for n in range(7))],
        "a binding of the id of the first form": [primary, recovery, first],
        "a binding of the id of the second form, without the commitment": [primary, further],
    }
    for name, cell in {**right, **wrong}.items():
        vector: Vector = {
            "name": f"cell: {name}",
            "kind": "cell",
            "input": cbor.encode_payload({14: cell}).hex(),
        }
        identity = _outcome(partial(read_identity, cell), Violation)
        assert (identity is None) == (name in wrong), name
        if identity is None:
            yield {**vector, "fails": "authentication-failed", "why": name}
        else:
            assert isinstance(identity, RemoteIdentity)
            algorithms = sorted(identity.keys)
            yield {**vector, "expected": {"node_id": identity.id.hex(), "algorithms": algorithms}}


def _outcome(action: Callable[[], Any], error: type[Exception]) -> Any:
    try:
        return action()
    except error:
        return None


def _origins() -> Iterator[Vector]:
    p256 = key_of(1, "ecdsa-p256")
    primary, recovery, further = second_form(OLD, RECOVERY, p256).cell()
    cells: dict[str, Any] = {
        "one key": [primary],
        "one key and a commitment": [primary, recovery],
        "an ecdsa-p256 key and a commitment": second_form(p256, RECOVERY).cell(),
        "no entry": [],
        "a further key": Identity((OLD, p256)).cell(),
        "a further key after the commitment": [primary, recovery, further],
        "another entry without a binding": [primary, ["delegation", bytes(32), None]],
        "the commitment first": [recovery, primary],
        "the commitment alone": [recovery],
        "two commitments": [recovery, recovery],
        "a commitment with a binding": [primary, [*recovery[:2], bytes(64)]],
        "a commitment of 33 bytes": [primary, ["recovery", bytes(33), None]],
        "a primary key with a binding": [[*primary[:2], bytes(64)]],
        "an entry of two": [primary[:2]],
        "an entry of four": [[*primary, None]],
        "a key that is text": [["ed25519", "text", None]],
        "a name that is bytes": [[b"ed25519", OLD.public, None]],
        "a name without characters": [["", OLD.public, None]],
        "a name of 256 bytes": [["x" * 256, OLD.public, None]],
    }
    for name, cell in cells.items():
        vector: Vector = {
            "name": f"origin: {name}",
            "kind": "origin",
            "input": cbor.encode_payload({14: cell}).hex(),
        }
        found = _outcome(partial(read_origin, cell), CryptoFailure)
        if found is None:
            yield {**vector, "fails": "malformed", "why": name}
        else:
            yield {**vector, "expected": {"node_id": id_of(*found).hex()}}


def _private(key: SigningKey) -> list[Any]:
    return [key.algorithm, key.seed, key.public]


def _key_files() -> Iterator[Vector]:
    commitment = commit("ed25519", OLD.public, RECOVERY)
    keys = [_private(OLD)]
    payloads: dict[str, dict[int, Any]] = {
        "of the first form": {256: keys},
        "of the second form": {256: keys, 257: commitment},
        "of the second form, with a further key": {
            256: [*keys, _private(key_of(1, "ecdsa-p256"))],
            257: commitment,
        },
        "a commitment of 31 bytes": {256: keys, 257: commitment[:-1]},
        "an empty commitment": {256: keys, 257: b""},
        "a commitment that is null": {256: keys, 257: None},
        "a commitment that is text": {256: keys, 257: "text"},
        "another key of the payload": {256: keys, 257: commitment, 258: b""},
        "noise": {0: b"", 256: keys, 257: commitment},
        "a commitment alone": {257: commitment},
    }
    for name, payload in payloads.items():
        data = KEY_FILE + cbor.encode_payload(payload)
        yield _file("key-file", name, data, statements.key_file_id)
    data = RECOVERY_FILE + cbor.encode_payload(payloads["of the second form"])
    yield _file("key-file", "the magic of a recovery file", data, statements.key_file_id)


def _recovery_files() -> Iterator[Vector]:
    recovery, primary = [_private(RECOVERY)], ["ed25519", OLD.public]
    ml = key_of(1, "ml-dsa-65")
    payloads: dict[str, dict[int, Any]] = {
        "right": {256: recovery, 257: [primary]},
        "an ml-dsa-65 recovery key": {256: [_private(key_of(2, "ml-dsa-65"))], 257: [primary]},
        "two recovery keys": {256: [*recovery, _private(OTHER)], 257: [primary]},
        "two primary keys": {256: recovery, 257: [primary, ["ed25519", NEW.public]]},
        "no primary key": {256: recovery, 257: []},
        "a recovery key alone": {256: recovery},
        "noise": {0: b"", 256: recovery, 257: [primary]},
        "a primary key of three parts": {256: recovery, 257: [[*primary, None]]},
        "a primary key of an unknown algorithm": {256: recovery, 257: [["rsa", OLD.public]]},
        "a weak primary key": {256: recovery, 257: [["ed25519", WEAK]]},
        "the primary key as recovery key": {256: [_private(OLD)], 257: [primary]},
        "weaker than the primary key": {256: recovery, 257: [["ml-dsa-65", ml.public]]},
        "another public key": {256: [[*_private(RECOVERY)[:2], OTHER.public]], 257: [primary]},
    }
    for name, payload in payloads.items():
        data = RECOVERY_FILE + cbor.encode_payload(payload)
        yield _file("recovery-file", name, data, statements.recovery_file_id)
    data = KEY_FILE + cbor.encode_payload(payloads["right"])
    yield _file("recovery-file", "the magic of a key file", data, statements.recovery_file_id)


def _file(kind: str, name: str, data: bytes, read: Callable[[bytes], bytes]) -> Vector:
    vector: Vector = {"name": f"{kind}: {name}", "kind": kind, "input": data.hex()}
    node = _outcome(partial(read, data), CryptoFailure)
    if node is None:
        return {**vector, "fails": "refused", "why": name}
    return {**vector, "expected": {"node_id": node.hex()}}


@dataclass(frozen=True)
class Draft:
    """A statement to be made: one of these is changed in each case.

    `content` and `outer` replace cells by name, and a None removes one.
    """

    kind: str = "succession"
    old: SigningKey = OLD
    recovery: SigningKey | None = RECOVERY  # None: the first form
    by_recovery: bool = True
    new: SigningKey = NEW
    new_recovery: SigningKey | None = NEW_RECOVERY
    content: tuple[tuple[str, Any], ...] = ()
    outer: tuple[tuple[str, Any], ...] = ()
    signer: SigningKey | None = None  # None: the right one
    signature_label: bytes = STATEMENT_LABEL
    consent_label: bytes = CONSENT_LABEL
    consenting: SigningKey | None = None

    def encode(self) -> bytes:
        """The bytes of the statement."""
        origin = _identity(self.old, self.recovery)
        cells: dict[str, Any] = {
            "kind": self.kind,
            "origin": origin.id,
            "made_ms": MADE_MS,
            "keys": origin.cell(),
        }
        key = self.old
        if self.by_recovery and self.recovery is not None:
            key = self.recovery
            cells["signer"] = [key.algorithm, key.public]
        if self.kind == "succession":
            cells["successor"] = _identity(self.new, self.new_recovery).cell()
        content = _encoded(cells, self.content)
        signer, consenting = self.signer or key, self.consenting or self.new
        message = signed_message(self.signature_label, signer.algorithm, content)
        outer: dict[str, Any] = {
            "content": content,
            "signing": signer.algorithm,
            "signature": RecordedKey(signer).sign(message),
        }
        if self.kind == "succession":
            message = signed_message(self.consent_label, consenting.algorithm, content)
            outer["consent"] = RecordedKey(consenting).sign(message)
        return _encoded(outer, self.outer)


def _identity(key: SigningKey, recovery: SigningKey | None) -> Identity:
    return Identity((key,)) if recovery is None else second_form(key, recovery)


def _encoded(cells: dict[str, Any], changes: tuple[tuple[str, Any], ...]) -> bytes:
    cells = {**cells, **dict(changes)}
    return cbor.encode_payload(
        {
            (CELLS[name] if name in CELLS else int(name)): None if value == "null" else value
            for name, value in cells.items()
            if value is not None
        }
    )


def _statements() -> Iterator[Vector]:
    for name, draft in {**_right(), **_wrong()}.items():
        yield _statement(name, draft.encode())
    for name, data in _raw().items():
        yield _statement(name, data)


def _statement(name: str, data: bytes) -> Vector:
    vector: Vector = {"name": f"statement: {name}", "kind": "statement", "input": data.hex()}
    try:
        statement = statements.read(data)
        statements.check(statement)
    except Invalid as invalid:
        return {**vector, "fails": invalid.reason, "why": invalid.why}
    return {
        **vector,
        "expected": {
            "kind": statement.kind,
            "origin": statement.origin.hex(),
            "successor": statement.successor and statement.successor.hex(),
            "made_ms": statement.made_ms,
            "by_recovery": statement.recovery_key is not None,
            "slot": statement.slot.hex(),
        },
    }


def _right() -> dict[str, Draft]:
    succession, revocation = Draft(), Draft("revocation")
    found = {
        "the example, a succession": succession,
        "the example, a revocation by the primary key": replace(revocation, by_recovery=False),
        "a revocation by the recovery key": revocation,
        "a revocation of the first form": replace(revocation, recovery=None),
        "a succession of the first form": replace(succession, recovery=None),
        "a succession of the first form by the first form": replace(
            succession, recovery=None, new_recovery=None
        ),
        "made at 0": _content("made_ms", 0),
        "made at 2^48 - 1": _content("made_ms", 2**48 - 1),
        "to an ecdsa-p256 key": replace(succession, new=key_of(3, "ecdsa-p256")),
    }
    for name in ("ecdsa-p256", "ml-dsa-65"):
        old, recovery, new, following = (key_of(byte, name) for byte in range(1, 5))
        whole = Draft(old=old, recovery=recovery, new=new, new_recovery=following)
        found |= {
            f"{name}: a succession": whole,
            f"{name}: a succession of the first form": replace(whole, recovery=None),
            f"{name}: a revocation by the primary key": replace(
                whole, kind="revocation", by_recovery=False
            ),
            f"{name}: a revocation by the recovery key": replace(whole, kind="revocation"),
        }
    strong = key_of(2, "ml-dsa-65")
    found["an ml-dsa-65 recovery key of an ed25519 key"] = Draft(recovery=strong)
    return found


def _content(name: str, value: Any, draft: Draft | None = None) -> Draft:
    return replace(draft or Draft(), content=((name, value),))


def _outer(name: str, value: Any, draft: Draft | None = None) -> Draft:
    return replace(draft or Draft(), outer=((name, value),))


def _wrong() -> dict[str, Draft]:
    return {**_malformed(), **_unsupported(), **_refused(), **_unverified()}


def _malformed() -> dict[str, Draft]:
    primary, recovery = second_form(OLD, RECOVERY).cell()
    found = {
        "without a signature": _outer("signature", None),
        "without an algorithm": _outer("signing", None),
        "without content": _outer("content", None),
        "a signature that is text": _outer("signature", "text"),
        "an algorithm that is bytes": _outer("signing", b"ed25519"),
        "a content that is an array": _outer("content", []),
        "a consent that is null": _outer("consent", "null"),
        "noise outside": _outer("noise", b""),
        "an unknown cell outside": _outer("300", 1),
        "a content that is not LBM": _outer("content", b"\xa0\0"),
        "noise in the content": _content("noise", b""),
        "an unknown cell in the content": _content("300", 1),
        "a cell of a card": _content("expires_ms", MADE_MS),
        "without a kind": _content("kind", None),
        "a kind that is a number": _content("kind", 1),
        "without an origin": _content("origin", None),
        "an origin of 31 bytes": _content("origin", bytes(31)),
        "without a time": _content("made_ms", None),
        "made at 2^48": _content("made_ms", 2**48),
        "made before 1970": _content("made_ms", -1),
        "made at true": _content("made_ms", True),
        "without keys": _content("keys", None),
        "a succession without a successor": _content("successor", None),
        "a successor that is null": _content("successor", "null"),
        "a signer that is null": _content("signer", "null"),
        "a signer of one part": _content("signer", ["ed25519"]),
        "a signer of three parts": _content("signer", ["ed25519", RECOVERY.public, None]),
        "a signer whose key is text": _content("signer", ["ed25519", "text"]),
    }
    p256 = key_of(1, "ecdsa-p256")
    for name, cell in {
        "no entry": [],
        "a further key": Identity((OLD, p256)).cell(),
        "a commitment in the first place": [recovery, primary],
        "a commitment in the third place": second_form(OLD, RECOVERY, p256).cell()[::-1],
        "two commitments": [primary, recovery, recovery],
        "a commitment alone": [recovery],
        "a commitment with a binding": [primary, [*recovery[:2], bytes(64)]],
        "a commitment of 31 bytes": [primary, ["recovery", bytes(31), None]],
        "another entry without a binding": [primary, ["delegation", bytes(32), None]],
        "a primary key with a binding": [[*primary[:2], bytes(64)]],
    }.items():
        found[f"an origin with {name}"] = _content("keys", cell)
        found[f"a successor with {name}"] = _content("successor", cell)
    return found


def _unsupported() -> dict[str, Draft]:
    rsa = ["rsa", OLD.public, None]
    return {
        "another kind": _content("kind", "delegation"),
        "another kind, with other cells": replace(
            Draft(), content=(("kind", "delegation"), ("300", 1), ("keys", None))
        ),
        "another kind, with noise": replace(
            Draft(), content=(("kind", "delegation"), ("noise", b""))
        ),
        "a kind in capitals": _content("kind", "Succession"),
        "signed by an unknown algorithm": _outer("signing", "rsa"),
        "an origin of an unknown algorithm": _content("keys", [rsa]),
        "a successor of an unknown algorithm": _content("successor", [rsa]),
        "a signer of an unknown algorithm": _content("signer", ["rsa", RECOVERY.public]),
        "a signer named recovery": _content("signer", ["recovery", RECOVERY.public]),
    }


def _refused() -> dict[str, Draft]:
    """Failures of identity, signer and successor."""
    old_ml, recovery_ml, new_ml = (key_of(byte, "ml-dsa-65") for byte in range(1, 4))
    revocation = Draft("revocation")
    strong = Draft(old=old_ml, recovery=recovery_ml, new=new_ml)
    short = [["ed25519", OLD.public[:-1], None]]
    without = [["ed25519", OLD.public, None]]
    return {
        # identity
        "a key of another origin": _content("origin", id_of("ed25519", OTHER.public)),
        "the origin of the first form": _content("origin", id_of("ed25519", OLD.public)),
        "a commitment that was left out": _content("keys", without),
        "another commitment": _content("keys", second_form(OLD, OTHER).cell()),
        "a primary key of 31 bytes": replace(
            Draft(recovery=None),
            content=(("keys", short), ("origin", id_of("ed25519", OLD.public[:-1]))),
        ),
        # signer
        "a recovery key of the first form": _content(
            "signer", ["ed25519", RECOVERY.public], Draft(recovery=None, signer=RECOVERY)
        ),
        "another key as recovery key": _content(
            "signer", ["ed25519", OTHER.public], Draft(signer=OTHER)
        ),
        "the primary key as recovery key": _content(
            "signer", ["ed25519", OLD.public], Draft(signer=OLD)
        ),
        "the primary key is the recovery key": Draft(recovery=OLD),
        "a recovery key of 31 bytes": _content("signer", ["ed25519", RECOVERY.public[:-1]]),
        "signing names another algorithm than the recovery key": _outer("signing", "ecdsa-p256"),
        "signing names another algorithm than the primary key": _outer(
            "signing", "ecdsa-p256", Draft(recovery=None)
        ),
        "an ed25519 recovery key of an ml-dsa-65 key": replace(strong, recovery=RECOVERY),
        "a revocation by another key": _content(
            "signer", ["ed25519", OTHER.public], replace(revocation, signer=OTHER)
        ),
        # successor
        "without a consent": _outer("consent", None),
        "a successor's primary key of 31 bytes": _content("successor", short),
        "the origin's primary key as successor": replace(Draft(), new=OLD),
        "the recovery key as successor": replace(Draft(), new=RECOVERY),
        "an ed25519 successor of an ml-dsa-65 key": replace(strong, new=NEW),
        "an ed25519 successor of an ml-dsa-65 key of the first form": replace(
            strong, recovery=None, new=NEW
        ),
        "the second form succeeded by its primary key": replace(Draft(), by_recovery=False),
        "the second form succeeded by the first form": replace(Draft(), new_recovery=None),
        "a revocation with a successor": _content(
            "successor", _identity(NEW, NEW_RECOVERY).cell(), revocation
        ),
        "a revocation with a consent": _outer("consent", bytes(64), revocation),
        # before the signature is looked at
        "a wrong signature and another origin": replace(
            _content("origin", bytes(32)), outer=(("signature", bytes(64)),)
        ),
    }


def _unverified() -> dict[str, Draft]:
    """Failures of signature and consent."""
    revocation = Draft("revocation")
    example = Draft()
    weak = Identity((OLD,)).cell()
    weak[0][1] = WEAK
    return {
        "a signature of zeros": _outer("signature", bytes(64)),
        "an empty signature": _outer("signature", b""),
        "a signature of 65 bytes": _outer("signature", bytes(65)),
        "the signature of another key": replace(example, signer=OTHER),
        "signed by the successor": replace(example, signer=NEW),
        "signed by the primary key, in the name of the recovery key": replace(example, signer=OLD),
        "a revocation signed by another key": replace(revocation, signer=OTHER),
        "signed as an envelope": replace(example, signature_label=b"parley1 envelope"),
        "signed as a seal": replace(example, signature_label=b"parley1 seal"),
        "signed as a key binding": replace(example, signature_label=b"parley1 key binding"),
        "signed as a consent": replace(example, signature_label=CONSENT_LABEL),
        "a weak primary key": replace(
            Draft("revocation", recovery=None),
            content=(("keys", weak), ("origin", id_of("ed25519", WEAK))),
        ),
        "a consent of zeros": _outer("consent", bytes(64)),
        "an empty consent": _outer("consent", b""),
        "the consent of another key": replace(example, consenting=OTHER),
        "the consent of the recovery key": replace(example, consenting=RECOVERY),
        "the consent of the successor's recovery key": replace(example, consenting=NEW_RECOVERY),
        "a consent signed as a statement": replace(example, consent_label=STATEMENT_LABEL),
        "a weak successor": _content(
            "successor", [*weak, *_identity(NEW, NEW_RECOVERY).cell()[1:]]
        ),
        "an ml-dsa-65 signature of zeros": _outer(
            "signature",
            bytes(3_309),
            Draft(
                "revocation",
                old=key_of(1, "ml-dsa-65"),
                recovery=key_of(2, "ml-dsa-65"),
                by_recovery=False,
            ),
        ),
    }


def _raw() -> dict[str, bytes]:
    example = Draft().encode()
    cells = cbor.decode_payload(example)
    content, other = cells[CELLS["content"]], Draft(new=OTHER).encode()
    moved = {**cbor.decode_payload(other), CELLS["content"]: content}
    return {
        "no bytes": b"",
        "an array": b"\x80",
        "cut": example[:-1],
        "followed by a byte": example + b"\0",
        "a length that is not in its shortest form": example.replace(
            b"\x18\x42\x67ed25519", b"\x18\x42\x78\x07ed25519"
        ),
        "cells in another order": b"\xa4" + example[1 + len(_head(content)) :] + _head(content),
        "of 16,385 bytes": cbor.encode_payload(
            {**cells, CELLS["signature"]: bytes(16_385 - len(example) + 64 - 1)}
        ),
        "of 16,384 bytes": cbor.encode_payload(
            {**cells, CELLS["signature"]: bytes(16_384 - len(example) + 64 - 1)}
        ),
        "signature and consent of another statement": cbor.encode_payload(moved),
        "signature and consent exchanged": cbor.encode_payload(
            {
                **cells,
                CELLS["signature"]: cells[CELLS["consent"]],
                CELLS["consent"]: cells[CELLS["signature"]],
            }
        ),
    }


def _head(content: bytes) -> bytes:
    """The key and value of the content cell."""
    return cbor.encode_value(CELLS["content"]) + cbor.encode_value(content)


def _statement_files() -> Iterator[Vector]:
    example = Draft().encode()
    text = statements.statement_text(example)
    first, *lines = text.splitlines(keepends=True)
    whole = b"".join(line.rstrip() for line in lines)
    padded = statements.statement_text(Draft("revocation", by_recovery=False).encode())
    forged = statements.statement_text(_outer("signature", bytes(64)).encode())
    large = statements.statement_text(Draft(recovery=key_of(2, "ml-dsa-65")).encode())
    files = {
        "right": text,
        "of the largest kind here": large,
        "without an end of the last line": text.rstrip(),
        "lines that end in CR LF": text.replace(b"\n", b"\r\n"),
        "shorter lines": first
        + b"".join(whole[at : at + 64] + b"\n" for at in range(0, len(whole), 64)),
        "empty": b"",
        "the first line alone": first,
        "another first line": b"parley1 Statement\n" + b"".join(lines),
        "a first line with a blank": b"parley1 statement \n" + b"".join(lines),
        "something before the first line": b"\n" + text,
        "base64 in one line": first + whole + b"\n",
        "a line of 77 characters": first + whole[:77] + b"\n" + whole[77:100] + b"\n",
        "an empty line": text.replace(b"\n", b"\n\n", 1),
        "an empty line at the end": text + b"\n",
        "a blank in a line": text[:40] + b" " + text[41:],
        "a character outside base64": text[:40] + b"-" + text[41:],
        "with padding": padded,
        "without padding": padded.rstrip(b"\n=") + b"\n",
        "a wrong signature": forged,
        "lines that end in CR": text.replace(b"\n", b"\r"),
        "a comment": text + b"# for bob\n",
        "two statements": text + text,
        "bits that are not zero in the last character": first + b"AB==\n",
        "above 32,768 bytes": first + (b"A" * 76 + b"\n") * 426,
    }
    for name, data in files.items():
        vector: Vector = {"name": f"file: {name}", "kind": "file", "input": data.hex()}
        try:
            statement = statements.read_file(data)
            statements.check(statements.read(statement))
        except Invalid as invalid:
            yield {**vector, "fails": invalid.reason, "why": invalid.why}
        else:
            yield {**vector, "expected": {"statement": statement.hex()}}


def _line(length: int, kind: str = "ed25519") -> list[bytes]:
    """Successions, each the next one's predecessor; the keys are of the seeds 1, 2, and so on."""
    return [
        Draft(
            old=key_of(2 * number + 1),
            recovery=key_of(2 * number + 2, kind),
            new=key_of(2 * number + 3),
            new_recovery=key_of(2 * number + 4, kind),
        ).encode()
        for number in range(length)
    ]


def _node(number: int, kind: str = "ed25519") -> Identity:
    """The identity after so many of these successions."""
    return second_form(key_of(2 * number + 1), key_of(2 * number + 2, kind))


def _proofs() -> Iterator[Vector]:
    """Cell 85 (22.37)."""
    line, forged = _line(5), _outer("signature", bytes(64)).encode()
    cells: dict[str, Any] = {
        **{f"{count} statements": line[5 - count :] for count in range(6)},
        "without the cell": None,
        "four empty statements": [b""] * 4,
        "statements that are not LBM": [b"\xff", b"text"],
        "a statement with a wrong signature": [forged],
        "a broken chain": line[::-1][:4],
        "8,192 bytes": [bytes(2_048)] * 4,
        "8,193 bytes": [bytes(2_048)] * 3 + [bytes(2_049)],
        "one of 8,193 bytes": [bytes(8_193)],
        "five empty statements": [b""] * 5,
        "a statement that is text": [line[0], "text"],
        "a statement that is null": [None],
        "a statement that is an array": [[line[0]]],
        "a statement that is a number": [line[0], 1],
        "null": "null",
        "a byte string": line[0],
        "a map": {0: line[0]},
        "text": "text",
        "a number": 0,
    }
    for name, cell in cells.items():
        payload: dict[int, Any] = {
            CELLS["keys"]: _node(5).cell(),
            CELLS["node"]: {"name": "ref"},
        }
        if cell is not None:
            payload[CELLS["statements"]] = None if cell == "null" else cell
        data = cbor.encode_payload(payload)
        vector: Vector = {"name": f"proof: {name}", "kind": "proof", "input": data.hex()}
        try:
            presented = statements.read_presented(payload)
        except Violation as violation:
            yield {**vector, "fails": violation.code, "why": violation.why}
        else:
            yield {**vector, "expected": {"statements": [one.hex() for one in presented]}}


@dataclass(frozen=True)
class Sender:
    """A node that presents statements; the first of `keys` is the primary key."""

    stored: list[bytes]
    keys: tuple[SigningKey, ...]
    recovery: SigningKey
    info: int = 1  # the size of the encoded node information
    sealing: str = "chain"

    def present(self) -> list[bytes]:
        """What it presents in a Proof that its primary key signs."""
        primary = self.keys[0]
        # Bindings are random, but have a fixed size.
        binding = bytes(SIGNATURE_SIZES[primary.algorithm])
        cell: list[Any] = second_form(primary, self.recovery).cell()
        cell += [[key.algorithm, key.public, binding] for key in self.keys[1:]]
        cells = {CELLS["keys"]: cell, CELLS["node"]: information(self.info)}
        overhead = 24 + len(binding) + (17 if self.sealing == "chain" else 0)
        own = second_form(primary, self.recovery).id
        return statements.present(self.stored, own, cells, overhead)


def information(size: int) -> dict[str, str]:
    """Node information of so many bytes, 1 or from 261 to 1,024."""
    return {} if size == 1 else {"a": "x" * (size - 6)}


def _presented() -> Iterator[Vector]:
    """The sender's rules (22.38, 22.39), each with statements that it must not present."""
    line, strong = _line(6), _line(2, "ml-dsa-65")
    last = key_of(9), key_of(10)
    other = Draft(old=OTHER, recovery=key_of(20), new=last[0], new_recovery=last[1]).encode()
    weak_then_strong = Draft(
        old=key_of(3), recovery=key_of(4), new=key_of(5, "ml-dsa-65"), new_recovery=ML_RECOVERY
    ).encode()
    upgraded = [*_line(1), weak_then_strong]
    small = (key_of(5, "ml-dsa-65"),)
    large = (*small, key_of(5), key_of(5, "ecdsa-p256"))
    back = Draft(old=NEW, recovery=NEW_RECOVERY, new=OLD, new_recovery=RECOVERY).encode()
    revocation = Draft("revocation", old=last[0], recovery=last[1]).encode()
    third, fifth = (key_of(5), key_of(6)), (key_of(11), key_of(12))
    senders: dict[str, tuple[Sender, list[bytes]]] = {
        "none stored": (Sender([], last[:1], last[1]), line[:1]),
        "one": (Sender(line[:1], (NEW,), NEW_RECOVERY), []),
        "two": (Sender(line[:2], third[:1], third[1]), line[1:2]),
        "four": (Sender(line[:4], last[:1], last[1]), line[1:4]),
        "five": (Sender(line[:5], fifth[:1], fifth[1]), line[:5]),
        "five, stored in the other order": (
            Sender(line[4::-1], fifth[:1], fifth[1]),
            line[4:0:-1],
        ),
        "those after the own ID": (Sender(line[:6], third[:1], third[1]), line[:6]),
        "of two that lead to an ID, the last stored": (
            Sender([*line[:4], other], last[:1], last[1]),
            line[:4],
        ),
        "of two that lead to an ID, the last stored in the other order": (
            Sender([other, *line[:4]], last[:1], last[1]),
            [other],
        ),
        "a circle": (Sender([*line[:1], back], (NEW,), NEW_RECOVERY), [back, line[0]]),
        "with a revocation of the own ID": (
            Sender([*line[:4], revocation], last[:1], last[1]),
            [*line[1:4], revocation],
        ),
        "an ml-dsa-65 recovery key": (
            Sender(strong[:1], (key_of(3),), key_of(4, "ml-dsa-65")),
            [],
        ),
        "two with ml-dsa-65 recovery keys, of which one fits": (
            Sender(strong, (key_of(5),), key_of(6, "ml-dsa-65")),
            strong,
        ),
        "to an ml-dsa-65 key": (Sender(upgraded, small, ML_RECOVERY), upgraded[1:]),
        "to an ml-dsa-65 key, in the largest Proof": (
            Sender(upgraded, large, ML_RECOVERY, 1_024),
            upgraded[1:],
        ),
        "to an ml-dsa-65 key, in the largest Proof with sealing each": (
            Sender(upgraded, large, ML_RECOVERY, 1_024, "each"),
            upgraded,
        ),
    }
    weak_then_strong = Draft(
        old=key_of(7), recovery=key_of(8), new=small[0], new_recovery=ML_RECOVERY
    ).encode()
    four = [*_line(3), weak_then_strong]
    for sealing, size in (("chain", 715), ("each", 732)):
        fits = Sender(four, (*small, key_of(5)), ML_RECOVERY, size, sealing)
        senders[f"four that just fit, with sealing {sealing}"] = fits, four[1:]
        longer = replace(fits, info=size + 1)
        senders[f"four that are one byte too long, with sealing {sealing}"] = longer, four
    for name, (sender, claimed) in senders.items():
        vector: Vector = {
            "kind": "present",
            "keys": [[key.algorithm, key.seed.hex()] for key in sender.keys],
            "recovery": [sender.recovery.algorithm, sender.recovery.seed.hex()],
            "info_size": sender.info,
            "sealing": sender.sealing,
            "stored": [one.hex() for one in sender.stored],
        }
        presented = sender.present()
        assert presented != claimed, name
        expected = {"statements": [one.hex() for one in presented]}
        yield {"name": f"present: {name}", **vector, "expected": expected}
        yield {
            "name": f"present: not {name}",
            **vector,
            "claimed": [one.hex() for one in claimed],
            "fails": "mismatch",
            "why": "other statements",
        }


def _chains() -> Iterator[Vector]:
    """The reader's rules (22.41, 22.42)."""
    line, ids = _line(5), [_node(number).id for number in range(6)]
    of_first_form = Draft(old=key_of(9), recovery=None, new=key_of(11), new_recovery=key_of(12))
    revocation = Draft("revocation", old=key_of(11), recovery=key_of(12)).encode()
    unknown = _content("kind", "delegation", Draft(new=key_of(11), new_recovery=key_of(12)))
    second = Draft(old=key_of(3), recovery=key_of(4), new=key_of(5), new_recovery=key_of(6))
    forged = replace(second, outer=(("signature", bytes(64)),)).encode()
    without_consent = replace(second, outer=(("consent", None),)).encode()
    elsewhere = [Draft(new=key_of(byte)).encode() for byte in (40, 41)]
    peer = ids[5]
    cases: dict[str, tuple[list[bytes], list[bytes], list[bytes], bytes]] = {
        # presented, stored before, named, peer
        "no statement": ([], [], ids[:1], peer),
        "one": (line[4:], [], ids[4:5], peer),
        "four": (line[1:], [], ids[1:2], peer),
        "four, of which the last is on record": (line[1:], [], ids[4:5], peer),
        "four, of which the second is on record": (line[1:], [], ids[2:3], peer),
        "none on record": (line[1:], [], [], peer),
        "the peer is on record": (line[1:], [], [peer], peer),
        "on record by a stored succession": (line[2:], line[1:2], ids[1:2], peer),
        "one is known": (line[1:], line[1:3], ids[1:2], peer),
        "all are known": (line[1:], line[1:], ids[1:2], peer),
        "of the first form": (
            [of_first_form.encode()],
            [],
            [id_of("ed25519", key_of(9).public)],
            peer,
        ),
        "without room": (line[:2], elsewhere, ids[:1], ids[2]),
        "without room, and on record": (line[:2], elsewhere, ids[:2], ids[2]),
        "a wrong signature of one that is not on record": ([line[0], forged], [], [], ids[2]),
        "the first is wrong": ([forged, *line[2:4]], [], ids[1:3], ids[4]),
        "the second is wrong": ([line[0], forged, *line[2:4]], [], ids[:1], ids[4]),
        "the second is wrong, but known": (
            [line[0], forged, *line[2:4]],
            line[1:2],
            ids[:1],
            ids[4],
        ),
        "the second has no consent": ([line[0], without_consent], [], ids[:1], ids[2]),
        "another peer": (line[1:], [], ids[1:2], ids[4]),
        "one is missing": ([line[1], *line[3:]], [], ids[1:2], peer),
        "the newest first": (line[:0:-1], [], ids[1:2], peer),
        "one twice": ([line[4], line[4]], [], ids[4:5], peer),
        "a revocation": ([revocation], [], [peer], peer),
        "a revocation at the end": ([*line[2:], revocation], [], [peer], peer),
        "another kind": ([unknown.encode()], [], ids[:1], peer),
        "an empty statement": ([b"", line[4]], [], ids[4:5], peer),
        "bytes after a statement": ([line[4] + b"\0"], [], ids[4:5], peer),
        "the last two in the other order": ([*line[1:3], line[4], line[3]], [], ids[1:2], peer),
        "the first form's ID as the peer": (
            line[1:],
            [],
            ids[1:2],
            id_of("ed25519", key_of(11).public),
        ),
    }
    for name, (presented, before, named, node) in cases.items():
        vector: Vector = {
            "name": f"chain: {name}",
            "kind": "chain",
            "presented": [one.hex() for one in presented],
            "stored": [one.hex() for one in before],
            "named": [one.hex() for one in named],
            "peer": node.hex(),
        }
        stored = [statements.read(one) for one in before]
        reason: Vector = {}
        try:
            statements.store_chain(statements.read_chain(presented, node), stored, named)
        except Invalid as invalid:
            reason = {"fails": invalid.reason, "why": invalid.why}
        added = [one.slot.hex() for one in stored[len(before) :]]
        yield {**vector, **reason, **({"added": added} if reason else {"expected": added})}


def _answers() -> Iterator[Vector]:
    """The answer to a node's question (22.53), where the order is unique."""
    line, ids = _line(10), [_node(number).id for number in range(11)]
    revocation = Draft("revocation", old=key_of(7), recovery=key_of(8)).encode()
    other = Draft("revocation", old=key_of(40), recovery=key_of(41)).encode()
    cases: dict[str, tuple[list[bytes], list[bytes], list[bytes]]] = {
        # stored, asked, and what is not the answer
        "none stored": ([], ids[:1], line[:1]),
        "of another ID": (line[:2], ids[5:6], line[:2]),
        "of a successor, without its predecessors": (line[:3], ids[1:2], line[:3]),
        "the newest stored first": (line[2::-1], ids[:1], line[2::-1]),
        "the newest asked first": (line[:3], ids[2::-1], line[2::-1]),
        "the newest stored and asked first": (line[2::-1], ids[2::-1], line[2::-1]),
        "the last and the first asked": (line[:3], [ids[2], ids[0]], [line[2], *line[:2]]),
        "one ID twice": (line[:1], ids[:1] * 2, line[:1] * 2),
        "the end of a successor": ([revocation, *line[:3]], ids[:1], [revocation, *line[:3]]),
        "eight successions": (line, ids[:1], line),
        "eight successions from the second": (line, ids[1:2], line),
        "others are stored": ([other, *line[:2]], ids[:1], [other, *line[:2]]),
    }
    for name, (stored, asked, claimed) in cases.items():
        vector: Vector = {
            "kind": "answer",
            "stored": [one.hex() for one in stored],
            "of": [one.hex() for one in asked],
        }
        found = statements.answer(stored, asked)
        assert found != claimed, name
        yield {
            "name": f"answer: {name}",
            **vector,
            "expected": {"statements": [one.hex() for one in found]},
        }
        yield {
            "name": f"answer: not {name}",
            **vector,
            "claimed": [one.hex() for one in claimed],
            "fails": "mismatch",
            "why": "other statements, or another order",
        }
