"""Tests of crypto/identity.py: node IDs, bindings, and every invalid identity."""

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import IdentityError, UnknownAlgorithmError
from parley._crypto.identity import Identity, NodeId, PublicIdentity
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningKey

each_primary = pytest.mark.parametrize("primary", SIGNING)

SAMPLE = NodeId(bytes(range(32)))


def identity_of(primary: str) -> Identity:
    """Return an identity with all algorithms, this one first."""
    return Identity.create((primary, *(name for name in SIGNING if name != primary)))


def bind(primary: SigningKey, algorithm: str, public: bytes) -> bytes:
    """Sign a binding as specified in section 4, also for unknown algorithms."""

    def named(name: str) -> bytes:
        return bytes((len(name.encode()),)) + name.encode()

    node_id = hashlib.sha256(
        b"parley1 node id" + named(primary.algorithm) + primary.public
    ).digest()
    return primary.sign(b"parley1 key binding" + node_id + named(algorithm) + public)


# Node IDs.


def test_the_text_of_a_node_id() -> None:
    assert SAMPLE.text == "aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypq"
    assert str(SAMPLE) == f"{SAMPLE}" == SAMPLE.text
    assert SAMPLE.short == "aaaqeaye"
    assert repr(SAMPLE) == f"NodeId({SAMPLE.text})"
    assert bytes(range(32)) == SAMPLE
    assert hash(SAMPLE) == hash(bytes(range(32)))


@given(st.binary(min_size=32, max_size=32))
def test_text_and_node_id_are_each_others_inverse(value: bytes) -> None:
    text = NodeId(value).text
    assert len(text) == 52
    assert text == text.lower()
    assert NodeId.parse(text) == value
    assert base64.b32decode(text.upper() + "====") == value


@given(st.text(max_size=60) | st.text("abcxyz234567=", min_size=50, max_size=56))
def test_any_text_is_a_node_id_or_the_typed_error(text: str) -> None:
    try:
        node_id = NodeId.parse(text)
    except IdentityError:
        return
    assert node_id.text == text


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_node_id_has_32_bytes(size: int) -> None:
    with pytest.raises(IdentityError):
        NodeId(bytes(size))


def test_the_uuid_is_of_version_8() -> None:
    for value in (bytes(32), b"\xff" * 32, bytes(range(32))):
        uuid = NodeId(value).uuid
        assert uuid.version == 8
        assert uuid.variant == "specified in RFC 4122"
        kept = bytearray(uuid.bytes)
        kept[6] = kept[6] & 0x0F | value[6] & 0xF0
        kept[8] = kept[8] & 0x3F | value[8] & 0xC0
        assert kept == value[:16]


# Identities.


@each_primary
def test_a_public_identity_is_what_the_cells_say(primary: str) -> None:
    identity = identity_of(primary)
    public = PublicIdentity.parse(identity.cells())
    assert public == identity.public
    assert hash(public) == hash(identity.public)
    assert public.node_id == identity.node_id
    assert public.node_id == NodeId.of_key(primary, identity.key(primary).public)
    assert public.algorithms == identity.algorithms
    assert public.primary == primary
    assert public.cells() == identity.cells()
    for name in SIGNING:
        key = identity.key(name)
        public.verifier(name).verify(key.sign(b"m"), b"m")


@each_primary
def test_one_key_is_enough(primary: str) -> None:
    identity = Identity.create((primary,))
    assert identity.cells() == [[primary, identity.key(primary).public, None]]
    assert identity.public.algorithms == (primary,)
    for name in SIGNING:
        if name != primary:
            with pytest.raises(IdentityError):
                identity.public.verifier(name)
            with pytest.raises(IdentityError):
                identity.key(name)


def test_the_default_identity_is_one_ed25519_key() -> None:
    assert Identity.create().algorithms == ("ed25519",)
    assert Identity.create().node_id != Identity.create().node_id


def test_equality_is_of_keys() -> None:
    identity = identity_of("ml-dsa-65")
    # ML-DSA signatures are randomised, so the same keys have different bindings here.
    again = Identity.from_keys(identity.keys)
    assert again.cells() != identity.cells()
    assert again.public == identity.public
    assert identity.public != Identity.create().public
    assert identity.public != identity.node_id


def test_what_makes_no_identity_of_ones_own() -> None:
    key = SIGNING["ed25519"].generate()
    with pytest.raises(IdentityError):
        Identity.from_keys([])
    with pytest.raises(IdentityError):
        Identity.from_keys([key, SIGNING["ed25519"].generate()])
    with pytest.raises(UnknownAlgorithmError):
        Identity.create(("rsa",))
    with pytest.raises(IdentityError):
        Identity.create(())


@each_primary
def test_bindings_of_unknown_algorithms_are_verified_then_ignored(primary: str) -> None:
    key = SIGNING[primary].generate()
    entries: list[list[Any]] = [
        [primary, key.public, None],
        ["future-1", b"\x01" * 7, bind(key, "future-1", b"\x01" * 7)],
    ]
    public = PublicIdentity.parse(entries)
    assert public.algorithms == (primary,)
    assert public.cells() == entries
    with pytest.raises(IdentityError):
        public.verifier("future-1")
    entries[1][2] = bind(key, "future-2", b"\x01" * 7)
    with pytest.raises(IdentityError):
        PublicIdentity.parse(entries)


def test_names_have_1_to_255_bytes() -> None:
    key = SIGNING["ed25519"].generate()
    first: list[Any] = ["ed25519", key.public, None]
    for name in ("x", "é" * 127 + "x"):
        PublicIdentity.parse([first, [name, b"k", bind(key, name, b"k")]])
    for name in ("", "x" * 256, "é" * 128, "\udc80"):
        with pytest.raises(IdentityError):
            PublicIdentity.parse([first, [name, b"k", bytes(64)]])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=4) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(), inner, max_size=2),
    max_leaves=8,
)


@given(values)
def test_any_value_gives_the_typed_error(value: object) -> None:
    with pytest.raises(IdentityError):
        PublicIdentity.parse(value)


@given(st.integers(0, 2), st.integers(0, 2), values)
def test_a_cell_of_any_other_value_gives_the_typed_error(
    row: int, column: int, value: object
) -> None:
    cells: list[list[object]] = [list(entry) for entry in IDENTITY.cells()]
    if value == cells[row][column]:
        return
    cells[row][column] = value
    with pytest.raises(IdentityError):
        PublicIdentity.parse(cells)


IDENTITY = identity_of("ed25519")


def test_no_secret_in_repr() -> None:
    shown = repr(IDENTITY) + str(IDENTITY) + repr(IDENTITY.public) + repr(IDENTITY.keys)
    assert IDENTITY.node_id.short in shown
    for key in IDENTITY.keys:
        assert key.private_bytes().hex() not in shown
        assert repr(key.private_bytes()) not in shown
