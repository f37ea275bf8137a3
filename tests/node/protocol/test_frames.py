"""Tests of frames: split correctly from any pieces, and rejected by their length."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.frames import FrameReader, frame
from tests.node.protocol.pair import fed

EVENTS = [b"", b"a", b"bc" * 50, b"x" * 300]
WIRE = b"".join(map(frame, EVENTS))


def test_a_frame_is_length_and_event() -> None:
    assert frame(b"abc") == bytes.fromhex("00000003616263")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100, len(WIRE)])
def test_events_come_whole_whatever_the_pieces(size: int) -> None:
    reader = FrameReader(300)
    events: list[bytes | memoryview] = []
    for start in range(0, len(WIRE), size):
        events += fed(reader, WIRE[start : start + size])
    assert events == EVENTS
    assert reader.size == 0


def test_an_unfinished_frame_waits() -> None:
    reader = FrameReader(300)
    assert list(fed(reader, WIRE[:-1])) == EVENTS[:-1]
    assert reader.size == 4 + 299
    assert list(fed(reader, WIRE[-1:])) == EVENTS[-1:]


def test_what_is_not_asked_for_stays() -> None:
    reader = FrameReader(300)
    for event in fed(reader, WIRE):
        if event == b"a":
            break
    assert list(fed(reader, b"")) == EVENTS[2:]


def test_the_limit_itself_is_allowed() -> None:
    assert list(fed(FrameReader(3), frame(b"abc"))) == [b"abc"]


def test_a_frame_too_long_is_refused_from_its_length() -> None:
    reader = FrameReader(3)
    with pytest.raises(RemoteProtocolError) as caught:
        list(fed(reader, bytes.fromhex("00000004")))
    assert caught.value.code == CloseCode.FRAME_TOO_LARGE
    assert reader.size <= 4  # its body was not buffered


def test_events_before_a_frame_too_long_are_handed_out() -> None:
    events = fed(FrameReader(3), frame(b"abc") + frame(b"abcd"))
    assert next(events) == b"abc"
    with pytest.raises(RemoteProtocolError):
        next(events)


def test_the_limit_may_rise_between_two_events() -> None:
    reader = FrameReader(3)
    events = []
    for event in fed(reader, frame(b"abc") + frame(b"abcd")):
        events.append(event)
        reader.limit = 4
    assert events == [b"abc", b"abcd"]


def test_a_long_frame_in_small_pieces_is_joined_once() -> None:
    wire = frame(b"x" * 2_000_000)
    reader = FrameReader(2_000_000)
    pieces = [wire[i : i + 1000] for i in range(0, len(wire), 1000)]
    assert [event for piece in pieces for event in fed(reader, piece)] == [b"x" * 2_000_000]


def test_clear_forgets() -> None:
    reader = FrameReader(300)
    assert list(fed(reader, frame(b"abc")[:-1])) == []
    reader.clear()
    assert reader.size == 0


def test_who_stops_in_the_middle_goes_on_without_a_copy() -> None:
    reader = FrameReader(8_000)
    reader.feed(b"")
    assert not reader.unread
    data = (frame(b"abc") + frame(b"x" * 5_000)) * 2 + frame(b"rest")[:-1]
    views: list[bytes | memoryview] = []
    for wanted in (b"abc", b"x" * 5_000, b"abc", b"x" * 5_000):
        for event in fed(reader, b"" if views else data):
            views.append(event)
            break
        assert bytes(views[-1]) == wanted
        assert reader.unread
    assert all(view.obj is data for view in views if isinstance(view, memoryview))
    assert list(fed(reader, b"")) == []
    assert (reader.unread, reader.size) == (False, 7)
    assert list(fed(reader, b"t")) == [b"rest"]


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40), st.integers(1, 3))
def test_pieces_and_stops_change_nothing(sizes: list[int], piece: int, most: int) -> None:
    events = [bytes([number]) * size for number, size in enumerate(sizes)]
    wire = b"".join(map(frame, events))
    reader, found = FrameReader(100), []
    for at in range(0, len(wire), piece):
        data = wire[at : at + piece]
        found += [bytes(event) for event in islice(fed(reader, data), most)]
    while reader.unread:
        found += [bytes(event) for event in islice(fed(reader, b""), most)]
    assert found == events


@given(
    st.lists(st.sampled_from([0, 9, 4_000, 4_100, 20_000]), max_size=12),
    st.sampled_from([1_500, 4_096, 7_000, 16_000, 50_000]),
    st.integers(1, 3),
)
def test_nor_do_they_for_long_events(sizes: list[int], piece: int, most: int) -> None:
    events = [bytes([number]) * size for number, size in enumerate(sizes)]
    wire = b"".join(map(frame, events))
    reader, found = FrameReader(20_000), []
    for at in range(0, len(wire), piece):
        if most == 2:
            reader.feed(wire[at : at + piece])
            continue
        found += [bytes(event) for event in islice(fed(reader, wire[at : at + piece]), most)]
    while reader.unread:
        found += [bytes(event) for event in islice(fed(reader, b""), most)]
    assert found == events
    assert (reader.size, reader.unread_bytes()) == (0, b"")


def test_a_long_event_in_pieces_is_copied_once_and_what_follows_it_is_not() -> None:
    wire = frame(b"x" * 26_000) * 3
    pieces = [wire[at : at + 25_000] for at in range(0, len(wire), 25_000)]
    reader = FrameReader(26_000)
    for piece in pieces:
        views = list(fed(reader, piece))
        for view in views:
            assert isinstance(view, memoryview)
            assert isinstance(view.obj, bytes)
            assert len(view.obj) == len(view) + 4  # only its frame
        assert not reader.size or reader.data is piece
