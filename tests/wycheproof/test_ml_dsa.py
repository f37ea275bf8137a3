"""Wycheproof's ML-DSA-65 vectors through crypto/signing.py.

The wrapper signs and verifies messages under the empty context (FIPS 204, pure), makes a
private key of its seed, and signs with randomness: other forms are refused or left out.
"""

import pytest

from parley._crypto.errors import InvalidKeyError, SignatureError
from parley._crypto.registry import SIGNING
from tests.wycheproof.tally import AS_SAID, Run, Verdict, left_out, tally
from tests.wycheproof.vectors import Case

ML_DSA = SIGNING["ml-dsa-65"]

WITH_CONTEXT = Verdict("valid with a context: refused, because Parley's is empty")
WITHOUT_MESSAGE = left_out("with `mu` instead of a message (left out: the wrapper signs messages)")
LONG_CONTEXT = left_out("with a context of 256 bytes (left out: the wrapper has no context)")


def run_verify(case: Case) -> Verdict:
    public, signature, message = case.bytes("publicKey"), case.bytes("sig"), case.bytes("msg")
    if len(public) != ML_DSA.public_size:
        with pytest.raises(InvalidKeyError):
            ML_DSA.verifier(public)
        return AS_SAID
    verifier = ML_DSA.verifier(public)
    if case.valid and not case.bytes("ctx"):
        verifier.verify(signature, message)
        return AS_SAID
    with pytest.raises(SignatureError):
        verifier.verify(signature, message)
    return WITH_CONTEXT if case.valid else AS_SAID


def run_sign_seed(case: Case) -> Verdict:
    """The key of the seed is the vector's, and each takes the other's signature."""
    seed = case.bytes("privateSeed")
    if "IncorrectPrivateKeyLength" in case.flags:
        with pytest.raises(InvalidKeyError):
            ML_DSA.load(seed)
        return AS_SAID
    key = ML_DSA.load(seed)
    assert key.public == case.bytes("publicKey")
    if "InvalidContext" in case.flags:
        return LONG_CONTEXT
    if "msg" not in case.fields:
        return WITHOUT_MESSAGE
    verifier = ML_DSA.verifier(key.public)
    verifier.verify(key.sign(case.bytes("msg")), case.bytes("msg"))
    return run_verify(case)


def run_sign_expanded(case: Case) -> Verdict:
    """An expanded private key is refused; the vector's signature is verified all the same."""
    with pytest.raises(InvalidKeyError):
        ML_DSA.load(case.bytes("privateKey"))
    if not case.valid:
        return AS_SAID
    if "msg" not in case.fields:
        return WITHOUT_MESSAGE
    if run_verify(case) is WITH_CONTEXT:
        return WITH_CONTEXT
    return Verdict(
        "valid expanded keys: refused, because a private key is its seed, and `sig` verified"
    )


FILES: dict[str, Run] = {
    "mldsa_65_verify_test.json": run_verify,
    "mldsa_65_sign_seed_test.json": run_sign_seed,
    "mldsa_65_sign_noseed_test.json": run_sign_expanded,
}


@pytest.mark.parametrize("file", FILES)
def test_ml_dsa(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
