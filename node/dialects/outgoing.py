"""Bytes of a foreign dialect that wait to be written, in their order.

One rule: what is queued is copied once, into what goes to the transport. Views of what
was received may be queued; they keep it alive until then.
"""

from collections import deque


class Outgoing:
    """A queue of byte strings: `size` is their bytes, `count` how many there are."""

    __slots__ = ("_queue", "count", "size")

    def __init__(self) -> None:
        self._queue: deque[bytes | memoryview] = deque()
        self.count = 0
        self.size = 0

    def put(self, data: bytes | memoryview) -> None:
        """Queue bytes."""
        self._queue.append(data)
        self.count += 1
        self.size += len(data)

    def take(self, limit: int) -> bytes:
        """What waits, in whole byte strings: `limit` bytes or a little more, less only if
        nothing is left."""
        queue = self._queue
        if self.size <= limit:
            data = b"".join(queue)
            self.clear()
            return data
        parts: list[bytes | memoryview] = []
        size = 0
        while size < limit:  # all of it would be more, so there is always another
            part = queue.popleft()
            parts.append(part)
            size += len(part)
        self.count -= len(parts)
        self.size -= size
        return b"".join(parts)

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()
        self.count = self.size = 0
