"""Coroutines to begin at once, and where they do: for tests of node/transport/eager.py."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from anyio.lowlevel import checkpoint

from parley._node.transport.eager import EagerTasks
from tests.node.network import eventually


class One:
    """What one coroutine runs for."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.runner: Any = None
        self.said: list[object] = []


class Stage:
    """Eager tasks of the running loop."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.eager = EagerTasks(asyncio.get_running_loop(), self.tasks)

    def begin(self, function: Callable[[Any], Coroutine[Any, Any, object]], *ones: One) -> None:
        self.eager.begin([(function, one) for one in ones])

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        await checkpoint()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert not self.tasks
        ready = self.eager.ready
        assert ready is None or ready.task.done()


async def over(one: One) -> None:
    await eventually(lambda: one.runner is None)


async def at_once(one: One) -> None:
    one.said += [one.name, asyncio.current_task() is one.runner]


async def in_two_steps(one: One) -> None:
    task = asyncio.current_task()
    await asyncio.sleep(0)
    one.said += [one.name, asyncio.current_task() is task is one.runner]
