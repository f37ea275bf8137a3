"""Rows: medians and spreads of rounds."""

from benchmarks import report
from benchmarks.cases import CASES
from benchmarks.rounds import Measurement, Round


def one(value: float, cpu: float, lost: float = 0.0) -> Measurement:
    return Measurement(
        value=value, operations=10, client_us=cpu, server_us=cpu, others=0.1, lost=lost
    )


ROUNDS = [
    Round(one(100, 10), one(200, 5)),
    Round(one(300, 10, lost=0.25), one(100, 20)),
    Round(one(100, 10), one(100, 10)),
]


def test_a_ratio_is_of_one_round() -> None:
    row = report.row("calls", CASES["calls"], ROUNDS)
    assert row["ours"]["value"] == 100
    assert row["ratio"] == [1.0, 0.5, 3.0]
    assert row["cpu_ratio"] == [1.0, 0.5, 2.0]


def test_what_was_lost_is_said() -> None:
    row = report.row("calls", CASES["calls"], ROUNDS)
    assert "lost 25.00% : 0.00%" in report.line(row)


def test_ours_alone_has_no_ratio() -> None:
    row = report.row("calls", CASES["calls"], [Round(one(100, 10), None)])
    assert "ratio" not in row
    assert "baseline" not in row
    assert report.line(row).split()[:3] == ["calls", "100.0", "calls/s"]
