"""Numbers with their units."""

import pytest

from parley._pipeline.report import format as units


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (None, "–"),
        (0, "0 µs"),
        (999, "999 µs"),
        (1_500, "1.50 ms"),
        (15_000_000, "15.0 s"),
        (300_000_000, "5.00 min"),
        (90_000_000_000, "25.0 h"),
        (864_000_000_000, "10.0 d"),
    ],
)
def test_durations(micros: int | None, shown: str) -> None:
    assert units.duration(micros) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (2**20, "1.00 MiB"),
        (150 * 2**30, "150 GiB"),
        (2**61, "2,048 PiB"),
    ],
)
def test_sizes(size: int | None, shown: str) -> None:
    assert units.size(size) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, "–"),
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (999_999, 1_000_000, "> 99.99 %"),
        (1, 1_000_000, "< 0.01 %"),
        (1, 3, "33.33 %"),
    ],
)
def test_shares(part: int, whole: int, shown: str) -> None:
    assert units.share(part, whole) == shown


def test_counts_and_times() -> None:
    assert (units.count(None), units.count(1_234_567)) == ("–", "1,234,567")
    assert (units.time(None), units.time(1_767_355_200_000_000)) == ("–", "2026-01-02 12:00:00")
