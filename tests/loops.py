"""Which event loops run which tests.

Every async test, and every test of a command with a choice of loops, runs on asyncio. Trio runs
the tests of the places where loops differ (`ON_BOTH`) and the first one of every other file;
`--every-loop` runs all of them on trio too, and `--trio-tenth N` a tenth of the rest. Ten
consecutive numbers cover all tests.

`--loop asyncio` and `--loop uvloop` run tests as in a program that uses `asyncio.run`.
`anyio.run` and anyio's pytest plugin set a context variable that names the event loop, and
callbacks of the loop inherit it. In programs that use `asyncio.run` or `uvloop.run` it is not set,
so that anyio doesn't find the event loop outside of tasks. With the option it is not set in tests
either, and only tests on asyncio run. Exceptions in callbacks fail the test, as always with anyio's
plugin.
"""

from typing import Final
from zlib import crc32

import anyio.pytest_plugin
import pytest

from tests.quick import is_on_trio

LOOPS: Final[dict[str, object]] = {
    "asyncio": "asyncio",
    "uvloop": ("asyncio", {"use_uvloop": True}),
}
# What depends on the event loop: transports, the life cycle of a node and cancellation.
ON_BOTH: Final = (
    *("tests/node/transport/", "tests/node/testing/", "tests/node/peer/", "tests/node/resume/"),
    *(
        "tests/node/test_node.py",
        "tests/node/test_local.py",
        "tests/node/server/test_federation_lifecycle.py",
    ),
    *("tests/node/test_cancellation.py", "tests/node/bus/test_cancelled.py"),
)
TENTHS: Final = 10


def add_options(parser: pytest.Parser) -> None:
    """Add `--loop`, `--every-loop` and `--trio-tenth`."""
    parser.addoption(
        "--loop",
        choices=tuple(LOOPS),
        help="run async tests on this event loop only, as under `asyncio.run` or `uvloop.run`",
    )
    parser.addoption("--every-loop", action="store_true", help="run all async tests on trio too")
    parser.addoption(
        "--trio-tenth",
        type=int,
        metavar="N",
        help=f"also run a {TENTHS}th of the async tests on trio, chosen by N modulo {TENTHS}",
    )


def configure(config: pytest.Config) -> None:
    """With `--loop`, stop anyio's plugin from naming the event loop; this can't be undone."""
    if config.getoption("loop") is not None:
        vars(anyio.pytest_plugin)["set_current_async_library"] = lambda name: None


def backend(config: pytest.Config, name: str) -> object:
    """Return the value of `anyio_backend` for a test's backend `name`."""
    return LOOPS[config.getoption("loop") or name] if name == "asyncio" else name


def report(config: pytest.Config) -> str:
    """Return the line of pytest's header about tests on trio."""
    tenth: int | None = config.getoption("trio_tenth")
    if config.getoption("every_loop"):
        return "trio: all async tests"
    more = "" if tenth is None else f", and a {TENTHS}th of the others: --trio-tenth={tenth}"
    return f"trio: async tests where event loops differ{more}"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need no run on another event loop."""
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    seen: set[str] = set()
    for item in items:
        if config.getoption("loop") is not None:
            asynchronous = "anyio_backend" in getattr(item, "fixturenames", ())
            runs = asynchronous and not is_on_trio(item)
        else:
            runs = not is_on_trio(item) or _runs_on_trio(config, item.nodeid, seen)
        (chosen if runs else others).append(item)
    if others:
        items[:] = chosen
        config.hook.pytest_deselected(items=others)


def _runs_on_trio(config: pytest.Config, test: str, seen: set[str]) -> bool:
    """Whether trio runs the test. `seen` has the files of which it runs the first one."""
    file = test.partition("::")[0]
    first = file not in seen
    seen.add(file)
    tenth: int | None = config.getoption("trio_tenth")
    return (
        config.getoption("every_loop")
        or first
        or test.startswith(ON_BOTH)
        or (tenth is not None and crc32(test.encode()) % TENTHS == tenth % TENTHS)
    )
