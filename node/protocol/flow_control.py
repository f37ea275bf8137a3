"""Credit and windows of streams, and of the Chunks of a call (docs/protocol.md section 8).

Credit is the number of bytes that may still be sent. One event may exceed it; at zero or below,
sending stops.
"""

from typing import Final

from parley._node.protocol.errors import violation
from parley._node.protocol.limits import LARGEST_CREDIT, READ_ON

# Tunnels (section 19). The initial window in both directions, whatever was agreed.
TUNNEL_WINDOW: Final = 65_536
# A window doubles whenever credit is granted, up to this size.
LARGEST_TUNNEL_WINDOW: Final = 256 * 1024
# The bytes by which the windows of all tunnels of a connection together may grow.
TUNNEL_GROWTH: Final = 4 * 1024 * 1024
# The longest Data, which has room for an inner event of 64 KiB with its frame, and the longest one
# until the credit has exceeded the initial window.
LARGEST_TUNNEL_DATA: Final = 65 * 1024
FIRST_TUNNEL_DATA: Final = 16_384


class SendCredit:
    """The number of bytes that we may still send, and the `highest` value that it has had."""

    __slots__ = ("highest", "left")

    def __init__(self, initial: int) -> None:
        self.left = self.highest = initial

    def grant(self, credit: int) -> None:
        """Add credit that the peer granted.

        Raises:
            RemoteProtocolError: `protocol-error`: the credit exceeds 2^31 - 1.
        """
        self.left += credit
        if self.left > LARGEST_CREDIT:
            raise violation(f"{self.left} of credit; at most {LARGEST_CREDIT}")
        self.highest = max(self.highest, self.left)


class ReceiveWindow:
    """The number of bytes that the peer may still send, and that the application has consumed.

    More credit is granted once half of the size is consumed. At least 512 bytes, whole events or
    all received bytes are granted at a time. `left`, `consumed` and the bytes not yet consumed by
    the application add up to `size`.
    """

    __slots__ = ("consumed", "left", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size
        self.consumed = 0

    def take(self, cost: int) -> None:
        """Count an event of `cost`.

        Raises:
            RemoteProtocolError: `protocol-error`: the peer had no credit left.
        """
        if self.left <= 0:
            raise violation(f"an event that costs {cost} came with {self.left} of credit")
        self.left -= cost

    def resize(self, size: int) -> None:
        """Set the size as if it had been `size` from the start."""
        self.left += size - self.size
        self.size = size

    def consume(self, cost: int, *, shrink: bool = False, whole: bool = False) -> int:
        """Count `cost` as consumed and return the credit to grant now (may be 0).

        With `shrink` (memory is short) half of it is withheld permanently, down to 1 KiB. With
        `whole`, credit is granted after each event.
        """
        self.consumed += cost
        few = self.consumed < READ_ON and self.left + self.consumed < self.size
        if (few and not whole) or self.consumed * 2 < self.size:
            return 0
        grant, self.consumed = self.consumed, 0
        if shrink:
            kept = min(grant // 2, max(0, self.size - 1024))
            self.size -= kept
            grant -= kept
        self.left += grant
        return grant
