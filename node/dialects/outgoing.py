"""Bytes of a foreign dialect that wait to be written, in their order.

One rule: what is queued is copied once, into what goes to the transport. Views of what
was received may be queued; they keep it alive until then.
"""

from collections import deque

from node.protocol.account import FRAMES_WEIGHT, Account


class Outgoing:
    """A queue of byte strings, charged to `account`: `size` is their bytes, `count` how many
    there are."""

    __slots__ = ("_account", "_queue", "count", "size")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._queue: deque[bytes | memoryview] = deque()
        self.count = 0
        self.size = 0

    def put(self, data: bytes | memoryview) -> None:
        """Queue bytes."""
        self._queue.append(data)
        self._account.charge(len(data) + FRAMES_WEIGHT)
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
        self._account.release(size + FRAMES_WEIGHT * len(parts))
        self.count -= len(parts)
        self.size -= size
        return b"".join(parts)

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()
        self._account.release(self.size + FRAMES_WEIGHT * self.count)
        self.count = self.size = 0
