"""Credit and windows of streams, and of the Chunks of a call (docs/protocol.md section 8).

Credit is how many bytes may still be sent. One event may exceed it; none is sent at zero or below.
"""

from typing import Final

from parley._node.protocol.errors import violation
from parley._node.protocol.limits import LARGEST_CREDIT, READ_ON

# Of streams `tunnel` (section 19) at first, both ways, whatever was agreed for others.
TUNNEL_WINDOW: Final = 65_536


class SendCredit:
    """How many bytes we may still send."""

    __slots__ = ("left",)

    def __init__(self, initial: int) -> None:
        self.left = initial

    def grant(self, credit: int) -> None:
        """Add credit that the peer granted.

        Raises:
            RemoteProtocolError: `protocol-error`, above 2^31 - 1.
        """
        self.left += credit
        if self.left > LARGEST_CREDIT:
            raise violation(f"{self.left} of credit; at most {LARGEST_CREDIT}")


class ReceiveWindow:
    """How many bytes the peer may still send, and how many the application has consumed.

    Credit is granted when half of the size is consumed, and at least 512 bytes, whole events, or
    everything that was received. `left` plus `consumed` plus what the application holds is `size`.
    """

    __slots__ = ("consumed", "left", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size
        self.consumed = 0

    def take(self, cost: int) -> None:
        """Take an event of `cost`.

        Raises:
            RemoteProtocolError: `protocol-error`, it came at no credit.
        """
        if self.left <= 0:
            raise violation(f"an event that costs {cost} came with {self.left} of credit")
        self.left -= cost

    def resize(self, size: int) -> None:
        """Set the size, as if it had been `size` from the start."""
        self.left += size - self.size
        self.size = size

    def consume(self, cost: int, *, shrink: bool = False, whole: bool = False) -> int:
        """Count `cost` as consumed; return the credit to grant now, 0 for none.

        With `shrink` (memory is short) half of it is withheld for good, down to 1 KiB. With `whole`
        each event is a reason for a Window.
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
