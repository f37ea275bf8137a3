"""IDs as integers: round trips, order, and IDs that do not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import parse_id
from parley._node.bus.sqlite.schema import (
    COUNT,
    LARGEST,
    NO_ID,
    first_at,
    number_of,
    numbers_of,
    place_of,
    text_of,
)

ids = st.integers(0, LARGEST)
any_ids = st.builds("{}-{}".format, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(ids, ids)
def test_an_id_is_the_same_as_text_and_in_the_same_order(one: int, other: int) -> None:
    assert number_of(text_of(one)) == place_of(text_of(one)) == one
    assert numbers_of([text_of(one), text_of(other)]) == [one, other]
    assert (parse_id(text_of(one)) < parse_id(text_of(other))) == (one < other)


@given(any_ids, ids)
def test_a_place_is_the_last_integer_that_is_not_after_it(text: str, number: int) -> None:
    assert (parse_id(text_of(number)) <= parse_id(text)) == (number <= place_of(text))


@pytest.mark.parametrize("text", ["5-1048576", f"{2**43}-0", f"{2**64 - 1}-{2**64 - 1}"])
def test_impossible_id_has_no_integer(text: str) -> None:
    assert number_of(text) == NO_ID
    assert numbers_of([text]) == []


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", " 1-2", "1-02", "1_0-1", "٣-1"])
def test_invalid_ids_raise(text: str) -> None:
    for parse in (number_of, place_of, lambda text: numbers_of([text])):
        with pytest.raises(InvalidEventError):
            parse(text)


def test_a_time_is_its_first_id_and_far_times_are_the_last() -> None:
    assert text_of(first_at(1.5)) == "1500-0"
    assert first_at(-5) == 0
    assert first_at(1e300) == LARGEST - COUNT
