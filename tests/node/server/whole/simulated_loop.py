"""An asyncio event loop in which an hour passes immediately.

When all tasks wait, its time jumps to the next timer, so that the deadlines of nodes, tests and
`anyio` share one clock. With random numbers from a seed and a single thread, each run is the same.
"""

import asyncio
import importlib
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random  # noqa: TID251 - keys of nodes that exist only in this process
from typing import Any

import anyio
import pytest

from parley._crypto import randomness
from parley._node.transport.loop import Timer
from tests.node.server.whole.ordered_set import ordered_sets

# Seconds: after a thousand hours, a double cannot distinguish less.
RESOLUTION = 1e-6


class _Selector(selectors.SelectSelector):
    """A selector that advances the time in place of waiting."""

    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout != 0:
            assert timeout is not None, "all wait, and nobody for time: it would never end"
            self.jump(timeout)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0."""

    def __init__(self) -> None:
        self._seconds = 0.0
        selector = _Selector()
        selector.jump = self._jump
        super().__init__(selector)
        self._clock_resolution = RESOLUTION

    def time(self) -> float:
        return self._seconds

    def _jump(self, seconds: float) -> None:
        self._seconds += max(seconds, RESOLUTION)


class LoopClock:
    """The time of the running loop, for `Node(clock=)`; a node's default clock is the machine's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(when, callback)


def simulate(main: Callable[[], Awaitable[Any]], seed: int) -> Any:
    """Run `main` in such a loop; the nodes' random numbers come from the seed."""
    for lazy in ("parley._node.transport.asyncio_backend", "anyio._backends._asyncio"):
        importlib.import_module(lazy)
    with _drawn_from(seed), ordered_sets():
        options = {"loop_factory": SimulatedLoop}
        return anyio.run(main, backend="asyncio", backend_options=options)


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_urandom", Random(seed).randbytes)
        yield
