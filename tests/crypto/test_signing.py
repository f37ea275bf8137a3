"""Tests of crypto/signing.py: published values, weak keys, malleable signatures and those of other
keys.
"""

import hashlib

import nacl.bindings
import pytest

from parley._crypto.errors import InvalidKeyError, SignatureError
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningAlgorithm
from tests.sweep import sweep

each_algorithm = pytest.mark.parametrize(
    "algorithm", SIGNING.values(), ids=lambda algorithm: algorithm.name
)

ED25519 = SIGNING["ed25519"]
ECDSA = SIGNING["ecdsa-p256"]

P = 2**255 - 19
ORDER_8_Y = (
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7,
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
)
# Every encoding of every point of small order: y with either sign, canonical or not.
SMALL_ORDER = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, P - 1, P, P + 1, *ORDER_8_Y)
    for sign in (0, 1)
]
NOT_CANONICAL = [
    (y | sign << 255).to_bytes(32, "little") for y in range(P, 2**255) for sign in (0, 1)
]

N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@each_algorithm
def test_sign_and_verify(algorithm: SigningAlgorithm) -> None:
    key = algorithm.generate()
    assert key.algorithm == algorithm.name
    assert len(key.public) == algorithm.public_size
    verifier = algorithm.verifier(key.public)
    for message in (b"", b"message", bytes(10_000)):
        signature = key.sign(message)
        assert len(signature) == algorithm.signature_size
        verifier.verify(signature, message)


@each_algorithm
def test_a_key_is_its_private_bytes(algorithm: SigningAlgorithm) -> None:
    key = algorithm.generate()
    again = algorithm.load(key.private_bytes())
    assert again.public == key.public
    algorithm.verifier(key.public).verify(again.sign(b"m"), b"m")
    assert algorithm.generate().public != key.public


@each_algorithm
def test_anything_altered_is_refused(algorithm: SigningAlgorithm) -> None:
    key = algorithm.generate()
    verifier = algorithm.verifier(key.public)
    signature = key.sign(b"message")
    positions = range(0, algorithm.signature_size, max(1, algorithm.signature_size // 64))
    flipped = [
        signature[:position] + bytes((signature[position] ^ 1 << bit,)) + signature[position + 1 :]
        for position in (*positions, algorithm.signature_size - 1)
        for bit in (0, 7)
    ]
    for bad in (*flipped, b"", signature[:-1], signature + b"\0", bytes(len(signature))):
        with pytest.raises(SignatureError):
            verifier.verify(bad, b"message")
    with pytest.raises(SignatureError):
        verifier.verify(signature, b"messagE")
    with pytest.raises(SignatureError):
        algorithm.verifier(algorithm.generate().public).verify(signature, b"message")


@each_algorithm
def test_bytes_moved_between_signature_and_message(algorithm: SigningAlgorithm) -> None:
    # A library that accepts both joined would verify a forged signature.
    key = algorithm.generate()
    verifier = algorithm.verifier(key.public)
    signature = key.sign(b"message")
    for moved in range(1, len(b"message") + 1):
        with pytest.raises(SignatureError):
            verifier.verify(signature + b"message"[:moved], b"message"[moved:])
        with pytest.raises(SignatureError):
            verifier.verify(signature[:-moved], signature[-moved:] + b"message")


@each_algorithm
def test_wrong_sizes_of_keys(algorithm: SigningAlgorithm) -> None:
    public = algorithm.generate().public
    for bad in (b"", public[:-1], public + b"\0"):
        with pytest.raises(InvalidKeyError):
            algorithm.verifier(bad)
    for size in (0, algorithm.private_size - 1, algorithm.private_size + 1):
        with pytest.raises(InvalidKeyError):
            algorithm.load(bytes(size))


@each_algorithm
def test_a_key_of_noise_is_refused_or_verifies_nothing(algorithm: SigningAlgorithm) -> None:
    for number in range(50):
        noise = hashlib.shake_256(bytes((number,))).digest(8192)
        public, signature = noise[: algorithm.public_size], noise[-algorithm.signature_size :]
        with pytest.raises(SignatureError):
            algorithm.verifier(public).verify(signature, b"m")


@each_algorithm
def test_no_secret_in_repr(algorithm: SigningAlgorithm) -> None:
    key = algorithm.load(b"K" * algorithm.private_size)
    for shown in (repr(key), str(key), repr(algorithm.verifier(key.public))):
        assert "KKKK" not in shown
        assert (b"K" * 4).hex() not in shown
        assert algorithm.name in shown


@sweep("public", SMALL_ORDER, ids=bytes.hex)
def test_small_order_ed25519_keys_are_refused(public: bytes) -> None:
    with pytest.raises(InvalidKeyError):
        ED25519.verifier(public)


@sweep("public", NOT_CANONICAL, ids=bytes.hex)
def test_non_canonical_ed25519_keys_are_refused(public: bytes) -> None:
    with pytest.raises(InvalidKeyError):
        ED25519.verifier(public)


def test_mixed_order_and_off_curve_ed25519_keys_are_refused() -> None:
    public = ED25519.generate().public
    mixed = nacl.bindings.crypto_core_ed25519_add(public, ORDER_8_Y[0].to_bytes(32, "little"))
    with pytest.raises(InvalidKeyError):
        ED25519.verifier(mixed)
    with pytest.raises(InvalidKeyError):
        ED25519.verifier((2).to_bytes(32, "little"))  # no point has y = 2


def test_ecdsa_signatures_have_a_low_s() -> None:
    key = ECDSA.generate()
    for number in range(50):
        assert int.from_bytes(key.sign(bytes((number,)))[32:], "big") <= N // 2


@pytest.mark.parametrize("value", [0, N, 2**256 - 1])
def test_p256_private_keys_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(InvalidKeyError):
        ECDSA.load(value.to_bytes(32, "big"))


@pytest.mark.pure
def test_p256_scalars_are_drawn_until_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([bytes(32), b"\xff" * 32, bytes(31) + b"\x07"])
    monkeypatch.setattr("parley._crypto.signing.random_bytes", lambda size: next(draws))
    assert ECDSA.generate().private_bytes() == bytes(31) + b"\x07"
