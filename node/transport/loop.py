"""What the driver asks of an event loop: to wake, to wait, to call back, to run a task.

What is done for every event costs a microsecond or two here, where anyio's general forms cost three
to thirteen; everything else is anyio's.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Protocol

from parley._node.transport.fair_reads import FairScheduler


class Waiter(Protocol):
    """One wait for one wake-up: `await` it, or `wait`."""

    def __await__(self) -> Generator[Any, None, None]:
        """Until `wake`; a cancellation point."""

    def wake(self) -> None:
        """End the wait; a second time, or before it began, is fine."""

    def wait(self) -> Awaitable[None]:
        """Until `wake`; a cancellation point."""


class Timer(Protocol):
    """A callback that is due at a time."""

    def cancel(self) -> None:
        """Do not call back."""


class Runner(Protocol):
    """A task of its own."""

    def cancel(self) -> object:
        """Cancel it; it goes on until it has cleaned up."""


class Cancellable(Protocol):
    """The request or event that a coroutine handles. `runner` is set to the object that cancels
    it."""

    runner: Any


# A coroutine function, and what it is given.
TaskStart = tuple[Callable[[Any], Coroutine[Any, Any, object]], Cancellable]


class Loop(Protocol):
    """An event loop as the shell uses it for every connection. In its `line` stand those of
    which more came than one turn takes."""

    @property
    def scheduler(self) -> FairScheduler:
        """The scheduler of received bytes for all connections on this loop."""

    def now(self) -> float:
        """Seconds of the loop's clock, which never goes back."""

    def waiter(self) -> Waiter:
        """A new wait."""

    def soon(self, callback: Callable[[], None]) -> object:
        """Call back in the loop's next turn."""

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back at `when` of `now`."""

    def begin(self, begun: Iterable[TaskStart]) -> None:
        """Run coroutine functions in tasks. On asyncio from Python 3.12 on they run immediately
        until they first wait. They must not raise."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Runner:
        """Run a coroutine function in a task; it must not raise."""
