"""Tests of crypto/key_schedule.py against recorded sessions and a second implementation."""

import hmac
from dataclasses import fields

import pytest

from parley._crypto.errors import CryptoError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.key_schedule import (
    ApplicationSecrets,
    HandshakeSecrets,
    RekeySecrets,
    check_network_key,
    check_network_mac,
    handshake_secrets,
    network_mac,
    rekey_root,
    rekey_secrets,
)
from parley._crypto.registry import HASHES

each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)

NETWORK_KEY = bytes(range(32))
SHARED = b"\x11" * 64


@each_hash
def test_no_secret_in_repr(hash: HashAlgorithm) -> None:
    secrets = handshake_secrets(hash, hash.digest(b"T1"), SHARED, NETWORK_KEY)
    application = secrets.application(hash.digest(b"T2"))
    root = rekey_root(hash, application.rekey, SHARED)
    rekeyed = rekey_secrets(hash, root, b"", b"")
    shown = "".join(map(repr, (secrets, application, rekeyed)))
    for name, value in _values(secrets, application, rekeyed):
        if name != "session_id":
            assert repr(value) not in shown
            assert value.hex() not in shown


def _values(
    *secrets: HandshakeSecrets | ApplicationSecrets | RekeySecrets,
) -> list[tuple[str, bytes]]:
    found = []
    for holder in secrets:
        for field in fields(holder):
            value = getattr(holder, field.name)
            if isinstance(value, bytes):
                found.append((field.name, value))
    return found


@pytest.mark.parametrize("key", [b"", bytes(32), b"\x01" * 31, b"\x01" * 33])
def test_a_bad_network_key_is_refused(key: bytes) -> None:
    hash = HASHES["sha256"]
    with pytest.raises(CryptoError):
        check_network_key(key)
    with pytest.raises(CryptoError):
        handshake_secrets(hash, bytes(32), SHARED, key)
    with pytest.raises(CryptoError):
        network_mac(key, b"\xa0")


def test_network_mac_is_hmac_sha256_whatever_the_hash() -> None:
    mac = network_mac(NETWORK_KEY, b"\xa1\x01\x01")
    assert mac == hmac.digest(NETWORK_KEY, b"parley1 hello\xa1\x01\x01", "sha256")
    assert check_network_mac(NETWORK_KEY, b"\xa1\x01\x01", mac)
    assert not check_network_mac(NETWORK_KEY, b"\xa1\x01\x02", mac)
    assert not check_network_mac(NETWORK_KEY, b"\xa1\x01\x01", mac[:-1])
    assert not check_network_mac(NETWORK_KEY, b"\xa1\x01\x01", b"")
