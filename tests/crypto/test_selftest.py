"""Tests that the self-test succeeds here and detects faulty algorithms."""

from dataclasses import replace

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

import parley._crypto.selftest
from parley._crypto.hashing import SHA256, SHA512
from parley._crypto.key_exchange import X25519, EphemeralKey, KexAlgorithm
from parley._crypto.registry import CIPHERS, HASHES, KEX, SIGNING
from parley._crypto.selftest import library_versions, self_test


def test_everything_works_here() -> None:
    outcomes = list(self_test())
    assert [wrong for _, _, wrong in outcomes if wrong] == []
    assert [(parameter, name) for parameter, name, _ in outcomes] == [
        *(("kex", name) for name in KEX),
        *(("signing", name) for name in SIGNING),
        *(("hash", name) for name in HASHES),
        *(("cipher", name) for name in CIPHERS),
    ]


def test_every_hash_has_its_known_answer() -> None:
    assert set(parley._crypto.selftest.KNOWN_DIGESTS) == set(HASHES)


def test_versions() -> None:
    found = library_versions()
    assert found["openssl"].startswith("OpenSSL ")
    assert found["cryptography"][0].isdigit()
    assert found["pynacl"][0].isdigit()


def broken(monkeypatch: pytest.MonkeyPatch, table: str, name: str, algorithm: object) -> str:
    monkeypatch.setitem(getattr(parley._crypto.selftest, table), name, algorithm)
    (wrong,) = (wrong for _, found, wrong in self_test() if found == name)
    assert wrong is not None
    return wrong


def test_a_wrong_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = broken(monkeypatch, "HASHES", "sha256", replace(SHA512, name="sha256"))
    assert wrong == "it computes a wrong digest"
    assert SHA256.name == "sha256"


class Lacking(KexAlgorithm):
    def generate(self) -> EphemeralKey:
        raise UnsupportedAlgorithm("no ML-KEM")


class Deaf(KexAlgorithm):
    def respond(self, initiator_share: bytes) -> tuple[bytes, bytes]:
        share, _ = super().respond(initiator_share)
        return share, bytes(32)


class Failing(KexAlgorithm):
    def generate(self) -> EphemeralKey:
        raise ValueError("odd")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Lacking, "not supported by the installed libraries: no ML-KEM"),
        (Deaf, "the two sides derived different secrets"),
        (Failing, "failed: ValueError('odd')"),
    ],
)
def test_a_broken_key_exchange(
    monkeypatch: pytest.MonkeyPatch, kind: type[KexAlgorithm], expected: str
) -> None:
    values = {name: getattr(X25519, name) for name in X25519.__dataclass_fields__}
    assert broken(monkeypatch, "KEX", "x25519", kind(**values)) == expected


class Careless:
    def __init__(self, key: bytes) -> None:
        self.key = key

    def encrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes, /) -> bytes:
        return bytes(data)

    def decrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes, /) -> bytes:
        return bytes(data)


class Garbling(Careless):
    def decrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes, /) -> bytes:
        return b"other"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Careless, "it accepts altered data"),
        (Garbling, "decryption does not return the plaintext"),
    ],
)
def test_a_broken_cipher(
    monkeypatch: pytest.MonkeyPatch, kind: type[Careless], expected: str
) -> None:
    cipher = replace(CIPHERS["aes-256-gcm"], open_key=kind)
    assert broken(monkeypatch, "CIPHERS", "aes-256-gcm", cipher) == expected


def test_a_signature_that_anything_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lenient:
        def verify(self, signature: bytes, message: bytes) -> None:
            assert signature

    monkeypatch.setattr(type(SIGNING["ed25519"]), "verifier", lambda self, public: Lenient())
    wrong = {name: wrong for parameter, name, wrong in self_test() if parameter == "signing"}
    assert set(wrong.values()) == {"it accepts a signature of another message"}
