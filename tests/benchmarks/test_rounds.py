"""Rows: medians and spreads of rounds, and in which order these are measured."""

import pytest

from benchmarks.rounds import Measurement, Round, headings, line, rounds, row
from benchmarks.task import CASES, Backend, SideName, Task


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
    found = row("calls", CASES["calls"], ROUNDS)
    assert found["ours"]["value"] == 100
    assert found["ratio"] == [1.0, 0.5, 3.0]
    assert found["cpu_ratio"] == [1.0, 0.5, 2.0]


def test_what_was_lost_is_said() -> None:
    found = row("calls", CASES["calls"], ROUNDS)
    assert "lost 25.00% : 0.00%" in line(found)


def test_a_row_says_what_ours_is_held_against() -> None:
    found = row("calls", CASES["calls"], ROUNDS, "resume=0")
    assert found["beside"] == "resume=0"
    assert headings("resume=0").split()[:3] == ["case", "ours", "resume=0"]
    assert row("calls", CASES["calls"], ROUNDS)["beside"] == "baseline"


def test_both_sides_are_first_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[SideName, Task]] = []

    def measure(side: SideName, task: Task, backend: Backend, quiet: float) -> Measurement:
        measured.append((side, task))
        return Measurement(float(len(measured)), 1, client_us=1, server_us=1, others=0.0)

    monkeypatch.setattr("benchmarks.rounds.measure", measure)
    ours, other = Task(work="calls", seconds=1), Task(work="calls", seconds=1, settings={"A": "b"})
    done = rounds(ours, 3, against=("ours", other))
    assert [task for _, task in measured] == [ours, other, other, ours, ours, other]
    assert [each.ours.value for each in done] == [1, 4, 5]
    assert [each.baseline.value for each in done if each.baseline] == [2, 3, 6]
    assert [each.baseline for each in rounds(ours, 2)] == [None, None]


def test_ours_alone_has_no_ratio() -> None:
    found = row("calls", CASES["calls"], [Round(one(100, 10), None)])
    assert "ratio" not in found
    assert "baseline" not in found
    assert line(found).split()[:3] == ["calls", "100", "calls/s"]
