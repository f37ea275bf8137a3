"""Coroutines on asyncio that run at once until they first wait, and get a task only then.

Most handlers wait for nothing, and a task is a good part of what a lone call costs: it runs in the
loop's next turn, and its end is told in the one after that. They see a task all the same: one that
stands ready is lent to a coroutine, is the current task from its first step on, and goes on with it
if it waits. (What Python 3.12 calls an eager task is a new task each time, and 3.11 has none.)
"""

import asyncio
import logging
from asyncio.tasks import _enter_task, _leave_task  # for whoever steps tasks: Extending asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from typing import Any, Final

from node.transport.loop import Begun, Running

logger = logging.getLogger("parley.transport")

# Tasks of one loop that stand ready.
MOST_READY: Final = 64
_NOTHING: Final = object()
_EMPTY: Final = Context()


class EagerTasks:
    """The tasks of one loop that are lent; `tasks` has all that are not done."""

    __slots__ = ("_loop", "_tasks", "ready")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: "set[asyncio.Task[Any]]") -> None:
        self._loop = loop
        self._tasks = tasks
        self.ready: list[LentTask] = []

    def begin(self, begun: Iterable[Begun]) -> None:
        """As `Loop.begin`."""
        loop = self._loop
        sender = asyncio.current_task(loop)
        if sender is not None:
            _leave_task(loop, sender)
        lent = self._next()
        task = lent.task
        _enter_task(loop, task)
        try:
            for function, one in begun:
                context, steps, one.runner = copy_context(), function(one), task
                try:
                    lent.go_on_with(one, steps, context, context.run(steps.send, None))
                except (StopIteration, asyncio.CancelledError):
                    one.runner = None
                except Exception:
                    one.runner = None
                    logger.exception("a task failed")
                if one.runner is None and not task.cancelling():
                    continue
                _leave_task(loop, task)
                lent = self._next()
                task = lent.task
                _enter_task(loop, task)
        finally:
            _leave_task(loop, task)
            self.ready.append(lent)
            if sender is not None:
                _enter_task(loop, sender)

    def _next(self) -> "LentTask":
        """One that stands ready, and is not being cancelled."""
        while self.ready:
            lent = self.ready.pop()
            if not lent.task.cancelling():
                return lent
        lent = LentTask(self._loop, self.ready)
        self._tasks.add(lent.task)
        lent.task.add_done_callback(self._tasks.discard)
        return lent


class LentTask(Coroutine[Any, Any, None]):
    """What such a `task` runs: it rests, in `ready`, until it has `steps` to go on with."""

    __slots__ = ("_context", "_loop", "_one", "_ready", "_rest", "_waits_for", "steps", "task")

    # It has always begun (`inspect.getcoroutinestate`): whoever cancels it lets it clean up.
    cr_running = False
    cr_suspended = True

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: "list[LentTask]") -> None:
        self._loop = loop
        self._ready = ready
        self._rest: asyncio.Future[None] | None = None
        self._one: Running | None = None
        self.steps: Coroutine[Any, Any, object] | None = None
        self._context = _EMPTY
        # What was waited for in the first step, until the task waits for it.
        self._waits_for: Any = _NOTHING
        self.task = loop.create_task(self)

    def go_on_with(
        self, one: Running, steps: Coroutine[Any, Any, object], context: Context, waits_for: Any
    ) -> None:
        """From the task's next turn on, go on with what has begun and waits."""
        self._one, self.steps, self._context, self._waits_for = one, steps, context, waits_for
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    # What the task does.

    def send(self, value: Any) -> Any:
        """Go on; returns what is waited for."""
        if self._waits_for is not _NOTHING:
            waits_for, self._waits_for = self._waits_for, _NOTHING
            return waits_for
        if self.steps is None:
            return self._wait()
        return self._step(self.steps.send, value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Go on with what was raised by what was waited for, or was cancelled."""
        if self.steps is None:
            if self in self._ready:
                self._ready.remove(self)
            raise typ
        waits_for, self._waits_for = self._waits_for, _NOTHING
        if waits_for is not _NOTHING and waits_for is not None and waits_for.cancel(*typ.args):
            return waits_for  # as `Task.cancel` does, had it waited for it already
        return self._step(self.steps.throw, typ)

    def close(self) -> None:
        """The loop is gone."""
        if self.steps is not None:
            self.steps.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("it is for its task")

    # Inside.

    def _step(self, step: Callable[[Any], Any], given: Any) -> Any:
        try:
            return self._context.run(step, given)
        except BaseException as error:
            if self._one is not None:
                self._one.runner = None
            self._one, self.steps, self._context = None, None, _EMPTY
            # Who was cancelled and went on is not lent again.
            over = type(error) is StopIteration and not self.task.cancelling()
            if not over or len(self._ready) >= MOST_READY:
                raise
        self._ready.append(self)
        return self._wait()

    def _wait(self) -> Any:
        self._rest = rest = self._loop.create_future()
        return rest.__await__().send(None)
