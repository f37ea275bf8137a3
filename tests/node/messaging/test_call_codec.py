"""Tests of node/messaging/call_codec.py: its hand-written encoding and decoding match `lbm`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._node.messaging.call_codec import (
    decode_call,
    decode_result,
    encode_call,
    encode_result,
)
from parley._node.protocol import event_types
from tests.lbm.strategies import values

SIZES = (0, 1, 23, 24, 128, 255, 256, 65_535)
DEADLINES = (None, 0, 1, 23, 24, 255, 256, 5_000, 65_535, 65_536, 2**32, 10**12)


def call_cells(topic: str, data: object, deadline: int | None) -> dict[int, Any]:
    cells: dict[int, Any] = {keys.TOPIC: topic, keys.DATA: data}
    return cells if deadline is None else {**cells, keys.DEADLINE_MS: deadline}


@pytest.mark.parametrize("deadline", DEADLINES)
@pytest.mark.parametrize("size", SIZES)
def test_usual_ones_are_written_and_read_as_lbm_does(size: int, deadline: int | None) -> None:
    for topic in ("", "echo", "t" * 23):
        payload = encode(cells := call_cells(topic, bytes(size), deadline))
        assert encode_call(topic, bytes(size), deadline) == payload
        assert decode_call(payload) == event_types.CALL.read_weighed(payload)
        assert event_types.CALL.read(payload) == cells
    result = encode({keys.CODE: 0, keys.DATA: bytes(size)})
    assert encode_result(0, bytes(size))[2] == result
    assert decode_result(result) == event_types.RESULT.read(result)


@given(values, st.text(max_size=30), st.sampled_from(DEADLINES))
def test_whatever_the_data_is(data: Any, topic: str, deadline: int | None) -> None:
    payload = encode_call(topic, data, deadline)
    assert payload is None or payload == encode(call_cells(topic, data, deadline))
    if data is not None:
        assert encode_result(0, data)[2] == encode({keys.CODE: 0, keys.DATA: data})


def agrees(payload: bytes) -> None:
    """The short decoder's result matches the general decoder, which may have to do it alone."""
    call, result = decode_call(payload), decode_result(payload)
    try:
        assert call is None or call == event_types.CALL.read_weighed(payload)
        assert result is None or result == event_types.RESULT.read(payload)
    except LbmDecodeError:
        pytest.fail(f"{payload.hex()} is malformed")


@pytest.mark.parametrize("size", [0, 24, 256])
@pytest.mark.parametrize("deadline", [None, 24, 5_000, 65_536])
def test_of_what_is_altered_no_more_is_read_than_the_decoder_reads(
    size: int, deadline: int | None
) -> None:
    """Each byte of the heads in turn as every other byte, and each end."""
    payload = encode(call_cells("echo", bytes(size), deadline))
    result = encode({keys.CODE: 0, keys.DATA: bytes(size)})
    for one in (payload, result):
        places = [place for place in range(len(one)) if place < 12 or place > len(one) - 7]
        for place in places:
            for byte in range(256):
                agrees(one[:place] + bytes((byte,)) + one[place + 1 :])
            agrees(one[:place])
            agrees(one[:place] + b"\x00" + one[place:])


@pytest.mark.parametrize(
    ("topic", "data"), [("t" * 24, b""), ("\ud800", b""), ("t", object()), ("t", None)]
)
def test_what_is_not_usual_is_left_to_the_encoder(topic: str, data: Any) -> None:
    assert encode_call(topic, data, 1) is None


def test_an_answer_without_an_encoding() -> None:
    with pytest.raises(LbmEncodeError):
        encode_result(0, object())  # type: ignore[arg-type]  # what a handler may return
