"""Bytes that wait for their turn stay in their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.transport.turns import WHOLE, Turns


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9), st.integers(0, 9))
def test_what_was_put_is_taken_in_its_order(
    pieces: list[bytes], size: int, taken_between: int
) -> None:
    turns = Turns()
    taken = b""
    for piece in pieces:
        turns.put(piece)
        part = turns.take(taken_between)
        assert len(part) <= taken_between
        taken += part
    while turns.waiting:
        part = turns.take(size)
        assert 0 < len(part) <= size
        taken += part
    assert taken == b"".join(pieces)


@pytest.mark.parametrize("how", ["never put", "taken", "forgotten"])
def test_nothing_waits_that_is_not_kept(how: str) -> None:
    turns = Turns()
    if how != "never put":
        turns.put(b"some")
    if how == "taken":
        assert turns.take(WHOLE) == b"some"
    elif how == "forgotten":
        turns.clear()
    assert not turns.waiting
    assert turns.take(WHOLE) == b""
