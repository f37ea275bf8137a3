"""A good tunnel beside stalled ones: a row for each figure, and the ratio of both."""

import pytest

from benchmarks.isolation import compare, line
from node.protocol.window import TUNNEL_WINDOW

pytestmark = pytest.mark.process
STALLED = 32


def test_what_stalls_is_held_at_its_windows() -> None:
    rows = compare(seconds=0.05, rounds=1, stalled=STALLED)
    assert [row["isolation"] for row in rows] == ["median", "p99", "memory"]
    for row in rows[:2]:
        assert row["ratio"] == pytest.approx(row["stalled"] / row["calm"], rel=0.01)
        assert row["what"] in line(row)
    memory = rows[2]
    assert memory["calm"] == round(STALLED * 2 * TUNNEL_WINDOW / 1e6, 1)
    assert 0 < memory["ratio"] < 3  # of so few: what else a process takes meanwhile counts for more
