"""Tests of tests/conftest.py: an async test that nobody would await is not collected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def collect(directory: Path, source: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest on one test file beside our conftest.py."""
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    # For what conftest.py imports.
    env = os.environ | {"PYTHONPATH": str(CONFTEST.parent.parent)}
    return subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=50
    )


def test_an_async_test_without_a_backend_fails_the_collection(tmp_path: Path) -> None:
    run = collect(tmp_path, "async def test_nothing():\n    assert False\n")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_nothing" in run.stderr


def test_async_tests_with_a_backend_run_once_on_each(tmp_path: Path) -> None:
    source = (
        "import pytest\n"
        "@pytest.mark.anyio\n"
        "async def test_marked(): pass\n"
        "async def test_named(anyio_backend): pass\n"
        "def test_plain(): pass\n"
    )
    run = collect(tmp_path, source)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert "5 passed" in run.stdout
