"""Encoded events: both flavours, every cut, every changed byte, and each limit."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.core import FrameSplitter
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import (
    LENGTHS_SIZE,
    TOTAL_SIZE,
    BromineEvent,
    Flavour,
    decode_error,
    encode_error,
    measure_of,
    parse_event,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import (
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from tests.node.dialects.named.events import (
    FLAVOURS,
    LIMITS,
    ask,
    events,
    on_wire,
    reply,
    serialise_event,
)

REFUSALS = (CloseCode.PROTOCOL_ERROR, CloseCode.FRAME_TOO_LARGE)


def read(
    data: bytes, flavour: Flavour, limits: DialectLimits = LIMITS, piece: int = 1 << 20
) -> list[BromineEvent]:
    splitter = FrameSplitter(TOTAL_SIZE, measure_of(flavour, limits.longest_frame))
    return [
        parse_event(frame, flavour, limits.longest_name)
        for at in range(0, len(data), piece)
        for frame in splitter.feed(data[at : at + piece])
    ]


def refused(data: bytes, flavour: Flavour, limits: DialectLimits = LIMITS) -> CloseCode:
    with pytest.raises(RemoteProtocolError) as caught:
        read(data, flavour, limits)
    return CloseCode(caught.value.code)


def outcome(data: bytes, flavour: Flavour) -> object:
    try:
        return len(read(data, flavour))
    except RemoteProtocolError as error:
        return CloseCode(error.code)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("arrived", [TOTAL_SIZE, LENGTHS_SIZE])
def test_the_longest_event(flavour: Flavour, arrived: int) -> None:
    longest = LIMITS.longest_frame
    measure = measure_of(flavour, longest)
    for size in (longest, longest + 1):
        lengths = struct.pack(">QH", size - LENGTHS_SIZE, 100)[:arrived]
        if size == longest:
            assert measure(lengths, 0) == (longest if arrived == LENGTHS_SIZE else LENGTHS_SIZE)
        else:
            with pytest.raises(RemoteProtocolError):
                measure(lengths, 0)


@pytest.mark.parametrize("flavour", FLAVOURS)
@given(data=st.data())
def test_all_written_events_can_be_read(flavour: Flavour, data: st.DataObject) -> None:
    said = data.draw(st.lists(events(flavour), max_size=4))
    raw = b"".join(on_wire(event, flavour) for event in said)
    assert read(raw, flavour) == said
    assert read(raw, flavour, piece=1) == said
    assert read(raw, flavour, piece=data.draw(st.integers(2, 40))) == said


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("event", [ask(data=b"d", namespace="é"), reply(5, b"some data")])
def test_any_changed_byte_is_read_or_refused(flavour: Flavour, event: BromineEvent) -> None:
    raw = bytearray(on_wire(event, flavour))
    outcomes = set()
    for at, right in enumerate(raw):
        for wrong in range(256):
            raw[at] = wrong
            outcomes.add(outcome(bytes(raw), flavour))
        raw[at] = right
    assert outcomes == {0, 1, *REFUSALS}


@given(st.binary(max_size=200), st.sampled_from(FLAVOURS))
def test_anything_else_is_read_or_refused(data: bytes, flavour: Flavour) -> None:
    assert outcome(data, flavour) in (*range(10), *REFUSALS)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_longest_permitted_event_is_the_limit(flavour: Flavour) -> None:
    limits = DialectLimits(longest_frame=100)
    raw = on_wire(ask(data=b"0" * 60), flavour)
    fits = ask(data=b"0" * (60 + 100 - len(raw)))
    longer = fits._replace(data=fits.data + b"0")
    assert read(serialise_event(fits, flavour, limits), flavour, limits) == [fits]
    assert refused(on_wire(longer, flavour), flavour, limits) == CloseCode.FRAME_TOO_LARGE
    with pytest.raises(PayloadTooLargeError, match="101 bytes: the limit is 100"):
        serialise_event(longer, flavour, limits)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_the_longest_permitted_name_is_the_limit(flavour: Flavour, field: str) -> None:
    limits = DialectLimits(longest_name=4)
    fits, longer = (ask(text) if field == "name" else ask(namespace=text) for text in ("éé", "ééé"))
    assert read(serialise_event(fits, flavour, limits), flavour, limits) == [fits]
    assert refused(on_wire(longer, flavour), flavour, limits) == CloseCode.FRAME_TOO_LARGE
    with pytest.raises(LocalProtocolError, match="has 6 bytes: the limit is 4 "):
        serialise_event(longer, flavour, limits)


def test_two_long_names_do_not_fit_into_a_header() -> None:
    limits = DialectLimits(longest_name=65_535)
    event = ask("n" * 40_000, namespace="s" * 25_519)
    assert read(serialise_event(event, Flavour.PLAIN, limits), Flavour.PLAIN, limits) == [event]
    with pytest.raises(LocalProtocolError, match="65,536 bytes"):
        serialise_event(event, Flavour.TYPED, limits)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_names_are_utf8(flavour: Flavour) -> None:
    raw = on_wire(ask("ab"), flavour).replace(b"ab", b"\xc3\x28")
    assert refused(raw, flavour) == CloseCode.PROTOCOL_ERROR
    with pytest.raises(LocalProtocolError, match="surrogate"):
        on_wire(ask("\ud800"), flavour)


@given(st.integers(0, 65_535), st.text(max_size=50), st.binary(max_size=3))
def test_errors_are_read_as_they_were_written(code: int, text: str, rest: bytes) -> None:
    expected = text.encode("utf-8", "replace").decode()
    assert decode_error(encode_error(code, text) + rest) == (code, expected)


@pytest.mark.parametrize("code", [-1, 65_536])
def test_an_errors_code_has_16_bits(code: int) -> None:
    with pytest.raises(ValueError, match="invalid error code"):
        encode_error(code, "")
