"""Events as bytes: both flavours, every cut, every changed byte, and each limit."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.frames import FrameSplitter
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import (
    TOTAL_SIZE,
    BromineEvent,
    BromineType,
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
    """The events in `data`, fed in pieces."""
    splitter = FrameSplitter(TOTAL_SIZE, measure_of(flavour, limits.longest_frame))
    return [
        parse_event(frame, flavour, limits.longest_name)
        for at in range(0, len(data), piece)
        for frame in splitter.feed(data[at : at + piece])
    ]


def refused(data: bytes, flavour: Flavour, limits: DialectLimits = LIMITS) -> CloseCode:
    """The code with which `data` is refused."""
    with pytest.raises(RemoteProtocolError) as caught:
        read(data, flavour, limits)
    return CloseCode(caught.value.code)


def outcome(data: bytes, flavour: Flavour) -> object:
    """How many events `data` has, or the code with which it is refused."""
    try:
        return len(read(data, flavour))
    except RemoteProtocolError as error:
        return CloseCode(error.code)


def test_a_plain_event_is_the_documents_bytes() -> None:
    event = BromineEvent(0x0102030405060708, BromineType.RESPONSE, 9, "ns", "ping", b"data")
    assert (
        on_wire(event, Flavour.PLAIN)
        == bytes.fromhex("0000000000000022 001e 000900 0102030405060708 ff 0000000000000009")
        + b"\0\2ns\0\4pingdata"
    )


def test_a_typed_event_has_one_more_byte_after_its_id() -> None:
    event = BromineEvent(0x0102030405060708, BromineType.END, None, "", "end", b"")
    assert (
        on_wire(event, Flavour.TYPED)
        == bytes.fromhex("0000000000000014 0014 000900 0102030405060708 02 00 0000 0003") + b"end"
    )


@pytest.mark.parametrize("flavour", FLAVOURS)
@given(data=st.data())
def test_whatever_is_said_is_read(flavour: Flavour, data: st.DataObject) -> None:
    said = data.draw(st.lists(events(flavour), max_size=4))
    raw = b"".join(on_wire(event, flavour) for event in said)
    assert read(raw, flavour) == said
    assert read(raw, flavour, piece=1) == said
    assert read(raw, flavour, piece=data.draw(st.integers(2, 40))) == said


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("event", [ask(namespace="game"), reply(2**64 - 1, b"some data")])
def test_a_cut_event_is_waited_for(flavour: Flavour, event: BromineEvent) -> None:
    raw = on_wire(event, flavour)
    assert [read(raw[:size], flavour) for size in range(len(raw))] == [[]] * len(raw)


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
def test_only_the_first_byte_of_the_version_counts(flavour: Flavour) -> None:
    raw = bytearray(on_wire(ask(), flavour))
    raw[11:13] = b"\xff\xff"
    assert read(bytes(raw), flavour) == [ask()]
    raw[10] = 1
    assert refused(bytes(raw), flavour) == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_follows_the_name_in_a_header_is_ignored(flavour: Flavour) -> None:
    raw = on_wire(ask(data=b"data"), flavour)
    total, header = struct.unpack_from(">QH", raw)
    longer = struct.pack(">QH", total + 3, header + 3) + raw[10 : 10 + header] + b"new" + b"data"
    assert read(longer, flavour) == [ask(data=b"data")]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_header_that_is_shorter_than_its_fields_is_refused(flavour: Flavour) -> None:
    event = BromineEvent(1, BromineType.RESPONSE, 2, "space", "name", b"")
    raw = on_wire(event, flavour)
    total, header = struct.unpack_from(">QH", raw)
    for size in range(header):
        shorter = struct.pack(">QH", total, size) + raw[10:]
        assert refused(shorter, flavour) == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("total", "header", "code"),
    [
        (2**64 - 1, 30, CloseCode.FRAME_TOO_LARGE),
        (2**64 - 1, 65_535, CloseCode.FRAME_TOO_LARGE),
        (LIMITS.longest_frame - 9, 30, CloseCode.FRAME_TOO_LARGE),
        (29, 30, CloseCode.PROTOCOL_ERROR),
        (0, 0, CloseCode.PROTOCOL_ERROR),
    ],
)
def test_lengths_are_refused_by_themselves(
    flavour: Flavour, total: int, header: int, code: CloseCode
) -> None:
    assert refused(struct.pack(">QH", total, header), flavour) == code


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_longest_event_is_read_and_written_and_none_longer(flavour: Flavour) -> None:
    limits = DialectLimits(longest_frame=100)
    raw = on_wire(ask(data=b"0" * 60), flavour)
    fits = ask(data=b"0" * (60 + 100 - len(raw)))
    longer = fits._replace(data=fits.data + b"0")
    assert read(serialise_event(fits, flavour, limits), flavour, limits) == [fits]
    assert refused(on_wire(longer, flavour), flavour, limits) == CloseCode.FRAME_TOO_LARGE
    with pytest.raises(PayloadTooLargeError, match="101 bytes; at most 100"):
        serialise_event(longer, flavour, limits)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_the_longest_name_is_read_and_written_and_none_longer(flavour: Flavour, field: str) -> None:
    limits = DialectLimits(longest_name=4)
    fits, longer = (ask(text) if field == "name" else ask(namespace=text) for text in ("éé", "ééé"))
    assert read(serialise_event(fits, flavour, limits), flavour, limits) == [fits]
    assert refused(on_wire(longer, flavour), flavour, limits) == CloseCode.FRAME_TOO_LARGE
    with pytest.raises(LocalProtocolError, match="of 6 bytes; at most 4 "):
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


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_indicator_has_two_values(flavour: Flavour) -> None:
    for wrong in range(1, 255):
        raw = bytearray(on_wire(reply(3), flavour))
        raw[22 if flavour is Flavour.TYPED else 21] = wrong
        assert refused(bytes(raw), flavour) == CloseCode.PROTOCOL_ERROR


def test_there_are_four_types() -> None:
    raw = bytearray(on_wire(ask(), Flavour.TYPED))
    raw[21] = 4
    assert refused(bytes(raw), Flavour.TYPED) == CloseCode.PROTOCOL_ERROR


@given(st.integers(0, 65_535), st.text(max_size=50), st.binary(max_size=3))
def test_errors_are_read_as_they_were_written(code: int, text: str, rest: bytes) -> None:
    expected = text.encode("utf-8", "replace").decode()
    assert decode_error(encode_error(code, text) + rest) == (code, expected)


def test_an_error_is_code_length_text() -> None:
    assert encode_error(500, "é") == bytes.fromhex("01f4 00000002 c3a9")


@pytest.mark.parametrize("code", [-1, 65_536])
def test_an_errors_code_has_16_bits(code: int) -> None:
    with pytest.raises(ValueError, match="16 bits"):
        encode_error(code, "")


def test_what_is_no_error_is_none() -> None:
    raw = encode_error(500, "text")
    assert {decode_error(raw[:size]) for size in range(len(raw))} == {None}
    assert decode_error(raw[:-1] + b"\xff") is None
    assert decode_error(b"\0\0\xff\xff\xff\xfftext") is None
