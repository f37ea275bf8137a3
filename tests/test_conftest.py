"""Tests of tests/conftest.py: an async test that nobody would await is not collected, no test
of a server is skipped where servers are required, and what is quick is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

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


ASYNC = (
    "import pytest\n"
    "@pytest.mark.anyio\n"
    "async def test_marked(): pass\n"
    "async def test_named(anyio_backend): pass\n"
    "@pytest.mark.anyio\n"
    "@pytest.mark.parametrize('number', range(50))\n"
    "async def test_many(number): pass\n"
    "def test_plain(): pass\n"
)


def test_all_async_tests_run_on_asyncio_and_the_first_of_a_file_on_trio(tmp_path: Path) -> None:
    run = collect(tmp_path, ASYNC)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert "54 passed, 51 deselected" in run.stdout
    run = collect(tmp_path, ASYNC, "--every-loop")
    assert "105 passed" in run.stdout


def test_a_number_chooses_a_tenth_for_trio(tmp_path: Path) -> None:
    tenths = []
    for number in (20_003, 20_013, 20_014):
        run = collect(tmp_path, ASYNC, "--collect-only", f"--trio-tenth={number}")
        tenths.append(set(re.findall("::(.*trio.*)", run.stdout)))
    one, same, other = tenths
    assert one == same
    assert 1 < len(one) < 20
    assert one & other == {"test_marked[trio]"}


SWEEPS = (
    "import pytest\n"
    "from tests.sweep import sweep\n"
    "@sweep(('n', 'half'), [(1, 1), pytest.param(2, 1, id='two'), (8, 3), (9, 9)])\n"
    "def test_plain(tmp_path, n, half): assert tmp_path.exists() and n == 2 * half\n"
    "@pytest.mark.anyio\n"
    "@sweep('n', range(7), ids=lambda n: f'n{n}', parts=2)\n"
    "async def test_async(n): assert n != 3\n"
    "@sweep('a', [1, 2])\n"
    "@sweep('b', 'xy', ids=['first', 'second'])\n"
    "def test_two(a, b):\n"
    "    if a == 2 and b == 'y': pytest.fail('both')\n"
)


def test_a_sweep_names_all_cases_that_failed(tmp_path: Path) -> None:
    run = collect(tmp_path, SWEEPS, "--every-loop")
    assert "4 failed, 2 passed" in run.stdout
    assert "3 of 4 cases failed: 1-1, 8-3, 9-9 (3 sub-exceptions)" in run.stdout
    assert "8 == (2 * 3)" in run.stdout
    for failed in ("3 cases failed: n3", "2 cases failed: 2", "2 cases failed: second"):
        assert f"1 of {failed} (1 sub-exception)" in run.stdout
    assert "case: second" in run.stdout


def test_one_case_of_a_sweep_runs_by_its_name(tmp_path: Path) -> None:
    run = collect(tmp_path, SWEEPS, "-rs", "--case=n4")
    assert "2 passed, 3 skipped" in run.stdout
    assert "no case has 'n4' in its name" in run.stdout


def test_a_sweep_without_cases_is_not_collected(tmp_path: Path) -> None:
    source = SWEEPS + "@sweep('c', [])\ndef test_none(c): pass\n"
    assert "the sweep of c has no cases" in collect(tmp_path, source).stdout


def test_samples_follow_from_the_seed_of_the_run(tmp_path: Path) -> None:
    source = (
        "from itertools import product\n"
        "from tests.sampling import bits, pairwise\n"
        "OPTIONS = ('ab', 'cde', 'fghi', 'jkl', 'mn')\n"
        "chosen = pairwise(*OPTIONS)\n"
        "def test_all_pairs_are_there():\n"
        "    for one in range(5):\n"
        "        for two in range(one):\n"
        "            found = {(case[one], case[two]) for case in chosen}\n"
        "            assert found == set(product(OPTIONS[one], OPTIONS[two]))\n"
        "def test_print():\n"
        "    print('chosen:', [list(bits(place)) for place in range(3)], len(chosen), chosen[0])\n"
        "    assert False\n"
    )

    def chosen(*options: str) -> list[str]:
        run = collect(tmp_path, source, *options)
        assert "1 failed, 1 passed" in run.stdout
        return re.findall("^chosen: .*", run.stdout, re.MULTILINE)

    (first,) = chosen("--hypothesis-seed=15")
    assert "[[7], [0], [1]] 1" in first
    assert [first] == chosen("--hypothesis-seed=15") != chosen("--hypothesis-seed=16")
    assert f"{[list(range(8))] * 3} 144 " in chosen("--every-bit")[0]


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


RANDOM = (
    "from hypothesis import given, strategies as st\n"
    "tried = []\n"
    "@given(st.integers())\n"
    "def test_number(number):\n"
    "    tried.append(number)\n"
    "    assert abs(number) < 500\n"
    "def test_print():\n"
    "    print(f'tried {tried[:20]}')\n"
    "    assert False\n"
)
SEED = re.compile(r"--hypothesis-seed=(\d+) repeats them")


def test_each_run_of_property_tests_has_a_seed_that_repeats_it(tmp_path: Path) -> None:
    tried: list[str] = []
    seeds: list[str] = []
    for processes in ("-n0", "-n0", "-n1"):
        seed = [] if processes == "-n0" else [f"--hypothesis-seed={seeds[-1]}"]
        run = collect(tmp_path, RANDOM, processes, "-p", "xdist", *seed)
        tried += re.findall(r"^tried .*", run.stdout, re.MULTILINE)
        assert "2 failed" in run.stdout
        assert "@reproduce_failure" in run.stdout
        seeds += SEED.findall(run.stdout)
    assert len(tried) == len(seeds) == 3
    assert tried[0] != tried[1] == tried[2]
    assert seeds[0] != seeds[1] == seeds[2]
    assert not list(tmp_path.glob(".hypothesis/examples"))


def test_a_quick_test_starts_no_process(tmp_path: Path) -> None:
    source = (
        "import os, subprocess, sys\n"
        "import pytest\n"
        "def start(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
        "def test_plain(): pass\n"
        "def test_popen(): start()\n"
        "def test_swallowed():\n"
        "    try: start()\n"
        "    except Exception: pass\n"
        "@pytest.mark.process\n"
        "def test_marked(): start()\n"
    )
    run = collect(tmp_path, source)
    assert "it starts a process (subprocess.Popen): mark it" in run.stdout
    assert "2 failed, 2 passed" in run.stdout
    assert "1 passed, 3 deselected" in collect(tmp_path, source, "-m", "process").stdout


def test_a_quick_test_does_not_work_for_long(tmp_path: Path) -> None:
    source = (
        "import time\n"
        "from tests import quick\n"
        "quick.MOST_WORK = 0.01\n"
        "def test_it():\n"
        "    began = time.process_time()\n"
        "    while time.process_time() < began + 0.3: pass\n"
    )
    run = collect(tmp_path, source, "-m", "quick")
    assert "1 failed" in run.stdout
    assert "mark it `slow`" in run.stdout


@pytest.mark.parametrize(("loop", "module"), [("asyncio", "asyncio"), ("uvloop", "uvloop")])
def test_callbacks_on_a_chosen_loop_know_no_loop(tmp_path: Path, loop: str, module: str) -> None:
    """As in programs that use `asyncio.run`. What does not run on the loop is left out."""
    source = (
        "import asyncio\n"
        "import pytest\n"
        "from anyio import CancelScope, NoEventLoopError\n"
        "@pytest.mark.anyio\n"
        "async def test_marked(anyio_backend):\n"
        "    loop = asyncio.get_running_loop()\n"
        f"    assert type(loop).__module__.startswith({module!r})\n"
        "    raised = loop.create_future()\n"
        "    def called():\n"
        "        try:\n"
        "            CancelScope()\n"
        "        except NoEventLoopError as error:\n"
        "            raised.set_result(True)\n"
        "    loop.call_soon(called)\n"
        "    assert await raised\n"
        "def test_plain(): pass\n"
    )
    run = collect(tmp_path, source, "--loop", loop)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert "1 passed, 2 deselected" in run.stdout


def test_leaks_are_found_although_objects_are_frozen(tmp_path: Path) -> None:
    """Each 100 tests all objects are exempted from garbage collection."""
    source = (
        "import gc\n"
        "import pytest\n"
        "from parley._node.remote.stream import Stream\n"
        "from tests.conftest import FREEZE_AFTER\n"
        "from tests.node.network import nothing_left\n"
        "kept = []\n"
        "before = gc.get_freeze_count()\n"
        "@pytest.mark.parametrize('number', range(FREEZE_AFTER))\n"
        "def test_many(number): kept.append(Stream.__new__(Stream))\n"
        "def test_frozen():\n"
        "    assert gc.get_freeze_count() > before\n"
        "    assert not any(type(one) is Stream for one in gc.get_objects())\n"
        "def test_leaks():\n"
        "    with nothing_left():\n"
        "        kept.append(Stream.__new__(Stream))\n"
        "def test_leaks_nothing():\n"
        "    with nothing_left():\n"
        "        Stream.__new__(Stream)\n"
    )
    run = collect(tmp_path, source)
    assert "1 failed, 102 passed" in run.stdout
    assert "FAILED test_it.py::test_leaks - " in run.stdout
