"""Heads of the dialog layer: each field judged as soon as it is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.dialects.simproto.codec import (
    HEAD_SIZE,
    LAST_ID,
    LONGEST_PING_PAYLOAD,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    HeadReader,
    serialise_message,
)
from node.protocol.codes import CloseCode
from node.protocol.errors import RemoteProtocolError

LIMIT = 64


@given(st.integers(0, 3), st.integers(0, LAST_ID), st.binary(max_size=LIMIT), st.binary(max_size=9))
def test_a_message_says_its_size(kind: int, dialog: int, payload: bytes, before: bytes) -> None:
    message = serialise_message(kind, dialog, payload)
    assert message[0] == kind
    assert int.from_bytes(message[1:9], "little") == dialog
    assert int.from_bytes(message[9:17], "little") == len(payload)
    assert message[17:] == payload
    assert HeadReader(LIMIT).measure(before + message, len(before)) == len(message)


@pytest.mark.parametrize("size", range(1, HEAD_SIZE))
def test_a_cut_head_asks_for_the_rest_of_it(size: int) -> None:
    head = serialise_message(RESPONSE, LAST_ID, b"x" * LIMIT)
    assert HeadReader(LIMIT).measure(head[:size], 0) == HEAD_SIZE


@pytest.mark.parametrize("size", range(1, HEAD_SIZE + 1))
@pytest.mark.parametrize("kind", [4, 128, 255])
def test_a_type_is_judged_alone(kind: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        HeadReader(LIMIT).measure(bytes([kind, *range(16)])[:size], 0)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (REQUEST, LIMIT),
        (RESPONSE, LIMIT),
        (PING, LONGEST_PING_PAYLOAD),
        (PONG, LONGEST_PING_PAYLOAD),
    ],
)
@pytest.mark.parametrize("excess", [1, 2**32, 2**63, None])
def test_a_length_is_judged_from_the_head(kind: int, limit: int, excess: int | None) -> None:
    reader = HeadReader(LIMIT)
    assert reader.measure(bytes([kind]) + bytes(8) + limit.to_bytes(8, "little"), 0) == 17 + limit
    length = 2**64 - 1 if excess is None else limit + excess
    with pytest.raises(RemoteProtocolError) as caught:
        reader.measure(bytes([kind]) + bytes(8) + length.to_bytes(8, "little"), 0)
    assert caught.value.code == CloseCode.FRAME_TOO_LARGE
