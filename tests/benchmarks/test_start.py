"""What commands take to start, compared with a program of click: the bounds hold."""

import pytest

from benchmarks.start import BARE, STARTS, measure, too_slow

BOUND = [name for name, start in STARTS.items() if start.bound is not None]


def test_what_is_too_slow() -> None:
    assert too_slow({BARE: 0.2, "--version": 0.29, "call": 1.59, "--help": 2.0}) == {}
    assert list(too_slow({BARE: 0.2, "--version": 0.31, "call": 1.61})) == ["--version", "call"]


@pytest.mark.process
@pytest.mark.slow
def test_commands_start_soon() -> None:
    assert too_slow(measure(BOUND, rounds=2)) == {}
