"""Who waits for events of which stream.

One rule: who waits is in the list before he looks, so that nothing published in between is
missed; only those of a stream are woken that something was published on. Knows no database.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from node.bus.sqlite.line import Line
from node.transport.backend import Backend
from node.transport.loop import Waiter

Found = TypeVar("Found")


class Readers:
    """The tasks that wait; all of it in the loop."""

    def __init__(self, backend: Backend, line: Line) -> None:
        self._backend = backend
        self._line = line
        self._waiters: dict[str, set[Waiter]] = {}

    async def first(
        self, stream: str, wait: float, ask: Callable[[], Awaitable[list[Found]]]
    ) -> list[Found]:
        """What `ask` gives, as soon as it gives something, within `wait` seconds."""
        if wait <= 0:
            return await ask()
        loop = self._backend
        end = loop.now() + wait
        while True:
            waiter = loop.waiter()
            self._enter(stream, waiter)
            try:
                found = await ask()
                if found or loop.now() >= end:
                    return found
                timer = loop.at(end, waiter.wake)
                try:
                    await waiter.wait()
                finally:
                    timer.cancel()
            finally:
                self._leave(stream, waiter)

    def wake(self, streams: set[str] | None) -> None:
        """Something is there to be read on `streams`; None: nobody knows on which."""
        for stream in list(self._waiters) if streams is None else streams:
            for waiter in self._waiters.get(stream, ()):
                waiter.wake()

    def _enter(self, stream: str, waiter: Waiter) -> None:
        self._waiters.setdefault(stream, set()).add(waiter)
        self._line.watched = True

    def _leave(self, stream: str, waiter: Waiter) -> None:
        waiters = self._waiters[stream]
        waiters.discard(waiter)
        if not waiters:
            del self._waiters[stream]
            self._line.watched = bool(self._waiters)
