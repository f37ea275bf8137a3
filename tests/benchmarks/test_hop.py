"""One hop beside direct: a row for each work, with the ratio of both."""

import pytest

from benchmarks.hop import WORKS, compare, line


def test_every_work_has_its_row() -> None:
    rows = compare(seconds=0.05, rounds=1)
    assert [row["hop"] for row in rows] == list(WORKS)
    for row in rows:
        assert row["ratio"] == pytest.approx(row["tunnel"] / row["direct"], abs=0.01)
        assert 0 < row["ratio"] < 1.5
        assert row["what"] in line(row)
