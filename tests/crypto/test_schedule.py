"""Tests of crypto/schedule.py: against the recorded sessions and a second derivation."""

import hashlib
import hmac
from dataclasses import fields

import pytest
from blake3 import blake3

from parley._crypto.errors import CryptoError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.registry import HASHES
from parley._crypto.schedule import (
    ApplicationSecrets,
    HandshakeSecrets,
    RekeySecrets,
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    check_network_key,
    check_network_mac,
    handshake_secrets,
    network_mac,
    next_secret,
    rekey_root,
    rekey_secrets,
)
from tests.crypto.recorded import RECORDED, RecordedSession

recorded = pytest.mark.parametrize("session", RECORDED, ids=lambda session: session.name)
each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)

NETWORK_KEY = bytes(range(32))
SHARED = b"\x11" * 64


def second_extract(name: str, salt: bytes, ikm: bytes) -> bytes:
    """HMAC again, written out from RFC 2104 over hashlib."""

    def make(data: bytes) -> bytes:
        if name == "blake2b-256":
            return hashlib.blake2b(data, digest_size=32).digest()
        if name == "blake3":
            return blake3(data).digest()
        return hashlib.new(name, data).digest()

    key = salt.ljust(64 if name in ("sha256", "blake3") else 128, b"\0")
    inner = make(bytes(byte ^ 0x36 for byte in key) + ikm)
    return make(bytes(byte ^ 0x5C for byte in key) + inner)


def second_label(name: str, secret: bytes, label: str, context: bytes, size: int) -> bytes:
    """Label again, written out from section 5."""
    text = b"parley1 " + label.encode()
    info = size.to_bytes(2, "big") + bytes([len(text)]) + text + bytes([len(context)]) + context
    output, block, number = b"", b"", 0
    while len(output) < size:
        number += 1
        block = second_extract(name, secret, block + info + bytes([number]))
        output += block
    return output[:size]


@recorded
def test_shared_secret_from_the_recorded_private_key(session: RecordedSession) -> None:
    key = session.suite.kex_algorithm.from_private(session.initiator_private)
    assert key.share == session.share(0)
    assert key.derive(session.share(1)) == session.secret("shared_secret")


@recorded
def test_recorded_handshake_secrets(session: RecordedSession) -> None:
    th1 = session.hash.digest(session.transcript(2))
    assert th1 == session.secret("th1")
    secrets = handshake_secrets(
        session.hash, th1, session.secret("shared_secret"), session.network_key
    )
    for name in ("hs", "commit", "hs_initiator", "hs_responder"):
        assert getattr(secrets, name) == session.secret(name), name


@recorded
def test_recorded_application_secrets(session: RecordedSession) -> None:
    secrets = handshake_secrets(
        session.hash,
        session.secret("th1"),
        session.secret("shared_secret"),
        session.network_key,
    ).application(session.hash.digest(session.transcript(4)))
    assert secrets.ap_initiator == session.secret("ap_initiator_0")
    assert secrets.ap_responder == session.secret("ap_responder_0")
    for name in ("session_id", "exporter", "rekey"):
        assert getattr(secrets, name) == session.secret(name), name


@each_hash
@pytest.mark.parametrize("network_key", [None, NETWORK_KEY], ids=["open", "network key"])
def test_schedule_is_that_of_section_5(hash: HashAlgorithm, network_key: bytes | None) -> None:
    name, size = hash.name, hash.size
    th1, th2 = hash.digest(b"T1"), hash.digest(b"T2")
    early = second_extract(name, bytes(size), network_key or bytes(32))
    hs = second_extract(name, second_label(name, early, "derived", b"", size), SHARED)
    secrets = handshake_secrets(hash, th1, SHARED, network_key)
    assert secrets.hs == hs
    assert secrets.commit == second_label(name, hs, "commit", th1, size)
    assert secrets.hs_initiator == second_label(name, hs, "hs initiator", th1, size)
    assert secrets.hs_responder == second_label(name, hs, "hs responder", th1, size)
    master = second_extract(name, second_label(name, hs, "derived", b"", size), bytes(size))
    application = secrets.application(th2)
    assert application.ap_initiator == second_label(name, master, "ap initiator", th2, size)
    assert application.ap_responder == second_label(name, master, "ap responder", th2, size)
    assert application.session_id == second_label(name, master, "session", th2, 32)
    assert application.exporter == second_label(name, master, "exporter", th2, size)
    assert application.rekey == second_label(name, master, "rekey", b"", size)
    ap = application.ap_initiator
    assert next_secret(hash, ap) == second_label(name, ap, "update", b"", size)


@each_hash
def test_rekey_is_that_of_section_6(hash: HashAlgorithm) -> None:
    name, size = hash.name, hash.size
    rekey, a, b = b"\x22" * size, hash.digest(b"a"), hash.digest(b"b")
    root = second_extract(name, rekey, SHARED)
    secrets = rekey_secrets(hash, rekey_root(hash, rekey, SHARED), a, b)
    assert secrets.next_initiator == second_label(name, root, "ap initiator", a + b, size)
    assert secrets.next_responder == second_label(name, root, "ap responder", a + b, size)
    assert secrets.commit == second_label(name, root, "commit", a + b, size)
    assert secrets.rekey == second_label(name, root, "rekey", b"", size)


@each_hash
def test_chain_values_have_a_domain_each(hash: HashAlgorithm) -> None:
    d, other = b"\x01" * hash.size, b"\x02" * hash.size
    makers = (chain_start_initiator, chain_start_responder, chain_bind, chain_rekey)
    values = [make(hash, d, other) for make in makers]
    assert values == [
        hash.digest(b"parley1 chain" + bytes([domain]) + d + other) for domain in range(4)
    ]
    assert len(set(values)) == 4


@each_hash
def test_no_two_secrets_are_equal(hash: HashAlgorithm) -> None:
    secrets = handshake_secrets(hash, hash.digest(b"T1"), SHARED, None)
    application = secrets.application(hash.digest(b"T2"))
    root = rekey_root(hash, application.rekey, SHARED)
    rekeyed = rekey_secrets(hash, root, bytes(hash.size), bytes(hash.size))
    values = [value for _, value in _values(secrets, application, rekeyed)]
    assert len(set(values)) == len(values)


@each_hash
def test_everything_depends_on_everything(hash: HashAlgorithm) -> None:
    def derive(th1: bytes, shared: bytes, key: bytes | None, th2: bytes) -> ApplicationSecrets:
        return handshake_secrets(hash, th1, shared, key).application(th2)

    th1, th2, other = hash.digest(b"T1"), hash.digest(b"T2"), hash.digest(b"T3")
    variants = [
        derive(th1, SHARED, None, th2),
        derive(th1, SHARED, NETWORK_KEY, th2),
        derive(th1, SHARED[:-1] + b"\x12", None, th2),
        derive(th1, SHARED, None, other),
    ]
    for name in ("ap_initiator", "ap_responder", "session_id", "exporter"):
        assert len({getattr(variant, name) for variant in variants}) == 4, name


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
