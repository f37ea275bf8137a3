"""Tests of crypto/streamkeys.py: nonces, counters, and what must not open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import CounterExhaustedError, DecryptError, WrongSizeError
from parley._crypto.kdf import label
from parley._crypto.registry import CIPHERS, HASHES, Suite
from parley._crypto.streamkeys import StreamKey
from tests.crypto.given_key import given_key
from tests.sweep import sweep

AAD = b"\0\0\0\1\0"
SECRET = b"\x33" * 32

SUITES = [Suite("x25519", "ed25519", h, c, "chain") for h in HASHES for c in CIPHERS]
each_suite = pytest.mark.parametrize("suite", SUITES, ids=lambda s: f"{s.hash} {s.cipher}")


def pair(suite: Suite, stream: int = 1) -> tuple[StreamKey, StreamKey]:
    return StreamKey(suite, SECRET, stream), StreamKey(suite, SECRET, stream)


@each_suite
def test_events_open_in_their_order(suite: Suite) -> None:
    writer, reader = pair(suite)
    for number in range(5):
        data = bytes((number,)) * number
        blob = writer.encrypt(data, AAD)
        assert len(blob) == len(data) + 16
        assert reader.decrypt(blob, AAD) == data
        assert writer.counter == reader.counter == number + 1


@each_suite
@sweep("stream", [0, 1, 2**32 - 1])
@sweep("counter", [0, 1, 255, 256, 2**63, 2**64 - 1])
def test_key_and_nonce_are_those_of_section_6(suite: Suite, stream: int, counter: int) -> None:
    cipher, context = suite.cipher_algorithm, stream.to_bytes(4, "big")
    key = label(suite.hash_algorithm, SECRET, "stream key", context, cipher.key_size)
    iv = label(suite.hash_algorithm, SECRET, "stream iv", context, cipher.nonce_size)
    right_aligned = counter.to_bytes(8, "big").rjust(cipher.nonce_size, b"\0")
    nonce = bytes(a ^ b for a, b in zip(iv, right_aligned, strict=True))
    writer = StreamKey(suite, SECRET, stream)
    writer.counter = counter
    assert writer.encrypt(b"data", AAD) == cipher.new(key).encrypt(nonce, b"data", AAD)


@each_suite
def test_a_given_key_and_iv_are_used_as_they_are(suite: Suite) -> None:
    cipher = suite.cipher_algorithm
    key, iv = b"k" * cipher.key_size, b"i" * cipher.nonce_size
    blob = cipher.new(key).encrypt(iv, b"data", AAD)
    assert given_key(cipher, key, iv).encrypt(b"data", AAD) == blob
    assert given_key(cipher, key, iv).decrypt(blob, AAD) == b"data"
    for bad in (b"", iv[:-1], iv + b"i", b"i" * 8, b"i" * 16):
        with pytest.raises(WrongSizeError):
            given_key(cipher, key, bad)
    with pytest.raises(WrongSizeError):
        given_key(cipher, key[:-1], iv)


@each_suite
def test_reordered_replayed_or_dropped_does_not_open(suite: Suite) -> None:
    writer, reader = pair(suite)
    first, second, third = (writer.encrypt(b"same", AAD) for _ in range(3))
    assert len({first, second, third}) == 3
    with pytest.raises(DecryptError):
        reader.decrypt(second, AAD)
    assert reader.decrypt(first, AAD) == b"same"
    for bad in (first, third):
        with pytest.raises(DecryptError):
            reader.decrypt(bad, AAD)
    assert reader.decrypt(second, AAD) == b"same"


@each_suite
def test_other_stream_secret_or_associated_data_does_not_open(suite: Suite) -> None:
    writer, reader = pair(suite)
    blob = writer.encrypt(b"data", AAD)
    with pytest.raises(DecryptError):
        StreamKey(suite, SECRET, 2).decrypt(blob, AAD)
    with pytest.raises(DecryptError):
        StreamKey(suite, b"\x34" * 32, 1).decrypt(blob, AAD)
    with pytest.raises(DecryptError):
        reader.decrypt(blob, AAD[:-1] + b"\1")
    assert reader.counter == 0


@each_suite
@given(blob=st.binary(max_size=64))
def test_any_bytes_give_the_typed_error(suite: Suite, blob: bytes) -> None:
    with pytest.raises(DecryptError):
        StreamKey(suite, SECRET, 1).decrypt(blob, AAD)


@each_suite
def test_the_counter_never_wraps(suite: Suite) -> None:
    writer, reader = pair(suite)
    writer.counter = reader.counter = 2**64 - 1
    assert reader.decrypt(writer.encrypt(b"last", AAD), AAD) == b"last"
    for _ in range(2):
        with pytest.raises(CounterExhaustedError):
            writer.encrypt(b"more", AAD)
        with pytest.raises(CounterExhaustedError):
            reader.decrypt(bytes(20), AAD)


def test_a_failed_encryption_spends_its_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = pair(SUITES[0])
    with pytest.raises(TypeError):
        writer.encrypt("no bytes", AAD)  # type: ignore[arg-type]  # that is the test
    assert writer.counter == 1


def test_no_two_streams_share_a_key_or_nonce() -> None:
    # The same plaintext and counter everywhere: equal blobs would mean equal key and nonce.
    blobs = {
        StreamKey(suite, secret, stream).encrypt(bytes(64), AAD)
        for suite in SUITES
        for secret in (SECRET, b"\x35" * 32)
        for stream in (0, 1, 2, 3, 256, 2**24)
    }
    assert len(blobs) == len(SUITES) * 2 * 6


@each_suite
def test_no_secret_in_repr(suite: Suite) -> None:
    shown = repr(StreamKey(suite, b"K" * 32, 1))
    assert "KKKK" not in shown
    assert "counter=0" in shown
