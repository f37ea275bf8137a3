"""Tests of tests/conftest.py, on small test files in a separate directory.

A start of pytest takes more than a second, so each run has all files.
"""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from zlib import crc32

import pytest

from tests import sampling
from tests.sweep import sweep

CONFTEST = Path(__file__).with_name("conftest.py")

LEAKS = """
import gc
import pytest
from parley._node.remote.stream import Stream
from tests.conftest import FREEZE_AFTER
from tests.node.network import nothing_left
kept = []
before = gc.get_freeze_count()
@pytest.mark.parametrize('number', range(FREEZE_AFTER))
def test_kept(number): kept.append(Stream.__new__(Stream))
def test_frozen():
    assert gc.get_freeze_count() > before
    assert not any(type(one) is Stream for one in gc.get_objects())
def test_leaks():
    with nothing_left():
        kept.append(Stream.__new__(Stream))
def test_leaks_nothing():
    with nothing_left():
        Stream.__new__(Stream)
"""
LOOPS = """
import asyncio
import os
import pytest
from anyio import CancelScope, NoEventLoopError
@pytest.mark.anyio
async def test_marked(): pass
async def test_named(anyio_backend): pass
@pytest.mark.anyio
@pytest.mark.parametrize('number', range(50))
async def test_many(number): pass
def test_plain(): pass
@pytest.mark.anyio
async def test_callback(request):
    chosen = request.config.getoption('loop')
    if chosen is None: return
    loop = asyncio.get_running_loop()
    assert type(loop).__module__.startswith(chosen)
    raised = loop.create_future()
    def called():
        try:
            CancelScope()
        except NoEventLoopError as error:
            raised.set_result(True)
    loop.call_soon(called)
    assert await raised
"""
QUICK = """
import subprocess, sys, time
import pytest
from tests import quick
quick.MOST_WORK = 0.01
def start(): subprocess.run([sys.executable, '-c', ''], check=True)
def test_nothing(): pass
def test_popen(): start()
def test_swallowed():
    try: start()
    except Exception: pass
@pytest.mark.process
def test_process(): start()
def test_work():
    began = time.process_time()
    while time.process_time() < began + 0.3: pass
"""
RANDOM = """
from hypothesis import given, strategies as st
tried = []
@given(st.integers())
def test_number(number):
    tried.append(number)
    assert abs(number) < 500
def test_print():
    print(f'tried {tried[:20]}')
    assert False
"""
SERVERS = """
import pytest
@pytest.fixture
def no_server(): pytest.skip('there is no server')
@pytest.mark.redis
def test_server(no_server): pass
@pytest.mark.lightbus
def test_service(): pytest.skip('there is no service')
def test_other(no_server): pass
"""
SWEEPS = """
import pytest
from tests import sampling
from tests.sweep import sweep
@sweep(('n', 'half'), [(1, 1), pytest.param(2, 1, id='two'), (8, 3), (9, 9)])
def test_table(tmp_path, n, half): assert tmp_path.exists() and n == 2 * half
@pytest.mark.anyio
@sweep('n', range(7), ids=lambda n: f'n{n}', parts=2)
async def test_async(n): assert n != 3
@sweep('a', [1, 2])
@sweep('b', 'xy', ids=['first', 'second'])
def test_two(a, b):
    if a == 2 and b == 'y': pytest.fail('both')
def test_samples():
    print('samples:', sampling.seed, sampling.every_bit)
    assert False
"""
FILES = {
    "test_a_leaks.py": LEAKS,  # The first 100 tests of their process.
    "test_loops.py": LOOPS,
    "test_quick.py": QUICK,
    "test_random.py": RANDOM,
    "test_servers.py": SERVERS,
    "test_sweeps.py": SWEEPS,
}
SEED = re.compile(r"--hypothesis-seed=(\d+) repeats them")


class Run(NamedTuple):
    """A finished run of pytest."""

    code: int
    out: str
    err: str
    # Failed, errors, skipped or passed, by the name of the test.
    outcomes: dict[str, str]

    def passed(self) -> int:
        """Count the tests of LOOPS that passed."""
        names = ("test_marked", "test_named", "test_many[", "test_plain")
        return sum(name.startswith(names) for name in self.outcomes if self.outcomes[name] == "ok")

    def of(self, *names: str) -> list[str]:
        """Return the outcomes of tests."""
        return [self.outcomes[name] for name in names]

    def tried(self) -> list[str]:
        """Return the line with the examples that were tried, and the seed."""
        return re.findall("^tried .*", self.out, re.MULTILINE) + SEED.findall(self.out)[:1]


def run(directory: Path, *options: str, files: dict[str, str] = FILES) -> Run:
    """Run pytest on test files with the project's conftest.py."""
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    for name, source in files.items():
        (directory / name).write_text(source)
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    # For what conftest.py imports.
    env = os.environ | {"PYTHONPATH": str(CONFTEST.parent.parent), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, f"--junitxml={report}", str(directory)],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
    )
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else []  # noqa: S314 - pytest's own
    outcomes = {
        case.attrib["name"]: next((one.tag for one in case if one.tag != "properties"), "ok")
        for case in cases
    }
    return Run(done.returncode, done.stdout, done.stderr, outcomes)


