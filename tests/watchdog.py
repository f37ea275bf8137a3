"""Time limits of tests.

An async test is cancelled after five sixths of its limit, so that its traceback shows where it
waits. A test that is not done at its limit has its process ended, and its name and all stacks go to
standard error; pytest-xdist reports it as failed and replaces the process. A signal handler can't
do that: uvloop and trio's guest mode catch its exception, or don't run it while idle.
"""

import faulthandler
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

import anyio
import psutil
import pytest
from pytest_timeout import is_debugging  # type: ignore[import-untyped]  # it has no types

CANCELLED_AFTER: Final = 5 / 6
_SECONDS: Final = pytest.StashKey[float]()
# The standard error of the run, which pytest captures during a test.
_STDERR: Final = pytest.StashKey[int]()


def configure(config: pytest.Config) -> None:
    """Keep the standard error, which pytest doesn't capture yet."""
    stderr = config.stash[_STDERR] = os.dup(2)
    config.add_cleanup(lambda: os.close(stderr))


def watch(item: pytest.Item, seconds: float) -> bool:
    """Start a timer that ends the process; `pytest_timeout_cancel_timer` cancels it."""
    item.stash[_SECONDS] = seconds
    timer = threading.Timer(seconds, _end, (item, seconds))
    timer.daemon = True

    def cancel() -> None:
        timer.cancel()
        timer.join()

    vars(item)["cancel_timeout"] = cancel
    timer.start()
    return True


def limit_waits(item: pytest.Function) -> None:
    """Cancel an async test before its process is ended."""
    test: Callable[..., Awaitable[None]] = item.obj
    if not inspect.iscoroutinefunction(test) or _SECONDS not in item.stash or is_debugging():
        return

    @wraps(test)
    async def limited(**arguments: Any) -> None:
        with anyio.fail_after(item.stash[_SECONDS] * CANCELLED_AFTER):
            await test(**arguments)

    item.obj = limited


def _end(item: pytest.Item, seconds: float) -> None:
    if is_debugging():
        return
    stderr = item.config.stash[_STDERR]
    os.write(stderr, f"\n\n{item.nodeid} did not end within {seconds:g} s.\n".encode())
    faulthandler.dump_traceback(stderr)
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)
