"""The command line: names are checked, rows are JSON."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize(
    "module", ["benchmarks", "benchmarks.bus", "benchmarks.growth", "benchmarks.peers"]
)
def test_an_unknown_name_is_refused(module: str) -> None:
    found = run(module, "nonsense")
    assert found.returncode == 2
    assert "nonsense" in found.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["calls", "--beside", "resum=0"], "unknown setting"),
        (["calls", "--beside", "resume=soon"], "cannot set node.resume to 'soon'"),
        (["calls", "--beside", "resume=0", "--ours-only"], "not allowed with"),
    ],
)
def test_what_cannot_stand_beside_ours_is_refused(options: list[str], said: str) -> None:
    found = run("benchmarks", *options)
    assert found.returncode == 2
    assert said in found.stderr


def test_our_side_stands_beside_itself_with_other_settings() -> None:
    options = ["--json", "--seconds", "0.05", "--rounds", "1", "--quiet", "0"]
    settings = ["--beside", "resume=0", "--beside", "limits.seal_events=8"]
    found = run("benchmarks", "calls-64", *options, *settings)
    assert found.returncode == 0, found.stderr
    _, row = map(json.loads, found.stdout.splitlines())
    assert row["beside"] == "resume=0 limits.seal_events=8"
    assert row["ours"]["value"] > 0
    assert row["baseline"]["value"] > 0


def test_rows_are_json() -> None:
    options = ["--json", "--seconds", "0.05", "--rounds", "1", "--quiet", "0"]
    found = run("benchmarks", "calls-64", *options, "--ours-only")
    assert found.returncode == 0, found.stderr
    head, calls = map(json.loads, found.stdout.splitlines())
    assert head["machine"]["backend"] == "uvloop"
    assert calls["ours"]["value"] > 0
    assert "baseline" not in calls