@pytest.mark.process
def test_async_test_without_a_backend_fails_the_collection(tmp_path: Path) -> None:
    source = "async def test_nothing():\n    assert False\n"
    done = run(tmp_path, files={"test_it.py": source})
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_nothing" in done.err


@pytest.mark.process
def test_runs_without_options_and_with_the_same_seed(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.code == pytest.ExitCode.TESTS_FAILED

    # Objects are frozen after 100 tests, and leaks are found nevertheless.
    assert done.of("test_frozen", "test_leaks", "test_leaks_nothing") == ["ok", "failure", "ok"]

    # All async tests run on asyncio, and the first one of a file on trio.
    assert done.passed() == 54
    assert done.outcomes["test_marked[trio]"] == "ok"

    assert done.of("test_nothing", "test_popen", "test_swallowed", "test_process", "test_work") == [
        "ok",
        "failure",
        "failure",
        "ok",
        "ok",
    ]
    assert "it starts a process (subprocess.Popen): mark it" in done.out

    assert done.of("test_server", "test_service", "test_other") == ["skipped"] * 3

    # A sweep names the cases that failed.
    assert "3 of 4 cases failed: 1-1, 8-3, 9-9 (3 sub-exceptions)" in done.out
    assert "8 == (2 * 3)" in done.out
    for failed in ("3 cases failed: n3", "2 cases failed: 2", "2 cases failed: second"):
        assert f"1 of {failed} (1 sub-exception)" in done.out
    assert "case: second" in done.out

    # Processes of a run, and later runs, try the same examples with the same seed.
    assert "@reproduce_failure" in done.out
    assert not list(tmp_path.glob(".hypothesis/examples"))
    tried, seed = done.tried()
    assert f"samples: {seed} False" in done.out
    again = run(tmp_path, "-n1", f"--hypothesis-seed={seed}", "--trio-tenth=20003")
    assert again.tried() == [tried, seed]

    # A number chooses a tenth of the tests for trio, in addition to the first one of the file.
    names = {name.replace("asyncio", "trio") for name in again.outcomes if "many[" in name}
    chosen = {name for name in names if crc32(f"test_loops.py::{name}".encode()) % 10 == 3}
    assert 1 < len(chosen) < 20
    trio = {name for name in again.outcomes if "many[" in name and "trio" in name}
    assert trio == chosen
    assert again.outcomes["test_marked[trio]"] == "ok"


@pytest.mark.process
def test_all_loops_and_required_servers(tmp_path: Path) -> None:
    options = ("--every-loop", "--require-servers", "--hypothesis-seed=15", "--every-bit")
    done = run(tmp_path, *options)
    assert done.passed() == 105
    assert "marked redis, which is required here: Skipped: there is no server" in done.out
    assert "marked lightbus, which is required here: Skipped: there is no" in done.out
    assert done.of("test_server", "test_service", "test_other") == ["error", "failure", "skipped"]
    assert "samples: 15 True" in done.out


@pytest.mark.process
def test_quick_test_does_not_work_for_long(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "quick")
    assert done.outcomes["test_work"] == "failure"
    assert "mark it `slow`" in done.out
    assert "test_process" not in done.outcomes
    assert done.tried()[1] != str(sampling.seed)


def test_sweep_without_cases_is_not_collected() -> None:
    with pytest.raises(ValueError, match="the sweep of c has no cases"):
        sweep("c", [])


def test_samples_follow_from_the_seed_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("ab", "cde", "fghi", "jkl", "mn")
    samples = []
    for seed in (15, 15, 16):
        monkeypatch.setattr(sampling, "seed", seed)
        monkeypatch.setattr(sampling, "every_bit", False)
        chosen = sampling.pairwise(*options)
        for one in range(5):
            for two in range(one):
                found = {(case[one], case[two]) for case in chosen}
                assert found == set(product(options[one], options[two]))
        samples.append([chosen, [list(sampling.bits(place)) for place in range(3)]])
    assert samples[0] == samples[1] != samples[2]
    assert samples[0][1] == [[7], [0], [1]]
    monkeypatch.setattr(sampling, "every_bit", True)
    assert len(sampling.pairwise(*options)) == 2 * 3 * 4 * 3 * 2
    assert list(sampling.bits(1)) == list(range(8))


@pytest.mark.process
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_callbacks_on_a_chosen_loop_know_no_loop(tmp_path: Path, loop: str) -> None:
    """As in programs that use `asyncio.run`. Other tests are left out."""
    done = run(tmp_path, "--loop", loop, "--case=n4", "-rs")
    assert done.code == pytest.ExitCode.OK, done.out
    assert done.outcomes["test_callback[asyncio]"] == "ok"
    assert done.passed() == 52
    assert set(done.outcomes.values()) == {"ok", "skipped"}
    assert "no case has 'n4' in its name" in done.out
    assert "54 passed, 1 skipped" in done.out
