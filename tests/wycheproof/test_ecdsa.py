"""Wycheproof's ECDSA P-256 vectors through crypto/signing.py.

The protocol's form is r || s with a low s, 64 bytes. Vectors of that form go in as they
are; those in DER are turned into it, and also go in as they are, to be refused. A valid one
with a high s is refused, and verifies once its s is turned into n - s.
"""

import pytest

from parley._crypto.errors import SignatureError
from parley._crypto.registry import SIGNING
from tests.wycheproof.der import integers
from tests.wycheproof.tally import AS_SAID, Run, Verdict, tally
from tests.wycheproof.vectors import Case

P256 = SIGNING["ecdsa-p256"]
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

HIGH_S = Verdict("valid with a high s: refused, and accepted as (r, n - s)")
NO_RAW_FORM = Verdict("invalid without a form of 64 bytes: refused as DER")


def run_raw(case: Case) -> Verdict:
    return judge(case, case.bytes("sig"))


def run_der(case: Case) -> Verdict:
    signature = case.bytes("sig")
    refuse(case, signature)
    found = integers(signature)
    if found is None or not all(0 <= value < 2**256 for value in found):
        assert not case.valid
        return NO_RAW_FORM
    r, s = found
    return judge(case, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def judge(case: Case, signature: bytes) -> Verdict:
    """Ask the verifier about a signature in the protocol's form."""
    if not case.valid:
        refuse(case, signature)
        return AS_SAID
    s = int.from_bytes(signature[32:], "big")
    if s <= ORDER // 2:
        verify(case, signature)
        return AS_SAID
    refuse(case, signature)
    verify(case, signature[:32] + (ORDER - s).to_bytes(32, "big"))
    return HIGH_S


def verify(case: Case, signature: bytes) -> None:
    public = bytes.fromhex(case.group["publicKey"]["uncompressed"])
    P256.verifier(public).verify(signature, case.bytes("msg"))


def refuse(case: Case, signature: bytes) -> None:
    with pytest.raises(SignatureError):
        verify(case, signature)


FILES: dict[str, Run] = {
    "ecdsa_secp256r1_sha256_p1363_test.json": run_raw,
    "ecdsa_secp256r1_sha256_test.json": run_der,
}


@pytest.mark.parametrize("file", FILES)
def test_ecdsa(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
