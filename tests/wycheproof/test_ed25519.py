"""Wycheproof's Ed25519 vectors through crypto/signing.py."""

import pytest

from parley._crypto.errors import InvalidKeyError, SignatureError
from parley._crypto.registry import SIGNING
from tests.wycheproof.tally import AS_SAID, Run, Verdict, tally
from tests.wycheproof.vectors import Case

ED25519 = SIGNING["ed25519"]


def run_ed25519(case: Case) -> Verdict:
    public = bytes.fromhex(case.group["publicKey"]["pk"])
    weak = {"SmallOrderPublicKey", "MixedOrderPublicKey"} & case.flags
    if weak:
        # Such a key makes signatures that some verifiers accept and others reject, and one of small
        # order makes them for unsigned messages.
        assert case.result != "valid"
        with pytest.raises(InvalidKeyError):
            ED25519.verifier(public)
        return Verdict("with keys of small or mixed order: the key is refused")
    verifier = ED25519.verifier(public)
    if case.valid:
        verifier.verify(case.bytes("sig"), case.bytes("msg"))
        return AS_SAID
    assert case.result == "invalid"
    with pytest.raises(SignatureError):
        verifier.verify(case.bytes("sig"), case.bytes("msg"))
    return AS_SAID


FILES: dict[str, Run] = {"ed25519_test.json": run_ed25519}


@pytest.mark.parametrize("file", FILES)
def test_ed25519(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
