"""Shared setup of all tests: examples and seed of property tests, and event loops.

Each run tries other examples. It prints its seed, and `--hypothesis-seed` repeats it. An async test
without a backend would never be awaited, and would pass, so it is not collected. Tests that need a
missing server are skipped; with `--require-servers`, as in CI, they fail.
"""

import gc
import inspect
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import alone, compiled, loops, quick, sampling, sweep, watchdog
from tests.redis_server import PROGRAM, RedisServer, redis_program
from tests.scheduling import Shares, import_share, in_order

# Its assertions should be explained like those in tests.
pytest.register_assert_rewrite("tests.node.network")

# Hundreds of processes are started: each would compile its imports again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell makes its background processes ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLES = 25
SOAK_SECONDS = 4.0
CRASH_ROUNDS = 20
CUT_SEEDS = 1
FEDERATIONS = 3
WHOLE_HOURS = 0.25
FREEZE_AFTER = 100
_TESTS_RUN: Final = pytest.StashKey[int]()
SEED: Final = "hypothesis_seed"
# The marks of what `--require-servers` does not let be skipped.
SERVERS: Final = ("redis", "lightbus", "mounts", "browser", "shells", "bare")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", metavar="FILE", help="a wheel that tests of installed copies install too"
    )
    parser.addoption(
        "--fuzz-examples",
        type=int,
        metavar="N",
        help=f"examples for each property test, instead of {EXAMPLES}",
    )
    parser.addoption(
        "--soak-seconds",
        type=float,
        default=SOAK_SECONDS,
        metavar="N",
        help=f"seconds of full load on each backend in tests/soak, instead of {SOAK_SECONDS:g}",
    )
    parser.addoption(
        "--rounds",
        type=int,
        default=CRASH_ROUNDS,
        metavar="N",
        help=f"how often each file of crash tests kills something, and each test of cuts cuts, "
        f"instead of {CRASH_ROUNDS}",
    )
    parser.addoption(
        "--seeds",
        type=int,
        default=CUT_SEEDS,
        metavar="N",
        help=f"how many simulated journals are cut at each record, instead of {CUT_SEEDS}",
    )
    parser.addoption(
        "--federations",
        type=int,
        default=FEDERATIONS,
        metavar="N",
        help="random federations that exchange cards, find paths and are dialled through, instead "
        f"of {FEDERATIONS}; from 100 on all small ones too, and 1000 is what section 19 claims",
    )
    parser.addoption(
        "--hours",
        type=float,
        default=WHOLE_HOURS,
        metavar="N",
        help="simulated hours of a whole federation under faults, in worlds of 20 at most, instead "
        f"of {WHOLE_HOURS:g}; 1000 is what section 19 claims",
    )
    parser.addoption(
        "--every-cut",
        action="store_true",
        help="cut resumed sessions after each of their bytes, and search all states of their model",
    )
    loops.add_options(parser)
    sweep.add_option(parser)
    sampling.add_option(parser)
    parser.addoption(
        "--compiled",
        action="store_true",
        help="the core must be the compiled one; what needs the other is skipped",
    )
    parser.addoption(
        "--require-servers",
        action="store_true",
        help=f"a skipped test that is marked {' or '.join(SERVERS)} has failed, as in CI",
    )


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    # Tests must not use keys and known peers in the home directory of the user.
    home = TemporaryDirectory(prefix="parley-home-")
    config.add_cleanup(home.cleanup)
    os.environ["PARLEY_HOME"] = home.name
    if config.option.hypothesis_seed is None:
        new = int.from_bytes(os.urandom(4))  # noqa: TID251 - the seed of property tests
        config.option.hypothesis_seed = getattr(config, "workerinput", {}).get(SEED, new)
    examples: int | None = config.getoption("--fuzz-examples")
    settings.register_profile(
        "parley",
        max_examples=examples or (quick.EXAMPLES if quick.is_asked_for(config) else EXAMPLES),
        stateful_step_count=100 if examples else 40,
        derandomize=False,  # Hypothesis' own profile for CI sets it
        database=None,  # a failing input becomes an @example
        deadline=None,
        print_blob=True,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    settings.load_profile("parley")
    alone.configure(config)
    quick.watch()
    watchdog.configure(config)
    loops.configure(config)
    sweep.configure(config)
    sampling.configure(config)
    compiled.configure(config)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Give each process the seed of the first one."""
    node.workerinput[SEED] = node.config.option.hypothesis_seed


def repeat(config: pytest.Config) -> str:
    """How to try the same examples again."""
    return f"property tests: --hypothesis-seed={config.option.hypothesis_seed} repeats them"


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [loops.report(config), repeat(config)]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the seed again below failures: a run with `-q` has no header."""
    if any("hypothesis" in report.keywords for report in terminalreporter.getreports("failed")):
        terminalreporter.write_line(repeat(config))


@pytest.fixture(params=[pytest.param("asyncio"), pytest.param("trio")])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """The event loop of a test marked `anyio`; `loops` defines which tests run on which loop."""
    return loops.backend(request.config, str(request.param))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A redis-server for all tests of this process; what uses it is marked `redis`."""
    if redis_program() is None:
        pytest.skip(f"there is no {PROGRAM} on this machine")
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of that server, which runs and is empty."""
    if not redis_server.running:
        redis_server.restart()
    assert redis_server.command("FLUSHALL") == b"+OK"
    return redis_server.url


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return quick.is_left_out(collection_path, config) or None


@pytest.hookimpl(trylast=True)  # after the marks that folders add
def pytest_itemcollected(item: pytest.Item) -> None:
    quick.mark(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield from quick.running(item))
    finally:
        freeze_after_many(item.config)


def freeze_after_many(config: pytest.Config) -> None:
    """After each `FREEZE_AFTER` tests, exempt the existing objects from garbage collection.

    Otherwise the collector visits the objects of all collected tests and imported modules again and
    again, which takes 3 of 10 seconds. Leaks are still found, because a test compares the objects
    after it with those before it, without a freeze in between.
    """
    if alone.is_here():
        return  # these tests search all objects of their process, and frozen ones are not listed
    count = config.stash.get(_TESTS_RUN, 0) + 1
    config.stash[_TESTS_RUN] = count
    if count % FREEZE_AFTER == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    return watchdog.watch(item, settings.timeout)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    watchdog.limit_waits(pyfuncitem)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from quick.working(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("require_servers"):
        marked = [name for name in SERVERS if item.get_closest_marker(name)]
        if marked:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            report.outcome = "failed"
            report.longrepr = f"marked {' and '.join(marked)}, which is required here: {reason}"
    return report


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are cores: half of its time a test waits for others."""
    return (os.cpu_count() or 1) + 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares | None:
    return Shares(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    loops.select(config, items)
    in_order(items)
    compiled.skip_pure(items)
    unawaited = [
        item.nodeid
        for item in items
        if isinstance(item, pytest.Function)
        and inspect.iscoroutinefunction(inspect.unwrap(item.function))
        and "anyio_backend" not in item.fixturenames
    ]
    if unawaited:
        raise pytest.UsageError(
            "async tests without the anyio_backend fixture:\n" + "\n".join(unawaited)
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Disable the garbage collector during collection, and exempt the collected tests from it: this
    saves a quarter of the time, and a third of a second in each `gc.collect()`.
    """
    gc.disable()
    try:
        if not quick.is_asked_for(session.config):
            import_share(session.config)
        return (yield)
    finally:
        if not alone.is_here():
            gc.freeze()
        gc.enable()
