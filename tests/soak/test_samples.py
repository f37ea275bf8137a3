"""Growth is detected despite noise, noise isn't growth, and a process's usage is read correctly."""

import os

import pytest

from tests.soak.samples import Usage, growth, slope


def test_a_steady_rise_is_growth_and_single_peaks_are_not() -> None:
    rising = [(float(t), 100.0 * t) for t in range(100)]
    assert slope(rising) == pytest.approx(100)
    grown = growth(rising)
    assert grown.rise == pytest.approx(100 * grown.seconds)
    assert grown.worst > 5_000
    flat = [(float(t), 10_000.0 if t % 7 == 3 else 50.0) for t in range(100)]
    assert growth(flat).worst == 0
    warming = [(float(t), 100.0 * min(t, 25)) for t in range(100)]
    assert growth(warming).worst == 0
    assert growth([]).worst == slope([(0.0, 1.0)]) == 0


def test_a_process_is_seen_as_it_is() -> None:
    usage = Usage(os.getpid())
    before = usage.cpu_seconds()
    usage.sample(0.0)
    with open(os.devnull):
        usage.sample(1.0)
        assert usage.count()["files"] == usage.most_files
    assert usage.count()["files"] == usage.most_files - 1
    assert usage.most_threads >= 1
    assert [at for at, size in usage.memory if size > 1 << 20] == [0.0, 1.0]
    sum(range(1_000_000))
    assert usage.cpu_seconds() >= before
