"""`--loop asyncio` and `--loop uvloop`: run tests as in a program that uses `asyncio.run`.

`anyio.run` and anyio's pytest plugin set a context variable that names the event loop, and
callbacks of the loop inherit it. In programs that use `asyncio.run` or `uvloop.run` it is not set,
so that anyio doesn't find the event loop outside of tasks. With the option it is not set in tests
either, and only tests on asyncio run. Exceptions in callbacks fail the test, as always with anyio's
plugin.
"""

from typing import Final

import anyio.pytest_plugin
import pytest

from tests.quick import is_on_trio

LOOPS: Final[dict[str, object]] = {
    "asyncio": "asyncio",
    "uvloop": ("asyncio", {"use_uvloop": True}),
}


def add_option(parser: pytest.Parser) -> None:
    """Add `--loop`."""
    parser.addoption(
        "--loop",
        choices=tuple(LOOPS),
        help="run async tests on this event loop only, as under `asyncio.run` or `uvloop.run`",
    )


def configure(config: pytest.Config) -> None:
    """With `--loop`, stop anyio's plugin from naming the event loop; this can't be undone."""
    if config.getoption("loop") is not None:
        vars(anyio.pytest_plugin)["set_current_async_library"] = lambda name: None


def backend(config: pytest.Config, name: str) -> object:
    """Return the value of `anyio_backend` for a test's backend `name`."""
    return LOOPS[config.getoption("loop") or name] if name == "asyncio" else name


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--loop`, deselect the tests that don't run on it: the others need no second run."""
    if config.getoption("loop") is None:
        return
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        asynchronous = "anyio_backend" in getattr(item, "fixturenames", ())
        (chosen if asynchronous and not is_on_trio(item) else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)
