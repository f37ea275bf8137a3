"""Parsing of the positions at which a command starts."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from parley._node.cli.bus.format import parse_position, parse_time
from parley._node.errors import ConfigError


@pytest.mark.parametrize("text", ["first", "new", "0", "1732250000000", "1732250000000-7"])
def test_words_and_ids_stay_as_they_are(text: str) -> None:
    assert parse_position(text) == text


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-01-31T12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (
            "2026-01-31 12:00:01.5+02:00",
            datetime(2026, 1, 31, 12, 0, 1, 500_000, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_times(text: str, when: datetime) -> None:
    assert parse_position(text) == when


@pytest.mark.parametrize(
    ("text", "ago"), [("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800)]
)
def test_how_long_ago(text: str, ago: float) -> None:
    found = parse_time(text, "--before")
    assert abs((datetime.now(UTC) - found).total_seconds() - ago) < 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-01-31T12:00", "the time zone is missing"),
        ("2026-01-31", "the time zone is missing"),
        ("last", "expected an ID, a time such as 2026-01-31T12:00Z, or an age such as 2h"),
        ("", "expected an ID"),
        ("1-2-3", "expected an ID"),
        ("99999999d", "expected an ID"),
        ("-2h", "expected an ID"),
    ],
)
def test_what_is_no_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"invalid --start '{text}': {said}"):
        parse_position(text)
