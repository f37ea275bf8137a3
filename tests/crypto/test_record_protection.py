"""Tests of crypto/record_protection.py: nonces, counters, and data that must not decrypt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import CounterExhaustedError, DecryptError, SignatureError
from parley._crypto.hashing import HashAlgorithm, label
from parley._crypto.record_protection import HashChain, StreamKey, check_seal, make_seal, seal_mask
from parley._crypto.registry import CIPHERS, HASHES, SIGNING, Suite
from parley._crypto.signing import SigningAlgorithm

AAD = b"\0\0\0\1\0"
SECRET = b"\x33" * 32

SUITES = [Suite("x25519", "ed25519", h, c, "chain") for h in HASHES for c in CIPHERS]
each_suite = pytest.mark.parametrize("suite", SUITES, ids=lambda s: f"{s.hash} {s.cipher}")


def pair(suite: Suite, stream: int = 1) -> tuple[StreamKey, StreamKey]:
    return StreamKey(suite, SECRET, stream), StreamKey(suite, SECRET, stream)


@each_suite
def test_events_open_in_their_order(suite: Suite) -> None:
    writer, reader = pair(suite)
    for number in range(5):
        data = bytes((number,)) * number
        blob = writer.encrypt(data, AAD)
        assert len(blob) == len(data) + 16
        assert reader.decrypt(blob, AAD) == data
        assert writer.counter == reader.counter == number + 1


@each_suite
def test_reordered_replayed_or_dropped_does_not_open(suite: Suite) -> None:
    writer, reader = pair(suite)
    first, second, third = (writer.encrypt(b"same", AAD) for _ in range(3))
    assert len({first, second, third}) == 3
    with pytest.raises(DecryptError):
        reader.decrypt(second, AAD)
    assert reader.decrypt(first, AAD) == b"same"
    for bad in (first, third):
        with pytest.raises(DecryptError):
            reader.decrypt(bad, AAD)
    assert reader.decrypt(second, AAD) == b"same"


@each_suite
@given(blob=st.binary(max_size=64))
def test_any_bytes_give_the_typed_error(suite: Suite, blob: bytes) -> None:
    with pytest.raises(DecryptError):
        StreamKey(suite, SECRET, 1).decrypt(blob, AAD)


@each_suite
def test_the_counter_never_wraps(suite: Suite) -> None:
    writer, reader = pair(suite)
    writer.counter = reader.counter = 2**64 - 1
    assert reader.decrypt(writer.encrypt(b"last", AAD), AAD) == b"last"
    for _ in range(2):
        with pytest.raises(CounterExhaustedError):
            writer.encrypt(b"more", AAD)
        with pytest.raises(CounterExhaustedError):
            reader.decrypt(bytes(20), AAD)


def test_a_failed_encryption_spends_its_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = pair(SUITES[0])
    with pytest.raises(TypeError):
        writer.encrypt("no bytes", AAD)  # type: ignore[arg-type]  # that is the test
    assert writer.counter == 1


@each_suite
def test_no_secret_in_repr(suite: Suite) -> None:
    shown = repr(StreamKey(suite, b"K" * 32, 1))
    assert "KKKK" not in shown
    assert "counter=0" in shown


each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)
each_algorithm = pytest.mark.parametrize(
    "algorithm", SIGNING.values(), ids=lambda algorithm: algorithm.name
)

SHA256 = HASHES["sha256"]
COMMIT = b"\x44" * 32
D = b"\x55" * 32


def test_a_view_is_chained_like_its_bytes() -> None:
    one, other = HashChain(SHA256, D), HashChain(SHA256, D)
    view = memoryview(b"\0\0\0\1blob")
    assert one.advance(b"\0\0\0\1", b"blob") == other.advance(view[:4], view[4:])


@each_algorithm
@each_hash
def test_seals(algorithm: SigningAlgorithm, hash: HashAlgorithm) -> None:
    key = algorithm.generate()
    verifier = algorithm.verifier(key.public)
    commit, d = hash.digest(b"commit"), hash.digest(b"d")
    seal = make_seal(key, hash, commit, d)
    assert len(seal) == algorithm.signature_size
    check_seal(verifier, hash, commit, d, seal)
    # Without its mask, it is the plain signature.
    mask = label(hash, commit, "seal mask", d, len(seal))
    assert mask == seal_mask(hash, commit, d, len(seal))
    signature = bytes(a ^ b for a, b in zip(seal, mask, strict=True))
    verifier.verify(signature, b"parley1 seal" + d)
    with pytest.raises(SignatureError):
        check_seal(verifier, hash, commit, d, signature)
    with pytest.raises(SignatureError):
        check_seal(verifier, hash, hash.digest(b"other"), d, seal)
    with pytest.raises(SignatureError):
        check_seal(verifier, hash, commit, hash.digest(b"other"), seal)


@each_algorithm
def test_a_seal_that_was_altered_cut_or_made_by_another(algorithm: SigningAlgorithm) -> None:
    key, other = algorithm.generate(), algorithm.generate()
    verifier = algorithm.verifier(key.public)
    seal = make_seal(key, SHA256, COMMIT, D)
    middle = len(seal) // 2
    altered = seal[:middle] + bytes((seal[middle] ^ 1,)) + seal[middle + 1 :]
    foreign = make_seal(other, SHA256, COMMIT, D)
    for bad in (b"", seal[:-1], seal + b"\0", bytes(len(seal)), altered, foreign):
        with pytest.raises(SignatureError):
            check_seal(verifier, SHA256, COMMIT, D, bad)


def test_the_mask_hides_equal_signatures() -> None:
    # Ed25519 is deterministic: without the mask, two sessions would show the same signature.
    key = SIGNING["ed25519"].generate()
    one, other = (make_seal(key, SHA256, commit, D) for commit in (COMMIT, bytes(32)))
    assert one != other


def test_repr_shows_the_public_start_only() -> None:
    assert repr(HashChain(SHA256, D)) == "<HashChain 55555555..>"
