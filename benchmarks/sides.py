"""The interface of a measured side, the same for Parley and the baseline.

A side performs one operation at a time and doesn't count; `clients.py` controls the repetitions for
both.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from benchmarks.task import Task


class Connection(Protocol):
    """A connection of the client process."""

    def call(self, payload: bytes) -> Awaitable[object]:
        """Send a payload and wait for its echo."""

    async def send(self, chunk: bytes) -> None:
        """Send a piece of a long byte stream, with flow control."""

    async def sent(self) -> int:
        """End the byte stream and return how many bytes arrived."""

    async def aclose(self) -> None:
        """Close the connection and wait until it is closed."""


@runtime_checkable
class StreamConnection(Protocol):
    """A connection that can be shared by streams; the baseline's cannot."""

    def open_streams(self, count: int) -> list[Connection]:
        """So many; on each of them a call is an event that asks for one."""


@runtime_checkable
class Pipelined(Protocol):
    """A connection with blocking calls: it keeps many in flight itself."""

    def pipeline(self, payload: bytes, count: int, end: float) -> Awaitable[int]:
        """Keep this many calls in flight until `perf_counter` reaches `end`; return the number of
        answers.
        """


class Client(Protocol):
    """The client process's half of a side."""

    async def open(self) -> Connection:
        """Open a connection that is ready for calls."""

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Subscribe on `count` new connections; `received` is called with the number of received
        notes.
        """


Publish = Callable[[float], Awaitable[int]]


class Side(Protocol):
    """A system to measure: how its two processes start."""

    def serve(self, task: Task) -> AbstractAsyncContextManager[tuple[dict[str, Any], Publish]]:
        """A server: what clients need to know of it, and what publishes for some seconds
        and returns how many notes that were."""

    def client(self, task: Task, info: dict[str, Any]) -> AbstractAsyncContextManager[Client]:
        """A client of the server that gave this information."""
