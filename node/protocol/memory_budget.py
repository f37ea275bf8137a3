"""The memory that one connection holds, with one limit (docs/protocol.md sections 8 and 14).

Every holder charges the budget and releases as much afterwards, so that `held` is 0 at the end.
"""

from collections.abc import Callable
from typing import Final

from parley._node.protocol.limits import BATCH_COUNT, Limits

# What things take in memory besides their payloads, in bytes of CPython: no less than
# tracemalloc sees (tests/node/test_memory.py).
EVENT_WEIGHT: Final = 512  # an event of a stream that waits for its reader
STREAM_WEIGHT: Final = 2_048  # a stream of theirs, with keys and windows
STREAM_HANDLER_WEIGHT: Final = 8_192  # its handler, buffers and task
REQUEST_WEIGHT: Final = 4_096  # a request whose handler runs
REPLY_WEIGHT: Final = 256  # a reply, or a part of an answer, that waits for its reader
OUTGOING_WEIGHT: Final = 256  # an event that waits to be written
NOTE_WEIGHT: Final = 96  # a note of a topic that waits for one subscriber
FRAMES_WEIGHT: Final = 64  # frames of stream 0 that wait to be written
BATCH_WEIGHT: Final = 512  # and those that were published together
ROW_WEIGHT: Final = 512  # a row of an answer of the bus, besides its bytes
HANDED_WEIGHT: Final = 320  # an id that was handed out and may be acknowledged
PLACE_WEIGHT: Final = 1_024  # a consumer for which a stream `bus` speaks

# What each connection may have held, however much is held for all of them.
SHARE: Final = 64 * 1024


class MemoryBudget:
    """The bytes that are `held` for one connection, at most about `limit`.

    They also count in `total`, the budget of all connections. Up to `share` there is room however
    full that is. `on_charge` is called after each charge.
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
        """Charge bytes (release, if negative) that others hold as well: they don't count in
        `total`."""
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
        """Charge so many bytes if there is room for them; returns whether there was."""
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
    """Return the memory that events may take that wait for one seal: `seal_events` of them, each of
    which can be a Batch."""
    return limits.seal_events * (limits.max_payload + BATCH_COUNT * EVENT_WEIGHT)
