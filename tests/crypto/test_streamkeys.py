"""Tests of crypto/streamkeys.py: nonces, counters, and what must not open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import CounterExhaustedError, DecryptError
from parley._crypto.registry import CIPHERS, HASHES, Suite
from parley._crypto.streamkeys import StreamKey

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


@each_suite
def test_no_secret_in_repr(suite: Suite) -> None:
    shown = repr(StreamKey(suite, b"K" * 32, 1))
    assert "KKKK" not in shown
    assert "counter=0" in shown
