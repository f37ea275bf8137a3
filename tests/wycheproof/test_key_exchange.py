"""Wycheproof's x25519 and ML-KEM-768 vectors through crypto/key_exchange.py.

ML-KEM has no separate exchange here: the tests use its half of `x25519-mlkem768` with an X25519
half that is the same in every case.
"""

import pytest

from parley._crypto.errors import KeyExchangeError
from parley._crypto.key_exchange import MLKEM768_CIPHERTEXT_SIZE, MLKEM768_PUBLIC_SIZE
from parley._crypto.registry import KEX
from tests.wycheproof.tally import AS_SAID, Run, Verdict, tally
from tests.wycheproof.vectors import Case

X25519 = KEX["x25519"]
HYBRID = KEX["x25519-mlkem768"]

# The X25519 half: our scalar, and as the other side's public value the base point.
SCALAR = b"\x42" * 32
BASE_POINT = b"\x09" + bytes(31)
# The ML-KEM half, in tests of X25519.
SEED = b"\x17" * 64


def run_x25519(case: Case) -> Verdict:
    private, public, shared = case.bytes("private"), case.bytes("public"), case.bytes("shared")
    kem = HYBRID.from_private(SEED + private)
    answer, _ = HYBRID.respond(kem.share)
    ciphertext = answer[:MLKEM768_CIPHERTEXT_SIZE]
    if any(shared):
        assert X25519.from_private(private).derive(public) == shared
        assert kem.derive(ciphertext + public)[32:] == shared
        X25519.respond(public)
        return AS_SAID
    assert case.result == "acceptable"
    for refused in (
        lambda: X25519.from_private(private).derive(public),
        lambda: X25519.respond(public),
        lambda: kem.derive(ciphertext + public),
        lambda: HYBRID.respond(kem.share[:MLKEM768_PUBLIC_SIZE] + public),
    ):
        with pytest.raises(KeyExchangeError):
            refused()
    return Verdict("acceptable, of small order with an all-zero result: refused")


def run_mlkem(case: Case) -> Verdict:
    """Make the key and decapsulate; an invalid case has a seed or ciphertext of a wrong size."""
    if not case.valid:
        with pytest.raises(KeyExchangeError):
            HYBRID.from_private(case.bytes("seed") + SCALAR).derive(case.bytes("c") + BASE_POINT)
        return AS_SAID
    key = HYBRID.from_private(case.bytes("seed") + SCALAR)
    assert key.share[:MLKEM768_PUBLIC_SIZE] == case.bytes("ek")
    assert key.derive(case.bytes("c") + BASE_POINT)[:32] == case.bytes("K")
    return AS_SAID


def run_encapsulation(case: Case) -> Verdict:
    share = case.bytes("ek") + BASE_POINT
    if not case.valid:
        with pytest.raises(KeyExchangeError):
            HYBRID.respond(share)
        return AS_SAID
    answer, secret = HYBRID.respond(share)
    assert (len(answer), len(secret)) == (HYBRID.responder_share_size, HYBRID.secret_size)
    return Verdict("valid keys: accepted, `c` and `K` not compared (the library chooses `m`)")


def run_keygen(case: Case) -> Verdict:
    key = HYBRID.from_private(case.bytes("seed") + SCALAR)
    assert key.share[:MLKEM768_PUBLIC_SIZE] == case.bytes("ek")
    answer, secret = HYBRID.respond(key.share)
    assert key.derive(answer) == secret
    return Verdict("without comparing `dk`, which the wrapper doesn't return")


def run_expanded(case: Case) -> Verdict:
    with pytest.raises(KeyExchangeError):
        HYBRID.from_private(case.bytes("dk") + SCALAR)
    if not case.valid:
        return AS_SAID
    return Verdict("valid expanded keys: refused, because a private key is its seed of 64 bytes")


FILES: dict[str, Run] = {
    "x25519_test.json": run_x25519,
    "mlkem_768_test.json": run_mlkem,
    "mlkem_768_encaps_test.json": run_encapsulation,
    "mlkem_768_keygen_seed_test.json": run_keygen,
    "mlkem_768_semi_expanded_decaps_test.json": run_expanded,
}


@pytest.mark.parametrize("file", FILES)
def test_exchange(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
