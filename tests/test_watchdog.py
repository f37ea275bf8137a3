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


def test_tests_that_do_not_end_are_named_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(SOURCE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["--every-loop", "-n2", "--dist=loadgroup"]
    env = os.environ | {"PYTHONPATH": str(CONFTEST.parent.parent), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "7 failed, 1 passed" in done.stdout
    # One that waits is cancelled, and its traceback shows where it waited.
    assert done.stdout.count(">       await anyio.Event().wait()  # this line is shown") == 3
    ended = ["test_blocks"]
    for backend in LOOPS:
        assert f"FAILED test_it.py::test_waits[{backend}] - TimeoutError" in done.stdout
        ended.append(f"test_is_shielded[{backend}]")
    # The process of one that can't be cancelled is ended and replaced.
    for name in ended:
        assert f"crashed while running 'test_it.py::{name}'" in done.stdout
        assert f"test_it.py::{name} did not end within 1 s." in done.stderr
    assert "in test_blocks\n" in done.stderr
