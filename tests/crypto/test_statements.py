"""Tests of crypto/statements.py: vectors, made statements, and properties of the form."""

from hashlib import sha256
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import CryptoError, IdentityError, StatementError
from parley._crypto.identity import Identity, NodeId, PrimaryKey, PublicIdentity, RecoveryKey
from parley._crypto.registry import SIGNING
from parley._crypto.statements import (
    MAX_MADE_MS,
    Statement,
    create_revocation,
    create_succession,
)
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._lbm.fields import read_array
from tests.vectors.load import Vector, of_kind, select, unhex, vectors

MADE_MS = 1_800_000_000_000
ED25519 = SIGNING["ed25519"]
OLD, RECOVERY, NEW, NEW_RECOVERY = (ED25519.load(bytes([byte]) * 32) for byte in range(1, 5))
OLD_RECOVERY = RecoveryKey(RECOVERY, "ed25519", OLD.public)
SUCCESSOR = Identity.from_keys(
    [NEW], RecoveryKey(NEW_RECOVERY, "ed25519", NEW.public).primary_key.commitment
)
ORIGIN = Identity.from_keys([OLD], OLD_RECOVERY.primary_key.commitment)

each_algorithm = pytest.mark.parametrize("algorithm", SIGNING)


def reason_of(encoded: bytes) -> str:
    with pytest.raises(StatementError) as caught:
        Statement.parse(encoded).verify()
    assert str(caught.value).startswith("invalid key statement: ")
    return caught.value.reason


# Vectors.


def private(vector: Vector, prefix: str = "") -> Any:
    algorithm = vector[f"{prefix}algorithm"]
    return algorithm and SIGNING[algorithm].load(unhex(vector[f"{prefix}seed"]))


def primary_of(vector: Vector) -> PrimaryKey:
    key, recovery = private(vector), private(vector, "recovery_")
    if recovery is None:
        return Identity.from_keys([key]).primary_key
    return RecoveryKey(recovery, key.algorithm, key.public).primary_key


@vectors("keys", of_kind("identity"), fails=False)
def test_an_identity(vector: Vector) -> None:
    primary, expected = primary_of(vector), vector["expected"]
    commitment = primary.commitment and primary.commitment.hex()
    assert commitment == expected["commitment"]
    assert primary.node_id.hex() == expected["node_id"]
    assert primary.node_id.text == expected["text"]


@vectors("keys", of_kind("identity"), fails=True)
def test_another_identity(vector: Vector) -> None:
    assert primary_of(vector).node_id.hex() != vector["claimed"]


def cell_of(vector: Vector) -> list[Any]:
    return read_array(decode(unhex(vector["input"])), keys.IDENTITY_KEYS)


@vectors("keys", of_kind("cell"), fails=False)
def test_a_cell_of_a_proof(vector: Vector) -> None:
    identity = PublicIdentity.parse(cell_of(vector))
    assert identity.node_id.hex() == vector["expected"]["node_id"]
    assert sorted(identity.algorithms) == vector["expected"]["algorithms"]
    assert identity.cells() == cell_of(vector)


@vectors("keys", of_kind("cell"), fails=True)
def test_a_refused_cell_of_a_proof(vector: Vector) -> None:
    with pytest.raises(IdentityError):
        PublicIdentity.parse(cell_of(vector))


@vectors("keys", of_kind("origin"), fails=False)
def test_a_cell_outside_of_a_proof(vector: Vector) -> None:
    primary = PrimaryKey.parse(cell_of(vector))
    assert primary.node_id.hex() == vector["expected"]["node_id"]
    assert primary.cells() == cell_of(vector)


@vectors("keys", of_kind("origin"), fails=True)
def test_a_refused_cell_outside_of_a_proof(vector: Vector) -> None:
    with pytest.raises(IdentityError):
        PrimaryKey.parse(cell_of(vector))


@vectors("keys", of_kind("statement"), fails=False)
def test_a_statement(vector: Vector) -> None:
    statement = Statement.parse(unhex(vector["input"]))
    statement.verify()
    assert {
        "kind": statement.kind,
        "origin": statement.origin.hex(),
        "successor": statement.successor and statement.successor.hex(),
        "made_ms": statement.made_ms,
        "by_recovery": statement.by_recovery,
        "slot": statement.slot.hex(),
    } == vector["expected"]


