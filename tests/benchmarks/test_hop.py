"""One hop beside direct: three processes, and what is done through them in turn."""

import pytest

from benchmarks.hop import NAMES, compare, line
from benchmarks.tables import hop_table

IN_FLIGHT = NAMES[1]


def test_a_row_says_how_much_passes_and_what_each_process_spent() -> None:
    row = compare(IN_FLIGHT, seconds=0.1, rounds=1, quiet=0.0)
    assert row["ratio"] == pytest.approx(row["tunnel"] / row["direct"], abs=0.01)
    assert row["ratio"] > 0
    assert (len(row["direct_us"]), len(row["tunnel_us"])) == (2, 3)
    all_of_them = sum(row["direct_us"]) / sum(row["tunnel_us"])
    assert row["cpu_ratio"] == pytest.approx(all_of_them, abs=0.02)
    busiest = max(row["direct_us"]) / max(row["tunnel_us"])
    assert row["busiest_ratio"] == pytest.approx(busiest, abs=0.02)
    assert f"{row['cpu_ratio']:.3f}" in line(row)
    assert f"{row['cpu_ratio']:.2f}" in hop_table([row])

    sharing_a_core = {**row, "busiest_ratio": None}
    assert "busiest" not in line(sharing_a_core)
    assert "None" not in hop_table([sharing_a_core])
