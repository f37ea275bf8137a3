"""What waits for one client of the relay: slices of what was received, of many senders.

One rule: however small the slices are, what they keep alive stays within twice their
bytes and half of `write_buffer`; so small ones are copied if they wait for long. A client
that reads gets its messages copied once, into what is written.
"""

from collections.abc import Sequence
from typing import Final

from node.dialects.outgoing import Outgoing
from node.protocol.account import FRAMES_WEIGHT, Account

# What a slice takes besides the bytes that it shows.
SLICE_COST: Final = 200


class Slices(Outgoing):
    """An `Outgoing` that knows what its slices hold.

    Those at its end whose cost is not settled are *loose*: once they may hold more than
    half of `write_buffer`, and more than twice their bytes, they become one copy.
    """

    __slots__ = ("_held", "_loose", "_most_held")

    def __init__(self, write_buffer: int, account: Account) -> None:
        super().__init__(account)
        self._most_held = write_buffer // 2
        self._loose = 0
        self._held = 0  # by the loose ones, at most

    def extend(self, slices: Sequence[bytes | memoryview], held: int) -> None:
        """Queue slices of buffers that have `held` bytes together."""
        count = len(slices)
        self._queue.extend(slices)
        size = sum(map(len, slices))
        self._account.charge(size + FRAMES_WEIGHT * count)
        self.count += count
        self.size += size
        self._loose += count
        self._held += held + SLICE_COST * count
        if self._held > self._most_held:
            self._settle()

    def take(self, limit: int) -> bytes:
        """As `Outgoing.take`."""
        data = super().take(limit)
        if not self.count:
            self._loose = self._held = 0
        return data

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._loose = self._held = 0

    def _settle(self) -> None:
        queue = self._queue
        loose = [queue.pop() for _ in range(min(self._loose, self.count))]
        loose.reverse()
        if self._held > 2 * sum(map(len, loose)):
            self._account.release(FRAMES_WEIGHT * (len(loose) - 1))
            self.count -= len(loose) - 1
            loose = [b"".join(loose)]
        queue.extend(loose)
        self._loose = self._held = 0