@vectors("keys", of_kind("statement"), fails=True)
def test_a_refused_statement(vector: Vector) -> None:
    assert reason_of(unhex(vector["input"])) == vector["fails"]


def test_every_reason_has_a_vector() -> None:
    reasons = {vector["fails"] for vector in select("keys", of_kind("statement"), fails=True)}
    assert reasons == {
        *("malformed", "unsupported", "identity", "signer", "successor", "signature", "consent")
    }


# Made statements.


def test_the_example() -> None:
    statement = create_succession(OLD_RECOVERY, SUCCESSOR, made_ms=MADE_MS)
    example = select("keys", lambda vector: vector["name"].endswith("the example, a succession"))
    assert [vector["input"] for vector in example] == [statement.encoded.hex()]
    assert len(statement.encoded) == 441
    digest = "7091e00cd64b679523213657d2b797e70e7e0f300de87444422037b9c4c73013"
    assert sha256(statement.encoded).hexdigest() == digest
    slot = "26884b67d5eaee7ed942f26c69fa1c7a48ef4428f580eb0943cc5d045de5e5ee"
    assert statement.slot.hex() == slot
    assert statement.signer == ("ed25519", RECOVERY.public)
    revocation = create_revocation(ORIGIN, made_ms=MADE_MS)
    assert len(revocation.encoded) == 235
    digest = "ff325af92809acb55f6b7108ef592b5ad4d4ff20aa7779c84bb66a9a3960a721"
    assert sha256(revocation.encoded).hexdigest() == digest
    assert revocation.signer == ("ed25519", OLD.public)


@each_algorithm
def test_made_statements_are_valid(algorithm: str) -> None:
    old, recovery = Identity.create_recoverable((algorithm,))
    plain = Identity.create((algorithm,))
    new, _ = Identity.create_recoverable((algorithm,))
    for statement, origin, by_recovery in (
        (create_succession(recovery, new), old, True),
        (create_succession(plain, new), plain, False),
        (create_succession(plain, Identity.create((algorithm,))), plain, False),
        (create_revocation(recovery), old, True),
        (create_revocation(old), old, False),
        (create_revocation(plain), plain, False),
    ):
        assert (statement.origin, statement.by_recovery) == (origin.node_id, by_recovery)
        again = Statement.parse(statement.encoded)
        again.verify()
        assert again == statement
        assert len(statement.encoded) <= 16_384


@pytest.mark.parametrize(
    ("signer", "successor", "text"),
    [
        (ORIGIN, SUCCESSOR, "only that can name a successor"),
        (OLD_RECOVERY, Identity.create(), "the successor has none"),
        (OLD_RECOVERY, ORIGIN, "a key of the origin"),
        (OLD_RECOVERY, Identity.from_keys([RECOVERY], bytes(32)), "a key of the origin"),
        (Identity.create(("ml-dsa-65",)), SUCCESSOR, "invalid successor of ed25519"),
    ],
)
def test_a_successor_that_cannot_be_named(
    signer: RecoveryKey | Identity, successor: Identity, text: str
) -> None:
    with pytest.raises(StatementError, match=text) as caught:
        create_succession(signer, successor)
    assert caught.value.reason == "successor"


@pytest.mark.parametrize("made_ms", [-1, MAX_MADE_MS + 1])
def test_the_range_of_the_time(made_ms: int) -> None:
    with pytest.raises(StatementError):
        create_revocation(ORIGIN, made_ms=made_ms)


def test_the_time_is_only_shown() -> None:
    """All statements of a slot mean the same, also those whose time differs."""
    one, other = (create_succession(OLD_RECOVERY, SUCCESSOR, made_ms=ms) for ms in (0, MADE_MS))
    assert one.slot == other.slot
    assert one.encoded != other.encoded
    slots = {
        one.slot,
        create_revocation(ORIGIN).slot,
        create_succession(OLD_RECOVERY, Identity.create_recoverable()[0]).slot,
    }
    assert len(slots) == 3
    assert create_revocation(ORIGIN).slot == create_revocation(OLD_RECOVERY).slot
    assert create_revocation(ORIGIN).slot == sha256(ORIGIN.node_id).digest()


