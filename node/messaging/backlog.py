"""How many bytes of answers wait to be written, because the other side does not read.

One rule: it counts what was answered, never what byte streams queue, so that bulk
streams do not make a node refuse calls. Learns what was written from how many events
still wait, since each stream is written in order.
"""

from collections import deque
from collections.abc import Callable

_TRIM_EVERY = 64


class AnswerBacklog:
    """The answers of one connection. `waiting` tells how many events of a stream wait.

    `size` is the bytes that wait, and what was written since the last `trim`; one that
    looks too large may be so for that reason alone.
    """

    __slots__ = ("_sizes", "_untrimmed", "_waiting", "size")

    def __init__(self, waiting: Callable[[int], int]) -> None:
        self._waiting = waiting
        self._sizes: dict[int, deque[int]] = {}
        self._untrimmed = 0
        self.size = 0

    def add(self, stream: int, size: int) -> None:
        """An answer of `size` bytes was queued."""
        sizes = self._sizes.get(stream)
        if sizes is None:
            sizes = self._sizes[stream] = deque()
        sizes.append(size)
        self.size += size
        self._untrimmed += 1
        if self._untrimmed >= _TRIM_EVERY:
            self.trim()

    def trim(self) -> None:
        """Forget what was written."""
        self._untrimmed = 0
        for stream, sizes in list(self._sizes.items()):
            for _ in range(len(sizes) - self._waiting(stream)):
                self.size -= sizes.popleft()
            if not sizes:
                del self._sizes[stream]
