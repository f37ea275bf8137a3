"""`LoopThread`: an event loop in a thread of its own, and a node in it.

Whoever waits for it is in another thread, and may be interrupted there: what it waited for is
cancelled. Nothing is left once it is closed, which the end of the program does at the latest.
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

# Seconds of one wait for a lock: an interrupt that comes just as it begins is seen at its end, and
# on Windows no other is seen at all.
LONGEST_WAIT: Final = 0.5


class LoopThread:
    """Runs what is asynchronous in a thread of its own. `lives` are entered at once, in one task
    each, and left in reverse when it is closed; raises what entering raises.

    The loop is asyncio's, also in a program of trio: trio lets nobody wait for one of its loops in
    a thread that runs another.
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
        # The thread does not keep the program alive, and would end with it in the middle.
        atexit.register(self.close)

    def run(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Await what a function returns there, and return its result. Interrupted (Ctrl-C), it is
        cancelled there.

        Raises:
            ParleyError: it is closed, this is its own thread, or a process that was forked from
                its own. And what is raised there.
        """
        if os.getpid() != self._process:
            raise ParleyError(
                f"cannot use this node in process {os.getpid()}: it runs in process "
                f"{self._process}, which this one was forked from; open a node after the fork"
            )
        scopes: list[anyio.CancelScope] = []

        async def waited_for() -> T:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                return await function(*arguments)
            # Nobody receives this error.
            raise ParleyError(f"{getattr(function, '__qualname__', function)} was interrupted")

        def give_up() -> None:
            for scope in scopes:
                scope.cancel()

        try:
            future = self._portal.start_task_soon(waited_for)
        except RuntimeError as error:
            where = "it is closed" if self.is_closed else "its own thread cannot wait for it"
            raise ParleyError(where) from error
        except BaseException:  # interrupted here: it may have begun, and there is no future of it
            self._portal.start_task_soon(give_up)
            raise
        try:
            while True:
                try:
                    return future.result(LONGEST_WAIT)
                except TimeoutError:
                    if future.done():  # it was its own, or came as the wait ended
                        return future.result()
        finally:
            future.cancel()  # nothing, if it has ended

    def close(self) -> None:
        """Leave what was entered, and end the thread; again, it does nothing. ParleyError: this is
        that thread."""
        self.leave(None, None, None)

    def leave(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close; by an exception in haste, as the end of an `async with` would."""
        if self.is_closed:
            return
        if get_ident() == self._thread and os.getpid() == self._process:
            raise ParleyError(
                f"cannot close this node in its own thread {self._thread}, which would wait for "
                "itself; close it in the thread that opened it"
            )
        self.is_closed = True
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            # A fork has no such thread, and would wait for it for ever, also as its portal is
            # collected: that has to know of its end.
            with suppress(StopIteration):
                self._portal.stop().send(None)
            return
        self._stack.__exit__(exc_type, exc_val, exc_tb)
