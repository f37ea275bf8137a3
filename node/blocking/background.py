"""`LoopThread`: runs an event loop, with a node in it, in a background thread.

Other threads wait for results from the loop. If a waiting thread is interrupted, its operation in
the loop is cancelled. Closing stops the thread; it happens at program exit at the latest.
"""

import atexit
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from threading import get_ident
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from parley._node.errors import ParleyError

T = TypeVar("T")

# Seconds per wait for a lock. An interrupt that arrives just before a wait is handled when it ends;
# on Windows, all interrupts are.
LONGEST_WAIT: Final = 0.5


class LoopThread:
    """Runs asynchronous code in a background thread.

    Enters each of the context managers `lives` in a task; `close` exits them in reverse order.
    Raises the errors of entering them.

    The loop is always asyncio's, even in trio programs, because a trio loop does not allow other
    threads to wait for another of its loops.
    """

    def __init__(self, *lives: AbstractAsyncContextManager[Any]) -> None:
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal("asyncio"))
            for life in lives:
                stack.enter_context(self._portal.wrap_async_context_manager(life))
            self._thread = self._portal.call(get_ident)
            self._stack = stack.pop_all()
        self._process = os.getpid()
        self.is_closed = False
        # The thread doesn't keep the program running, and would otherwise be killed at exit.
        atexit.register(self.close)

    def run(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run an async function in the loop and return its result. An interrupt (Ctrl-C) cancels
        it.

        Raises:
            ParleyError: the thread is closed, or the caller is the loop's own thread or a forked
                process. Errors of the function are raised unchanged.
        """
        if os.getpid() != self._process:
            raise ParleyError(
                f"cannot use this node in process {os.getpid()}: it runs in process "
                f"{self._process}, which this one was forked from; open a node after the fork"
            )
        scopes: list[anyio.CancelScope] = []

        async def run_cancellable() -> T:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                return await function(*arguments)
            # The waiting thread was interrupted and never receives this error.
            raise ParleyError(f"{getattr(function, '__qualname__', function)} was interrupted")

        def cancel() -> None:
            for scope in scopes:
                scope.cancel()

        try:
            future = self._portal.start_task_soon(run_cancellable)
        except RuntimeError as error:
            if self.is_closed:
                raise ParleyError("cannot use this node: it is closed; open a new one") from error
            raise ParleyError(
                f"cannot wait in the node's own thread {self._thread}: it would wait for itself; "
                "use the asynchronous methods there"
            ) from error
        except (
            BaseException
        ):  # interrupted here: the task may have started, but there is no future to cancel
            self._portal.start_task_soon(cancel)
            raise
        try:
            while True:
                try:
                    return future.result(LONGEST_WAIT)
                except TimeoutError:
                    if (
                        future.done()
                    ):  # the function's own TimeoutError, or it finished as the wait ended
                        return future.result()
        finally:
            future.cancel()  # has no effect if the task has finished

    def close(self) -> None:
        """Exit the context managers and stop the thread; further calls do nothing.

        Raises:
            ParleyError: the caller is the loop's own thread.
        """
        self.leave(None, None, None)

    def leave(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close with the arguments of `__exit__`; after an exception, don't wait for running
        handlers.
        """
        if self.is_closed:
            return
        if get_ident() == self._thread and os.getpid() == self._process:
            raise ParleyError(
                f"cannot close this node in its own thread {self._thread}: it would wait for "
                "itself; close it in the thread that opened it"
            )
        self.is_closed = True
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            # A forked process has no such thread and would wait for it forever, even when its
            # portal is garbage-collected. So the portal must be marked as stopped.
            with suppress(StopIteration):
                self._portal.stop().send(None)
            return
        self._stack.__exit__(exc_type, exc_val, exc_tb)
