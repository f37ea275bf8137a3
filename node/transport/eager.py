"""Coroutines on asyncio that run at once until they first wait, and get a task only then.

Most handlers wait for nothing, and a task is a good part of what a lone call costs: it runs in the
loop's next turn, and its end is told in the one after that. They see a task all the same: one that
stands ready is lent to a coroutine, is the current task from its first step on, and goes on with it
if it waits: from then on it is that coroutine's alone, and ends with it, since whoever has it may
cancel it later. For the same reason one that somebody keeps is not lent again. (What Python 3.12
calls an eager task is a new one each time; 3.11 has none.)
"""

import asyncio
import logging
from asyncio.tasks import _enter_task, _leave_task  # for whoever steps tasks: Extending asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from sys import getrefcount, version_info
from typing import Any, Final

from parley._node.transport.loop import Begun, Running

logger = logging.getLogger("parley.transport")

_NOTHING: Final = object()
_EMPTY: Final = Context()
# A task that takes its cancellation back before it waits is not cancelled then.
_UNCANCELS: Final = version_info >= (3, 13)


class EagerTasks:
    """Lends tasks of one loop; `tasks` has all that are not done. One stands `ready`."""

    __slots__ = ("_loop", "_tasks", "ready")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: "set[asyncio.Task[Any]]") -> None:
        self._loop = loop
        self._tasks = tasks
        self.ready: LentTask | None = None

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
                holders = getrefcount(task)
                context, steps, one.runner = copy_context(), function(one), task
                try:
                    lent.go_on_with(one, steps, context, context.run(steps.send, None))
                except (StopIteration, asyncio.CancelledError):
                    one.runner = None
                except (KeyboardInterrupt, SystemExit) as error:
                    one.runner = None
                    loop.call_soon(_raise, error)  # what called us may keep it to itself
                except BaseException:  # those after it begin all the same
                    one.runner = None
                    logger.exception("a task failed", extra={"event": "task.bug"})
                if one.runner is None and lent.is_free and getrefcount(task) == holders:
                    continue
                if one.runner is None:
                    lent.end()
                _leave_task(loop, task)
                lent = self._next()
                task = lent.task
                _enter_task(loop, task)
        finally:
            _leave_task(loop, task)
            if self.ready is None:
                self.ready = lent
            else:  # a first step had others begin
                lent.end()
            if sender is not None:
                _enter_task(loop, sender)

    def _next(self) -> "LentTask":
        """One that stands ready, and is not being cancelled."""
        lent, self.ready = self.ready, None
        if lent is not None and lent.is_free:
            return lent
        lent = LentTask(self._loop)
        self._tasks.add(lent.task)
        lent.task.add_done_callback(self._tasks.discard)
        return lent


class LentTask(Coroutine[Any, Any, None]):
    """What such a `task` runs: it rests until it has `steps` to go on with, and ends with them."""

    __slots__ = ("_context", "_loop", "_one", "_over", "_rest", "_waits_for", "steps", "task")

    # It has always begun (`inspect.getcoroutinestate`): whoever cancels it lets it clean up.
    cr_running = False
    cr_suspended = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rest: asyncio.Future[None] | None = None
        self._one: Running | None = None
        self._over = False
        self.steps: Coroutine[Any, Any, object] | None = None
        self._context = _EMPTY
        # What was waited for in the first step, until the task waits for it.
        self._waits_for: Any = _NOTHING
        self.task = loop.create_task(self)

    @property
    def is_free(self) -> bool:
        """Whether nobody has cancelled its task, nor did and took that back."""
        task, rest = self.task, self._rest
        cancelled = getattr(task, "_must_cancel", False) if rest is None else rest.done()
        return not cancelled and not task.cancelling()

    def go_on_with(
        self, one: Running, steps: Coroutine[Any, Any, object], context: Context, waits_for: Any
    ) -> None:
        """From the task's next turn on, go on with what has begun and waits."""
        self._one, self.steps, self._context, self._waits_for = one, steps, context, waits_for
        _say_awaited(waits_for, False)  # not yet: until then others may begin to wait for it
        self._wake()

    def end(self) -> None:
        """It is lent no more, and its task is over with that one's next turn."""
        self._over = True
        self._wake()

    # What the task does.

    def send(self, value: Any) -> Any:
        """Go on; returns what is waited for."""
        if self._waits_for is not _NOTHING:
            waits_for, self._waits_for = self._waits_for, _NOTHING
            _say_awaited(waits_for, True)
            return waits_for
        if self._over:
            raise StopIteration
        if self.steps is None:
            self._rest = rest = self._loop.create_future()
            return rest.__await__().send(None)
        return self._step(self.steps.send, value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Go on with what was raised by what was waited for, or was cancelled."""
        if self.steps is None:
            raise typ
        waits_for, self._waits_for = self._waits_for, _NOTHING
        taken_back = _UNCANCELS and waits_for is not _NOTHING and not self.task.cancelling()
        if taken_back or (asyncio.isfuture(waits_for) and waits_for.cancel(*typ.args)):
            _say_awaited(waits_for, True)
            return waits_for  # as `Task.cancel` does, had it waited for it already
        return self._step(self.steps.throw, typ)

    def close(self) -> None:
        """The loop is gone."""
        if self.steps is not None:
            self.steps.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError(f"{type(self).__name__} cannot be awaited: only its task runs it")

    @property
    def cr_await(self) -> object:
        """The coroutine that it runs: it shows what the task waits for."""
        return self.steps

    # Inside.

    def _wake(self) -> None:
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def _step(self, step: Callable[[Any], Any], given: Any) -> Any:
        try:
            return self._context.run(step, given)
        except BaseException:
            if self._one is not None:
                self._one.runner = None
            self._one, self.steps, self._context = None, None, _EMPTY
            raise


def _raise(error: BaseException) -> None:
    raise error


def _say_awaited(future: Any, awaited: bool) -> None:
    """What `await` says to a task of a future: that it was awaited. One says so at a time."""
    if asyncio.isfuture(future):
        future._asyncio_future_blocking = awaited
