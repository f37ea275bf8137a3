"""IDs of stored events, and start positions."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import (
    AFTER_ALL,
    BEFORE_ALL,
    EventId,
    after,
    first_id_at,
    parse_id,
)
from tests.sweep import sweep

IDS = st.builds(EventId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(IDS)
def test_an_id_is_read_from_its_text(id: EventId) -> None:
    assert parse_id(str(id)) == id


@given(IDS)
def test_previous_id_is_adjacent(id: EventId) -> None:
    before = id.before
    if id == (0, 0):
        assert before == id
    elif id.number:
        assert before == (id.milliseconds, id.number - 1)
    else:
        assert before == (id.milliseconds - 1, 2**64 - 1)


def test_time_beyond_datetime_is_the_maximum() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert {EventId(ms, 0).published_at for ms in (2**48, 2**63, 2**64 - 1)} == {last}


def test_without_a_number_it_is_the_first_of_its_millisecond() -> None:
    assert parse_id("1700000000000") == (1_700_000_000_000, 0)


@sweep(
    "text",
    [
        "",
        "-",
        "1-",
        "-1",
        "1-2-3",
        "01-2",
        "1-02",
        " 1-2",
        "1-2\n",
        "١-2",
        "1_0",
        f"{2**64}-0",
        None,
        7,
    ],
)
def test_invalid_ids(text: object) -> None:
    with pytest.raises(InvalidEventError, match="invalid event ID"):
        parse_id(text)


def test_id_has_its_time() -> None:
    when = datetime(2026, 11, 22, 4, 30, 0, 123_000, UTC)
    id = first_id_at(when.astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert (id.published_at, id.number) == (when, 0)


def test_start_positions() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert after("first") == BEFORE_ALL
    assert after("new") == AFTER_ALL
    assert after("5-3") == "5-2"
    assert parse_id(after(when)) == first_id_at(when).before


@pytest.mark.parametrize(
    "position", [datetime(2026, 1, 1), datetime(1969, 12, 31, tzinfo=UTC), "last", "$", ""]
)
def test_invalid_start_positions(position: str | datetime) -> None:
    with pytest.raises(InvalidEventError):
        after(position)
