"""Tests of raw events as bytes, and of absent payloads."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.protocol.codes import BATCH, STREAM, CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import (
    NO_PAYLOAD,
    Event,
    handshake_event,
    parse_batch,
    parse_raw,
    serialise_batch,
    serialise_raw,
)
from tests.sweep import sweep

PING = bytes.fromhex("00000000 0001 01 06 00")  # the example of section 2


def test_the_documented_ping() -> None:
    assert serialise_raw(Event(0, 1, 1, 6, b"")) == PING
    assert parse_raw(PING) == Event(0, 1, 1, 6, b"\x00")


def test_all_fields_keep_their_places() -> None:
    event = Event(0x01020304, 0x0506, 7, 8, b"payload")
    assert serialise_raw(event) == bytes.fromhex("0102030405060708") + b"payload"
    assert parse_raw(serialise_raw(event)) == event


def test_handshake_events_are_on_stream_0_without_async_id() -> None:
    assert parse_raw(handshake_event(2, b"\xa0")) == Event(0, 0, 1, 2, b"\xa0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PING[:3],
        PING[:8],  # without a payload byte
        bytes.fromhex("00000000 0001 00 06 00"),  # category 0
        bytes.fromhex("00000000 0001 01 00 00"),  # subcategory 0
    ],
)
def test_what_is_no_event(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_raw(data)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


# The example of section 8: two Results, on stream 1.
EXAMPLE = bytes.fromhex("0007 03 05 0000000a a21000164568656c6c6f 0008 03 05 00000003 a11000")
RESULTS = [
    Event(1, 7, 3, 5, bytes.fromhex("a21000164568656c6c6f")),
    Event(1, 8, 3, 5, bytes.fromhex("a11000")),
]


def batch(payload: bytes, *, stream: int = 1, async_id: int = 0) -> Event:
    return Event(stream, async_id, STREAM, BATCH, payload)


def inner(category: int = 3, subcategory: int = 5, payload: bytes = b"x", size: int = -1) -> bytes:
    length = len(payload) if size < 0 else size
    return bytes((0, 9, category, subcategory)) + length.to_bytes(4, "big") + payload


def test_the_documented_example() -> None:
    assert parse_batch(batch(EXAMPLE)) == RESULTS
    assert serialise_batch([(*event.head[1:], event.payload) for event in RESULTS]) == EXAMPLE


@given(
    st.lists(
        st.tuples(
            st.integers(0, 65_535),
            st.integers(3, 255),
            st.integers(1, 255),
            st.binary(min_size=1, max_size=40),
        ),
        min_size=2,
        max_size=256,
    ),
    st.integers(1, 2**32 - 1),
)
def test_what_was_written_is_read(events: list[tuple[int, int, int, bytes]], stream: int) -> None:
    read = parse_batch(batch(serialise_batch(events), stream=stream))
    assert read == [Event(stream, *event) for event in events]


@pytest.mark.parametrize("count", [2, 256])
def test_the_most_and_the_fewest(count: int) -> None:
    assert len(parse_batch(batch(inner() * count))) == count


def test_the_largest() -> None:
    first = inner(payload=bytes(32_768 - 8 - 9))
    assert [len(event.payload) for event in parse_batch(batch(first + inner()))] == [32_751, 1]


TWO = inner() * 2


@sweep(
    "wrong",
    [
        batch(b"\x00"),
        batch(inner()),  # one event
        batch(inner() * 257),
        batch(inner(payload=bytes(32_768 - 8 - 8)) + inner()),  # a byte above 32 KiB
        batch(TWO + b"\x00"),
        batch(TWO[:-1]),
        batch(TWO + inner()[:8]),
        batch(TWO + inner(size=2)),
        batch(TWO + inner(size=0)),  # the rest would be read as another event
        batch(TWO + inner(payload=b"")),
        batch(TWO + inner(size=2**32 - 1)),
        *(batch(TWO + inner(category)) for category in (0, 1, 2)),
        batch(TWO + inner(STREAM, BATCH, TWO)),
        batch(TWO + inner(subcategory=0)),
        batch(TWO, stream=0),
        batch(TWO, async_id=1),
    ],
)
def test_what_is_no_batch(wrong: Event) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_batch(wrong)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_violation(payload: bytes) -> None:
    with suppress(RemoteProtocolError):
        events = parse_batch(batch(payload))
        assert serialise_batch([(*event.head[1:], event.payload) for event in events]) == payload


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Event(4, 7, 3, 1, bytes(128)), "[4] sim/call id=7 128 B"),
        (Event(0, 0, 1, 8, NO_PAYLOAD), "[0] connection/seal 0 B"),
        (Event(1, 2, 64, 9, b"abc"), "[1] 64/9 id=2 3 B"),
    ],
)
def test_an_event_shows_its_type_and_size(event: Event, shown: str) -> None:
    assert str(event) == shown
