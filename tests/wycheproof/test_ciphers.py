"""Wycheproof's AEAD vectors through crypto/ciphers.py and crypto/record_protection.py.

A vector is the first event of a stream key: counter 0, so that its nonce is the iv.
"""

import pytest

from parley._crypto.ciphers import CipherAlgorithm
from parley._crypto.errors import DecryptError, WrongSizeError
from parley._crypto.registry import CIPHERS
from tests.crypto.given_key import given_key
from tests.wycheproof.tally import AS_SAID, Run, Verdict, tally
from tests.wycheproof.vectors import Case


def run_with(cipher: CipherAlgorithm) -> Run:
    def run(case: Case) -> Verdict:
        key, nonce = case.bytes("key"), case.bytes("iv")
        # By both sizes, so that a case of a wrong key and a wrong nonce is counted once.
        if len(key) != cipher.key_size:
            with pytest.raises(WrongSizeError):
                cipher.new(key)
            with pytest.raises(WrongSizeError):
                given_key(cipher, key, bytes(cipher.nonce_size))
            return Verdict(f"with keys that aren't {cipher.key_size} bytes long: refused")
        if len(nonce) != cipher.nonce_size:
            with pytest.raises(WrongSizeError):
                given_key(cipher, key, nonce)
            return Verdict(f"with nonces that aren't {cipher.nonce_size} bytes long: refused")
        blob, aad = case.bytes("ct") + case.bytes("tag"), case.bytes("aad")
        if not case.valid:
            reader = given_key(cipher, key, nonce)
            for data in (blob, memoryview(blob)):
                with pytest.raises(DecryptError):
                    reader.decrypt(data, aad)
            assert reader.counter == 0
            # And what we make of the same plaintext is not that blob.
            written = given_key(cipher, key, nonce).encrypt(case.bytes("msg"), aad)
            assert written != blob
            return AS_SAID
        for view in (bytes, memoryview):
            written = given_key(cipher, key, nonce).encrypt(view(case.bytes("msg")), aad)
            assert written == blob
            read = given_key(cipher, key, nonce).decrypt(view(blob), aad)
            assert read == case.bytes("msg")
        return AS_SAID

    return run


FILES: dict[str, Run] = {
    "aes_gcm_test.json": run_with(CIPHERS["aes-256-gcm"]),
    "chacha20_poly1305_test.json": run_with(CIPHERS["chacha20-poly1305"]),
    "xchacha20_poly1305_test.json": run_with(CIPHERS["xchacha20-poly1305"]),
}


@pytest.mark.parametrize("file", FILES)
def test_ciphers(file: str) -> None:
    assert tally(file, FILES[file]).failures == []
