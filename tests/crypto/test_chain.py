"""Tests of crypto/chain.py: the chain, the seals, and that a seal is nothing else."""

import pytest

from parley._crypto.chain import HashChain, check_seal, make_seal, seal_mask
from parley._crypto.errors import SignatureError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.kdf import label
from parley._crypto.registry import HASHES, SIGNING
from parley._crypto.signing import SigningAlgorithm

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
    # Unmasked by hand, it is the plain signature.
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
    # Ed25519 is deterministic: without the mask two sessions would show the same signature.
    key = SIGNING["ed25519"].generate()
    one, other = (make_seal(key, SHA256, commit, D) for commit in (COMMIT, bytes(32)))
    assert one != other


def test_repr_shows_the_public_start_only() -> None:
    assert repr(HashChain(SHA256, D)) == "<HashChain 55555555..>"
