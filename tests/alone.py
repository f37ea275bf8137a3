"""Tests that are marked `alone`: each runs in a process of its own.

They search all objects of their process, and where 24,000 tests have been collected that takes ten
times as long as where one has.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
_HERE: Final = "PARLEY_TEST_ALONE"  # set where such a test runs


def run_alone(item: pytest.Function) -> bool | None:
    """Run a test that is marked `alone`, if this is not its own process yet: else None."""
    if item.get_closest_marker("alone") is None or _HERE in os.environ:
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses=0", item.nodeid],
        cwd=ROOT,
        env={**os.environ, _HERE: "1", "PYTEST_ADDOPTS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    return True
