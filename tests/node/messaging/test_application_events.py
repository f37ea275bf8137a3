"""Tests of node/messaging/application_events.py: what may be sent, and how it is encoded."""

from typing import cast

import pytest

from parley._lbm.codec import decode
from parley._lbm.errors import LbmEncodeError
from parley._node.messaging.application_events import (
    ANSWERING,
    APPLICATION,
    BUS_ASKING,
    Carries,
    answering_types,
    check_type,
    encode_payload,
)
from parley._node.protocol.codes import BUS_LABEL
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError


@pytest.mark.parametrize("event", [(64, 1), (255, 255), (64, 255), (255, 1)])
def test_types_of_an_application(event: tuple[int, int]) -> None:
    check_type(*event)
    assert answering_types([event, event]) == {event}


@pytest.mark.parametrize("event", [(63, 1), (256, 1), (64, 0), (64, 256), (3, 1), (-64, 1)])
def test_other_types(event: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="invalid event type"):
        check_type(*event)
    with pytest.raises(ValueError, match="invalid event type"):
        answering_types([(64, 1), event])


def test_no_types() -> None:
    assert answering_types(()) == frozenset()


def test_data_goes_into_cell_22() -> None:
    payload, lbm = encode_payload({"a": [1]}, None, 100)
    assert decode(payload) == {22: {"a": [1]}}
    assert lbm


@pytest.mark.parametrize("payload", [b"", b"\1", b"\0\0", bytes(100)])
def test_a_payload_stays_as_it_is(payload: bytes) -> None:
    assert encode_payload(None, payload, 100) == (payload, False)
    assert encode_payload(None, cast(bytes, bytearray(payload)), 100) == (payload, False)


def test_neither() -> None:
    assert encode_payload(None, None, 0) == (b"", True)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        encode_payload(1, b"", 100)
    with pytest.raises(LocalProtocolError, match="0x00"):
        encode_payload(None, b"\0", 100)
    with pytest.raises(PayloadTooLargeError, match="101 bytes"):
        encode_payload(None, bytes(101), 100)
    with pytest.raises(PayloadTooLargeError):
        encode_payload(bytes(98), None, 100)
    with pytest.raises(LbmEncodeError):
        encode_payload(2**70, None, 100)


@pytest.mark.parametrize("carries", [BUS_ASKING, ANSWERING[BUS_LABEL]])
def test_a_stream_of_the_bus_carries_nothing_else(carries: Carries) -> None:
    assert carries.encode(6, 1, None, b"\xa0", 100) == (b"\xa0", True)
    for category, subcategory in ((64, 1), (5, 1), (7, 1), (6, 0), (6, 256)):
        with pytest.raises(ValueError, match="invalid event type"):
            carries.encode(category, subcategory, None, None, 100)


def test_the_bus_is_none_of_an_applications_categories() -> None:
    assert APPLICATION.encode(64, 1, None, b"\xa0", 100) == (b"\xa0", False)
    with pytest.raises(ValueError, match="invalid event type"):
        APPLICATION.encode(6, 1, None, None, 100)
