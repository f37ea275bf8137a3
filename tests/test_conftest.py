"""Tests of tests/conftest.py: an async test that nobody would await is not collected, and no
test of a server is skipped where servers are required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def collect(directory: Path, source: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest on one test file beside our conftest.py."""
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    command.append(str(directory))
    # For what conftest.py imports.
    env = os.environ | {"PYTHONPATH": str(CONFTEST.parent.parent), "PYTEST_ADDOPTS": ""}
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


@pytest.mark.parametrize("required", [False, True])
def test_a_test_of_a_server_may_be_skipped_only_where_none_is_required(
    tmp_path: Path, required: bool
) -> None:
    source = (
        "import pytest\n"
        "@pytest.fixture\n"
        "def server(): pytest.skip('there is no server')\n"
        "@pytest.mark.redis\n"
        "def test_server(server): pass\n"
        "@pytest.mark.lightbus\n"
        "def test_service(): pytest.skip('there is no service')\n"
        "def test_other(server): pass\n"
    )
    run = collect(tmp_path, source, *(["--require-servers"] if required else []))
    if required:
        assert run.returncode == pytest.ExitCode.TESTS_FAILED
        assert "marked redis, which is required here: Skipped: there is no server" in run.stdout
        assert "marked lightbus, which is required here: Skipped: there is no" in run.stdout
        assert "1 failed, 1 skipped, " in run.stdout
        assert ", 1 error in " in run.stdout
    else:
        assert run.returncode == pytest.ExitCode.OK
        assert "3 skipped" in run.stdout
