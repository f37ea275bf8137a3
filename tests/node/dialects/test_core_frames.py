"""Frames are split independently of chunk sizes, and lengths are checked from the head alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.core import FrameSplitter
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError

LIMIT = 50


def measure(data: bytes, at: int) -> int:
    """Read one byte, which is the length of the following data."""
    if data[at] > LIMIT:
        raise RemoteProtocolError(CloseCode.FRAME_TOO_LARGE, "too long")
    return 1 + data[at]


def frame(body: bytes) -> bytes:
    return bytes((len(body),)) + body


@given(st.lists(st.binary(max_size=LIMIT), max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_the_same_frames_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(map(frame, bodies))
    splitter, found, at, turn = FrameSplitter(1, measure), [], 0, 0
    while at < len(whole):
        size = cuts[turn % len(cuts)]
        found += [bytes(one) for one in splitter.feed(whole[at : at + size])]
        at, turn = at + size, turn + 1
    assert found == list(map(frame, bodies))
    assert splitter.pending_bytes == 0


def test_stored_bytes_are_less_than_a_frame() -> None:
    splitter = FrameSplitter(1, measure)
    list(splitter.feed(frame(b"x" * LIMIT)[:-1]))
    assert splitter.pending_bytes == LIMIT
    assert [bytes(one) for one in splitter.feed(b"y" + b"\x03ab")] == [frame(b"x" * 49 + b"y")]
    assert splitter.pending_bytes == 3


def test_frames_before_one_that_is_too_long_are_given() -> None:
    splitter = FrameSplitter(1, measure)
    found = splitter.feed(frame(b"ab") + b"\xff")
    assert bytes(next(found)) == frame(b"ab")
    with pytest.raises(RemoteProtocolError):
        next(found)


def test_a_head_of_several_bytes_is_waited_for() -> None:
    seen: list[int] = []

    def two(data: bytes, at: int) -> int:
        seen.append(at)
        return 2 + data[at + 1]

    splitter = FrameSplitter(2, two)
    assert list(splitter.feed(b"\x00")) == []
    assert seen == []
    assert [bytes(one) for one in splitter.feed(b"\x01z")] == [b"\x00\x01z"]
