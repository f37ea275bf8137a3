"""Tests that are marked `alone`: those of a file run in a process of their own, all in one.

They search or weigh all objects of their process, and where 26,000 tests have been collected that
takes ten times as long as where twenty have. A start takes longer than most of them, so that a
file has one.
"""

import gc
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
# Seconds for the first test of a file, which waits for all; there each has its own limit.
PATIENCE: Final = 300
_HERE: Final = "PARLEY_TEST_ALONE"  # set where such tests run


def is_here() -> bool:
    """Whether this is a process of such tests."""
    return _HERE in os.environ


def give_time(items: list[pytest.Item]) -> None:
    """Have pytest wait until the process has ended."""
    if not is_here():
        for item in items:
            if item.get_closest_marker("alone"):
                item.add_marker(pytest.mark.timeout(PATIENCE), append=False)


def run_alone(item: pytest.Function) -> bool | None:
    """Run a test that is marked `alone`, if this is not its own process yet: else None."""
    if item.get_closest_marker("alone") is None or is_here():
        return None
    there = (each for each in item.session.items if each.path == item.path)
    done = _run(tuple(each.nodeid for each in there if each.get_closest_marker("alone")))
    assert is_well(item.nodeid, done), done.stdout + done.stderr
    return True


def is_well(test: str, done: "subprocess.CompletedProcess[str]") -> bool:
    """Whether a test passed, and none of its file has left anything behind: that is found when the
    process ends, and may be any test's."""
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    passed = f"PASSED {test}" in lines and not any(test in line for line in wrong)
    return passed and (done.returncode == 0 or bool(wrong))


@cache
def _run(tests: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses=0", "--every-loop", "-rpfE", *tests],
        cwd=ROOT,
        env={**os.environ, _HERE: "1", "PYTEST_ADDOPTS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def alive() -> list[Any]:
    """All objects of this process that the collector knows of, garbage aside."""
    assert is_here(), "what other tests have made is not to be searched: mark it `alone`"
    gc.collect()
    return gc.get_objects()
