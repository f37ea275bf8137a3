"""Tests of crypto/signing.py: published values, weak keys, malleable and foreign signatures."""

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
L = 2**252 + 27742317777372353535851937790883648493
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
    # A library that takes the two joined would verify what nobody signed.
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


def test_rfc_8032_test_2() -> None:
    key = ED25519.load(
        bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    )
    assert key.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


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


def test_a_malleable_ed25519_signature_is_refused() -> None:
    key = ED25519.generate()
    signature = key.sign(b"m")
    raised = int.from_bytes(signature[32:], "little") + L
    with pytest.raises(SignatureError):
        ED25519.verifier(key.public).verify(signature[:32] + raised.to_bytes(32, "little"), b"m")


def test_rfc_6979_p256_sample_with_low_s() -> None:
    key = ECDSA.load(
        bytes.fromhex("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721")
    )
    assert key.public.hex() == (
        "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
        "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
    )
    r = "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
    high = 0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8
    assert key.sign(b"sample").hex() == r + f"{N - high:064x}"


def test_ecdsa_signatures_have_a_low_s() -> None:
    key = ECDSA.generate()
    for number in range(50):
        assert int.from_bytes(key.sign(bytes((number,)))[32:], "big") <= N // 2


def test_a_high_s_is_refused() -> None:
    key = ECDSA.generate()
    signature = key.sign(b"m")
    high = N - int.from_bytes(signature[32:], "big")
    with pytest.raises(SignatureError):
        ECDSA.verifier(key.public).verify(signature[:32] + high.to_bytes(32, "big"), b"m")


@pytest.mark.parametrize("value", [0, N, N + 1, 2**256 - 1])
def test_r_and_s_out_of_range_are_refused(value: int) -> None:
    key = ECDSA.generate()
    verifier = ECDSA.verifier(key.public)
    signature = key.sign(b"m")
    bad = value.to_bytes(32, "big")
    for altered in (bad + signature[32:], signature[:32] + bad, bad + bad):
        with pytest.raises(SignatureError):
            verifier.verify(altered, b"m")


@pytest.mark.parametrize("first", [0x00, 0x02, 0x03, 0x05, 0x06, 0x07])
def test_other_forms_of_a_p256_point_are_refused(first: int) -> None:
    with pytest.raises(InvalidKeyError):
        ECDSA.verifier(bytes((first,)) + ECDSA.generate().public[1:])


def test_p256_points_off_the_curve_are_refused() -> None:
    public = bytearray(ECDSA.generate().public)
    public[-1] ^= 1
    for bad in (bytes(public), b"\x04" + bytes(64), b"\x04" + b"\xff" * 64):
        with pytest.raises(InvalidKeyError):
            ECDSA.verifier(bad)


@pytest.mark.parametrize("value", [0, N, 2**256 - 1])
def test_p256_private_keys_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(InvalidKeyError):
        ECDSA.load(value.to_bytes(32, "big"))


@pytest.mark.pure
def test_p256_scalars_are_drawn_until_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([bytes(32), b"\xff" * 32, bytes(31) + b"\x07"])
    monkeypatch.setattr("parley._crypto.signing.random_bytes", lambda size: next(draws))
    assert ECDSA.generate().private_bytes() == bytes(31) + b"\x07"
