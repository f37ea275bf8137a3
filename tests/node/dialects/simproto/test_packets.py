"""Packets of the sim layer: round trips, and every cut and changed byte of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.dialects.simproto.codec import (
    NOTIFY,
    REQUEST_HEAD_SIZE,
    parse_request,
    parse_response,
    serialise_request,
)
from node.protocol.codes import CloseCode
from node.protocol.errors import PayloadTooLargeError, RemoteProtocolError

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


def test_every_cut_is_a_violation_or_shorter_data() -> None:
    packet = serialise_request(1, "news", LONGEST) + b"since"
    for size in range(len(packet)):
        if size < REQUEST_HEAD_SIZE + 4:
            with pytest.raises(RemoteProtocolError) as caught:
                parse_request(memoryview(packet[:size]))
            assert caught.value.code == CloseCode.PROTOCOL_ERROR
        else:
            assert parse_request(memoryview(packet[:size])) == (1, b"news", packet[7:size])


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


def test_a_response_has_a_type() -> None:
    with pytest.raises(RemoteProtocolError):
        parse_response(memoryview(b""))
