"""Tests of tests/watchdog.py: a test that does not end is named, and all others run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

CONFTEST = Path(__file__).with_name("conftest.py")
LOOPS = ("asyncio", "anyio_backend1", "trio")
SOURCE = """
import threading
import anyio
import pytest
from tests import watchdog

watchdog.CANCELLED_AFTER = 0.01
UVLOOP = ("asyncio", {"use_uvloop": True})
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio", UVLOOP, "trio"])

@BACKENDS
@pytest.mark.timeout(50)
async def test_waits(anyio_backend):
    await anyio.Event().wait()  # this line is shown

@BACKENDS
@pytest.mark.timeout(1)
async def test_is_shielded(anyio_backend):
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()

@pytest.mark.timeout(1)
def test_blocks():
    threading.Event().wait()

def test_passes():
    pass
"""


def run(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_it.py").write_text(SOURCE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--every-loop", *options]
    env = os.environ | {"PYTHONPATH": str(CONFTEST.parent.parent), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)


def test_a_test_that_waits_is_cancelled_and_shows_where(tmp_path: Path) -> None:
    done = run(tmp_path, "-n0", "-k", "waits")
    for backend in LOOPS:
        assert f"FAILED test_it.py::test_waits[{backend}] - TimeoutError" in done.stdout
    assert done.stdout.count(">       await anyio.Event().wait()  # this line is shown") == 3


def test_a_test_that_cannot_be_cancelled_is_named_and_the_others_run(tmp_path: Path) -> None:
    done = run(tmp_path, "-n2", "--dist=loadgroup", "-k", "shielded or passes")
    assert "3 failed, 1 passed" in done.stdout
    for backend in LOOPS:
        name = f"test_it.py::test_is_shielded[{backend}]"
        assert f"crashed while running '{name}'" in done.stdout
        assert f"{name} did not end within 1 s." in done.stderr


def test_a_blocked_thread_is_shown(tmp_path: Path) -> None:
    done = run(tmp_path, "-n0", "-k", "blocks")
    assert done.returncode == 1
    assert "test_it.py::test_blocks did not end within 1 s." in done.stderr
    assert "in test_blocks\n" in done.stderr
