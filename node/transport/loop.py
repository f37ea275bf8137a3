"""The interface of the event loop that connections use.

Its operations take 1 to 2 us per event, compared with 3 to 13 us of anyio's general functions. Code
off the hot path uses anyio.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Protocol

from parley._node.transport.fair_reads import FairScheduler


class Waiter(Protocol):
    """One wait for one wake-up."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for `wake`; a cancellation point."""

    def wake(self) -> None:
        """End the wait; may be called repeatedly, and before the wait."""


class Timer(Protocol):
    """A callback that is due at a time."""

    def cancel(self) -> None:
        """Don't call back."""


class Runner(Protocol):
    """A task."""

    def cancel(self) -> object: ...


class Cancellable(Protocol):
    """Work that is cancelled with `runner`, or by setting `cancelled` before `runner` is set."""

    cancelled: bool
    runner: Any


# A coroutine function and its two arguments: a request and its task.
TaskStart = tuple[Callable[[Any, Any], Coroutine[Any, Any, object]], Any, Cancellable]


class Loop(Protocol):
    """The event loop that all connections of a node share."""

    @property
    def scheduler(self) -> FairScheduler:
        """The scheduler of received bytes."""

    def now(self) -> float:
        """Seconds of a monotonic clock."""

    def waiter(self) -> Waiter: ...

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call `callback` in the next turn of the loop."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`."""

    def start_tasks(self, begun: Iterable[TaskStart]) -> None:
        """Run coroutine functions in tasks; they must not raise. asyncio runs them immediately
        until they first wait, from Python 3.12 on."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Runner:
        """Run a coroutine function, which must not raise, in a task."""
