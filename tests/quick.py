"""The quick tests, `pytest -m quick`: tests without other processes, and without sweeps.

A test is quick unless it has a mark in `HEAVY`, and on asyncio only. Some marks follow from a
test's folder or fixtures; the others are in its file. Violations fail: a quick test that starts a
process fails in every run, and one that works for five seconds fails in a quick run.
"""

import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
HEAVY: Final = (
    *("process", "alone", "slow", "spark", "jvm"),
    *("benchmarks", "soak", "redis", "lightbus", "bromine", "mounts", "browser"),
)
# Sweeps, all of them, and what seldom changes.
SLOW_PLACES: Final = (
    *("tests/benchmarks/", "tests/reference/"),
    *("tests/fuzz/", "tests/interop/", "tests/node/apps/simulate/", "tests/pipeline/"),
    *("tests/security/", "tests/soak/", "tests/wycheproof/"),
)
MARKED_BY_PLACE: Final = {"tests/benchmarks/": "benchmarks", "tests/soak/test_soak.py": "soak"}
MARKED_BY_FIXTURE: Final = {
    **dict.fromkeys(("processes", "server", "terminals"), "process"),
    **dict.fromkeys(("redis_server", "redis_url"), "redis"),
    "leaves_nothing": "slow",  # it searches all there is
    "rounds": "slow",
}
# What tests call the event loop, here or in a process that they start.
PARAMETERS: Final = ("anyio_backend", "backend", "loop")
# Random examples for each property test: a bug that needs more is found by the whole suite.
EXAMPLES: Final = 10
# Seconds of this process' own time: twice what the slowest quick test takes on a slow machine.
MOST_WORK = 5.0
_STARTS: Final = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "tests.warm"}
)

_running: pytest.Item | None = None


def is_asked_for(config: pytest.Config) -> bool:
    """Whether this run is the quick loop."""
    return str(config.getoption("markexpr")) == "quick"


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Return whether quick tests don't even need to import this file."""
    return is_asked_for(config) and path in map(ROOT.joinpath, SLOW_PLACES)


def mark(item: pytest.Item) -> None:
    """Add the marks that follow from a test's place and fixtures, and `quick` if it has none."""
    if item.nodeid.startswith(SLOW_PLACES):
        item.add_marker("slow")
    for place, name in MARKED_BY_PLACE.items():
        if item.nodeid.startswith(place):
            item.add_marker(name)
    for fixture in getattr(item, "fixturenames", ()):
        if fixture in MARKED_BY_FIXTURE:
            item.add_marker(MARKED_BY_FIXTURE[fixture])
    marks = {mark.name for mark in item.iter_markers()}
    if marks.isdisjoint(HEAVY) and not is_on_trio(item):
        item.add_marker("quick")


def is_on_trio(item: pytest.Item) -> bool:
    """Whether it is the second run of a test, which the quick loop leaves to the whole suite."""
    case = getattr(item, "callspec", None)
    return case is not None and "trio" in map(case.params.get, PARAMETERS)


def watch() -> None:
    """Fail each quick test that starts a process, from now on; this can't be undone."""
    sys.addaudithook(_noticed)


def _noticed(event: str, _: tuple[Any, ...]) -> None:
    if _running is not None and event in _STARTS:
        pytest.fail(f"it starts a process ({event}): mark it with one of {', '.join(HEAVY)}")


def running(item: pytest.Item) -> Generator[None, object, object]:
    """Run around a test's three phases: events in between belong to this test."""
    global _running  # Audit hooks receive only the event.
    _running = item if item.get_closest_marker("quick") else None
    try:
        return (yield)
    finally:
        _running = None


def working(item: pytest.Item) -> Generator[None, object, object]:
    """Around a test's own phase: in the quick loop, it fails if it works for too long."""
    began = time.process_time()
    result = yield
    took = time.process_time() - began
    if is_asked_for(item.config) and took > MOST_WORK:
        pytest.fail(f"it works for {took:.1f} s, and is quick: mark it `slow`")
    return result
