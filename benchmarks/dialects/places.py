"""Where a server of a dialect listens, and what its clients have in common.

This machine alone can reach it; a Unix socket is in a directory of its own that goes with
the server.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sides import Publish
from benchmarks.task import Task


@contextmanager
def place_of(task: Task) -> Iterator[str]:
    """An address to listen on."""
    if not task.unix:
        yield "tcp://127.0.0.1:0"
        return
    with tempfile.TemporaryDirectory(prefix="parley-benchmark-") as directory:
        yield f"unix://{Path(directory, 'socket')}"


class CallsOnly:
    """A connection that does nothing but calls."""

    async def send(self, chunk: bytes) -> None:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def sent(self) -> int:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def aclose(self) -> None:
        """It ends with its client."""


class NoNotes:
    """A client that has nothing to subscribe to."""

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError


class NoWorkError(Exception):
    """This kind of work is not measured on this side."""

    def __init__(self) -> None:
        super().__init__("this is not measured on this side")


async def no_publish(seconds: float) -> int:
    """Never asked of it; raises NoWorkError."""
    raise NoWorkError


NO_PUBLISH: Publish = no_publish
