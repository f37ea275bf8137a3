"""Wycheproof vectors of HKDF, for each of our hashes that has some (crypto/hashing.py)."""

import pytest

from parley._crypto.errors import WrongSizeError
from parley._crypto.hashing import HashAlgorithm, expand, extract
from parley._crypto.registry import HASHES
from tests.wycheproof.tally import AS_SAID, Run, Verdict, tally
from tests.wycheproof.vectors import Case


def run_with(hash: HashAlgorithm) -> Run:
    def run(case: Case) -> Verdict:
        size = case.fields["size"]
        prk = extract(hash, case.bytes("salt"), case.bytes("ikm"))
        if not case.valid:
            with pytest.raises(WrongSizeError):
                expand(hash, prk, case.bytes("info"), size)
            return AS_SAID
        assert expand(hash, prk, case.bytes("info"), size) == case.bytes("okm")
        return AS_SAID

    return run


FILES: dict[str, Run] = {
    "hkdf_sha256_test.json": run_with(HASHES["sha256"]),
    "hkdf_sha512_test.json": run_with(HASHES["sha512"]),
}


@pytest.mark.parametrize("file", FILES)
def test_hkdf(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
