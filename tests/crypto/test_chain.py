"""Tests of crypto/chain.py: the chain, the seals, and that a seal is nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.chain import HashChain, check_seal, make_seal, seal_mask
from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.identity import Identity, PublicIdentity
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


@each_hash
def test_the_chain_is_that_of_section_6(hash: HashAlgorithm) -> None:
    d = hash.digest(b"start")
    chain = HashChain(hash, d)
    for number in range(4):
        stream, blob = number.to_bytes(4, "big"), bytes(number * 100)
        d = hash.digest(d + stream + blob)
        assert chain.advance(stream, blob) == d
        assert chain.value == d


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=8)), max_size=5), st.data())
def test_any_difference_shows(events: list[tuple[int, bytes]], data: st.DataObject) -> None:
    other = data.draw(st.permutations(events) | st.just(events[:-1]))

    def run(run_events: list[tuple[int, bytes]]) -> bytes:
        chain = HashChain(SHA256, D)
        for stream, blob in run_events:
            chain.advance(stream.to_bytes(4, "big"), blob)
        return chain.value

    assert (run(events) == run(other)) == (events == other)


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


@each_algorithm
def test_a_signature_for_one_purpose_serves_no_other(algorithm: SigningAlgorithm) -> None:
    further = next(a for a in SIGNING.values() if a is not algorithm).generate()
    key = algorithm.generate()
    verifier = algorithm.verifier(key.public)
    identity = Identity.from_keys([key, further])
    name, public, binding = identity.cells()[1]
    assert isinstance(binding, bytes)
    message = identity.node_id + bytes((len(further.algorithm),)) + further.algorithm.encode()
    message += further.public

    # A binding is no seal, under the right mask and whatever chain value it is held against ...
    for d in (D, message[:32], message[-32:]):
        mask = seal_mask(SHA256, COMMIT, d, len(binding))
        masked = bytes(a ^ b for a, b in zip(binding, mask, strict=True))
        with pytest.raises(SignatureError):
            check_seal(verifier, SHA256, COMMIT, d, masked)
    with pytest.raises(SignatureError):
        verifier.verify(binding, b"parley1 seal" + message)
    # ... and what a seal signs is no binding.
    signature = key.sign(b"parley1 seal" + message)
    verifier.verify(signature, b"parley1 seal" + message)
    with pytest.raises(IdentityError):
        PublicIdentity.parse([[key.algorithm, key.public, None], [name, public, signature]])
    # Nor is a signature without any prefix one of the two.
    bare = key.sign(message)
    with pytest.raises(IdentityError):
        PublicIdentity.parse([[key.algorithm, key.public, None], [name, public, bare]])
    with pytest.raises(SignatureError):
        verifier.verify(key.sign(D), b"parley1 seal" + D)


def test_repr_shows_the_public_start_only() -> None:
    assert repr(HashChain(SHA256, D)) == "<HashChain 55555555..>"
