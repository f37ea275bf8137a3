"""What came on a stream and waits for its reader: its bytes, or its events.

What was received is given back as credit only once the reader has taken it, so that a slow reader
slows its sender and nothing else.
"""

from collections import deque
from typing import Final, Generic, TypeVar

import anyio

from parley._node.remote.live import LiveConnection
from parley._node.transport.loop import Waiter

T = TypeVar("T")

# Reads before others run: of bytes, one thing may be many of them.
TURN: Final = 64


class Inbox(Generic[T]):
    """Things of one kind, in their order, for one reader at a time.

    `end` is what the reader meets after the last of them, an exception or its type; None
    while more may come.
    """

    __slots__ = ("_guard", "_live", "_reader", "_reads", "_stream", "end", "items")

    def __init__(self, live: LiveConnection, stream: int) -> None:
        self._live = live
        self._stream = stream
        self.items: deque[tuple[T, int]] = deque()
        self._guard = anyio.ResourceGuard("receiving from")
        self._reader: Waiter | None = None
        self._reads = 0  # since others ran
        self.end: Exception | type[Exception] | None = None

    def __len__(self) -> int:
        return len(self.items)

    # The reader's side.

    async def first(self) -> T:
        """Wait for the first thing, which stays until `take`.

        Raises:
            BusyResourceError: another task waits. What `end` says, after the last one.
        """
        with self._guard:
            if self.items and self._reads < TURN:
                self._reads += 1
                await anyio.lowlevel.checkpoint_if_cancelled()
            else:
                await anyio.lowlevel.checkpoint()
                self._reads = 0
            while not self.items:
                if self.end is not None:
                    raise self.end
                self._reader = self._live.backend.waiter()
                try:
                    await self._reader.wait()
                finally:
                    self._reader = None
            return self.items[0][0]

    def take(self) -> None:
        """The first thing is used: its credit goes back."""
        _, cost = self.items.popleft()
        self._live.core.consume(self._stream, cost)

    def take_all(self) -> list[tuple[T, int]]:
        """All things, with what each took of the credit, which does not go back."""
        items = list(self.items)
        self.items.clear()
        return items

    # The stream's side.

    def put(self, item: T, cost: int) -> None:
        """Something came, which took `cost` of the stream's credit."""
        self.items.append((item, cost))
        self._wake()

    def finish(self, end: Exception | type[Exception], *, drop: bool) -> None:
        """Nothing more will come; the first reason stays, except for one that drops."""
        if drop:
            for _, cost in self.items:
                self._live.core.consume(self._stream, cost)
            self.items.clear()
        if drop or self.end is None:
            self.end = end
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()
