"""The memory budget of one connection (docs/protocol.md sections 8 and 14).

Code that buffers data charges the budget and later releases the same amount, so that `held` is 0 at
the end.
"""

from collections.abc import Callable
from typing import Final

from parley._node.protocol.limits import BATCH_COUNT, Limits

# Memory of objects in addition to their payloads, in bytes of CPython: at least what tracemalloc
# measures (tests/node/test_memory.py).
EVENT_WEIGHT: Final = 512  # an event of a stream that waits for its reader
STREAM_WEIGHT: Final = 2_048  # a stream of the peer, with keys and windows
STREAM_HANDLER_WEIGHT: Final = 8_192  # its handler, buffers and task
REQUEST_WEIGHT: Final = 4_096  # a request whose handler runs
REPLY_WEIGHT: Final = 256  # a reply, or a part of a response, that waits for its reader
OUTGOING_WEIGHT: Final = 256  # an event that waits to be written
NOTE_WEIGHT: Final = 96  # a note of a topic that waits for one subscriber
FRAMES_WEIGHT: Final = 64  # frames of stream 0 that wait to be written
BATCH_WEIGHT: Final = 512  # notes that were published together
ROW_WEIGHT: Final = 512  # a row in a response of the bus, in addition to its bytes
HANDED_WEIGHT: Final = 320  # the ID of a delivered event that may be acknowledged
PLACE_WEIGHT: Final = 1_024  # a consumer on a `bus` stream

# Memory that each connection may use even if the total budget is exhausted.
SHARE: Final = 64 * 1024


class MemoryBudget:
    """The memory that one connection uses: `held` bytes of about `limit`.

    It also counts in `total`, the budget of all connections. Up to `share` bytes are available even
    if `total` is exhausted. `on_charge` is called after each charge.
    """

    __slots__ = ("_share", "_total", "held", "limit", "on_charge")

    def __init__(self, limit: int, total: "MemoryBudget | None" = None, share: int = 0) -> None:
        self.limit = limit
        self.held = 0
        self.on_charge: Callable[[], None] | None = None
        self._total = total
        self._share = share

    def __repr__(self) -> str:
        return f"<MemoryBudget: {self.held:,} of {self.limit:,} bytes>"

    def charge(self, size: int) -> None:
        self.held += size
        total = self._total
        while total is not None:
            total.held += size
            total = total._total
        if self.on_charge is not None:
            self.on_charge()

    def charge_shared(self, size: int) -> None:
        """Charge bytes (release, if negative) of shared objects, which don't count in `total`."""
        self.held += size
        if self.on_charge is not None:
            self.on_charge()

    def release(self, size: int) -> None:
        self.held -= size
        total = self._total
        while total is not None:
            total.held -= size
            total = total._total

    def try_charge(self, size: int) -> bool:
        """Charge `size` bytes if they fit; return whether they did."""
        budget: MemoryBudget | None = self
        while budget is not None:
            held = budget.held + size
            if held > budget.limit:
                return False
            if held <= budget._share:
                break
            budget = budget._total
        budget = self
        while budget is not None:
            budget.held += size
            budget = budget._total
        if self.on_charge is not None:
            self.on_charge()
        return True

    def has_room(self, size: int = 1) -> bool:
        account: MemoryBudget | None = self
        while account is not None:
            held = account.held + size
            if held > account.limit:
                return False
            if held <= account._share:
                return True
            account = account._total
        return True


def unsealed_weight(limits: Limits) -> int:
    """Return the memory of the most events that can wait for one seal: `seal_events` of them, each
    of which can be a Batch.
    """
    return limits.seal_events * (limits.max_payload + BATCH_COUNT * EVENT_WEIGHT)
