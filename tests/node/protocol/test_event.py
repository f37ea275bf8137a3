"""Raw events as bytes, and 'no payload'."""

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event, handshake_event, parse_raw, serialise_raw

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
        PING[:8],  # no byte of payload
        bytes.fromhex("00000000 0001 00 06 00"),  # category 0
        bytes.fromhex("00000000 0001 01 00 00"),  # subcategory 0
    ],
)
def test_what_is_no_event(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_raw(data)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
