"""Messages and packets: each field is checked as soon as it arrives; topics and data stay
unchanged.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.simproto.codec import (
    LAST_ID,
    LONGEST_PING_PAYLOAD,
    NOTIFY,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    HeadReader,
    parse_request,
    parse_response,
    serialise_message,
    serialise_request,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import PayloadTooLargeError, RemoteProtocolError
from tests.sweep import sweep

LIMIT = 64


@given(st.integers(0, 3), st.integers(0, LAST_ID), st.binary(max_size=LIMIT), st.binary(max_size=9))
def test_a_message_says_its_size(kind: int, dialog: int, payload: bytes, before: bytes) -> None:
    message = serialise_message(kind, dialog, payload)
    assert message[0] == kind
    assert int.from_bytes(message[1:9], "little") == dialog
    assert int.from_bytes(message[9:17], "little") == len(payload)
    assert message[17:] == payload
    assert HeadReader(LIMIT).measure(before + message, len(before)) == len(message)


@sweep(
    ("kind", "limit"),
    [
        (REQUEST, LIMIT),
        (RESPONSE, LIMIT),
        (PING, LONGEST_PING_PAYLOAD),
        (PONG, LONGEST_PING_PAYLOAD),
    ],
)
@sweep("excess", [1, 2**32, 2**63, None])
def test_a_length_is_judged_from_the_head(kind: int, limit: int, excess: int | None) -> None:
    reader = HeadReader(LIMIT)
    assert reader.measure(bytes([kind]) + bytes(8) + limit.to_bytes(8, "little"), 0) == 17 + limit
    length = 2**64 - 1 if excess is None else limit + excess
    with pytest.raises(RemoteProtocolError) as caught:
        reader.measure(bytes([kind]) + bytes(8) + length.to_bytes(8, "little"), 0)
    assert caught.value.code == CloseCode.FRAME_TOO_LARGE


LONGEST = 65_535


@given(st.integers(0, NOTIFY), st.text(max_size=40), st.binary(max_size=40))
def test_requests_come_back(kind: int, topic: str, data: bytes) -> None:
    packet = serialise_request(kind, topic, LONGEST) + data
    assert parse_request(memoryview(packet)) == (kind, topic.encode(), data)


@given(st.integers(0, 255), st.binary(max_size=40))
def test_responses_come_back(code: int, data: bytes) -> None:
    assert parse_response(memoryview(bytes([code]) + data)) == (code, data)


def test_a_topic_is_bounded_in_bytes() -> None:
    topic = "ü" * 4
    assert parse_request(memoryview(serialise_request(0, topic, 8))).topic == topic.encode()
    with pytest.raises(PayloadTooLargeError):
        serialise_request(0, topic, 7)
    with pytest.raises(PayloadTooLargeError):
        serialise_request(0, "a" * 65_536, LONGEST)
    with pytest.raises(ValueError, match="surrogates"):
        serialise_request(0, "\ud800", LONGEST)


def test_every_changed_byte_parses_or_is_a_violation() -> None:
    packet = serialise_request(0, "echo", LONGEST) + b"hi"
    for at in range(len(packet)):
        for byte in range(256):
            changed = packet[:at] + bytes([byte]) + packet[at + 1 :]
            size = int.from_bytes(changed[1:3], "little")
            if changed[0] <= NOTIFY and size <= len(changed) - 3:
                expected = changed[0], changed[3 : 3 + size], changed[3 + size :]
                assert parse_request(memoryview(changed)) == expected
            else:
                with pytest.raises(RemoteProtocolError):
                    parse_request(memoryview(changed))