# Properties.

EXAMPLE = create_succession(OLD_RECOVERY, SUCCESSOR, made_ms=MADE_MS).encoded
REVOCATION = create_revocation(OLD_RECOVERY, made_ms=MADE_MS).encoded


@pytest.mark.parametrize("encoded", [EXAMPLE, REVOCATION], ids=["succession", "revocation"])
def test_every_changed_bit_is_found(encoded: bytes) -> None:
    for place in range(8 * len(encoded)):
        changed = bytearray(encoded)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(StatementError):
            Statement.parse(bytes(changed)).verify()


@pytest.mark.parametrize("encoded", [EXAMPLE, REVOCATION], ids=["succession", "revocation"])
def test_every_shorter_one_is_malformed(encoded: bytes) -> None:
    for size in range(len(encoded)):
        assert reason_of(encoded[:size]) == "malformed"


@given(st.binary(max_size=400))
def test_any_bytes_give_the_typed_error(data: bytes) -> None:
    with pytest.raises(StatementError):
        Statement.parse(data)


values = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2**64 - 1)
    | st.binary(max_size=40)
    | st.text(max_size=8)
    | st.sampled_from([[], ["ed25519", OLD.public], ORIGIN.cells(), SUCCESSOR.cells()])
)


@given(st.sampled_from([keys.CONTENT, keys.SIGNING, keys.SIGNATURE, keys.CONSENT, 0, 300]), values)
def test_a_changed_cell_is_refused(key: int, value: Any) -> None:
    cells = decode(EXAMPLE)
    if key == 0 and not isinstance(value, bytes):
        return
    if cells.get(key) == value:
        return
    with pytest.raises(StatementError):
        Statement.parse(encode({**cells, key: value})).verify()


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *(keys.KIND, keys.ORIGIN, keys.MADE_MS, keys.IDENTITY_KEYS),
                *(keys.SUCCESSOR, keys.SIGNER, 300),
            ]
        ),
        values,
        min_size=1,
    )
)
def test_a_statement_of_the_right_form_encodes_to_the_same_bytes(cells: dict[int, Any]) -> None:
    """Whatever its content: no second encoding has the same meaning."""
    content = {**decode(decode_content(EXAMPLE)), **cells}
    encoded = encode({**decode(EXAMPLE), keys.CONTENT: encode(content)})
    try:
        statement = Statement.parse(encoded)
    except StatementError:
        return
    assert encode(decode(encoded)) == encoded
    assert encode(decode(decode_content(encoded))) == decode_content(encoded)
    assert statement.made_ms == content[keys.MADE_MS]
    assert statement.origin == content[keys.ORIGIN]


def decode_content(encoded: bytes) -> bytes:
    content = decode(encoded)[keys.CONTENT]
    assert isinstance(content, bytes)
    return content


def test_a_statement_needs_no_signature_to_have_a_slot() -> None:
    """Most statements are dropped by their slot, before a signature is verified."""
    cells = {**decode(EXAMPLE), keys.SIGNATURE: b""}
    assert Statement.parse(encode(cells)).slot == Statement.parse(EXAMPLE).slot


def test_a_signature_of_another_purpose_is_refused() -> None:
    """No label is the beginning of another, so no signed message has two meanings."""
    labels = (
        *(b"parley1 seal", b"parley1 key binding", b"parley1 envelope"),
        *(b"parley1 key statement", b"parley1 successor consent"),
        *(b"parley1 node id", b"parley1 recovery key", b"parley1 recoverable id"),
    )
    for one, other in product(labels, labels):
        assert one == other or not one.startswith(other)


def test_a_statement_shows_no_secret() -> None:
    shown = repr(create_succession(OLD_RECOVERY, SUCCESSOR))
    assert ORIGIN.node_id.text in shown
    assert RECOVERY.private_bytes().hex() not in shown
    assert isinstance(Statement.parse(EXAMPLE).successor, NodeId)
    assert issubclass(StatementError, CryptoError)
