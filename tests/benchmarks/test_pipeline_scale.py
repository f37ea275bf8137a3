"""The pipeline's measurement by rows and by cores, and its figures."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.machine import machine
from benchmarks.pipeline import scaling
from benchmarks.pipeline.scaling import LOCAL, MASTERS, Measurement, measure, planned

pytestmark = pytest.mark.process

FOUND = [
    Measurement("local[1]", 1000, 20.0),
    Measurement(LOCAL, 100, 5.0),
    Measurement(LOCAL, 1000, 10.0),
    Measurement("cluster, 1 worker", 1000, 25.0),
    Measurement("cluster, 2 workers", 1000, 12.5),
]


def write(file: Path) -> None:
    rows = [{"machine": machine()}, *map(asdict, FOUND)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_all_masters_have_the_same_rows() -> None:
    assert planned([10, 100]) == [(10, [LOCAL]), (100, list(MASTERS))]
    assert planned([10_000_000]) == [(1_000_000, list(MASTERS)), (10_000_000, [LOCAL])]


def test_a_measurement_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scale.json"
    write(file)
    file.write_text(file.read_text().rpartition('{"master"')[0] + '{"master": "clu')
    asked: list[tuple[str, int]] = []

    def run(place: Path, master: str, rows: int) -> float:
        asked.append((master, rows))
        return 12.5

    monkeypatch.setattr(scaling, "_run", run)
    assert sorted(measure([100, 1000], file), key=str) == sorted(FOUND, key=str)
    assert asked == [("cluster, 2 workers", 1000)]


def test_results_of_another_machine_are_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "scale.json"
    file.write_text('{"machine": {"cpu": "another"}}\n')
    with pytest.raises(ValueError, match="measured on another machine"):
        list(measure([100], file))


def test_figures_and_a_table_are_made_of_results(tmp_path: Path) -> None:
    write(tmp_path / "scale.json")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline.figures", tmp_path / "scale.json", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2:] == [
        "| 100 | local[2] | 5.0 | 20 |",
        "| 1,000 | local[1] | 20.0 | 50 |",
        "| 1,000 | local[2] | 10.0 | 100 |",
        "| 1,000 | cluster, 1 worker | 25.0 | 40 |",
        "| 1,000 | cluster, 2 workers | 12.5 | 80 |",
    ]
    for name in ("rows", "cores"):
        svg = (tmp_path / f"performance-{name}.svg").read_text()
        ElementTree.fromstring(svg)  # noqa: S314  (our own file)
        assert "prefers-color-scheme:dark" in svg
        assert len(svg) < 40_000
