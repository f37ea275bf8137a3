"""The arithmetic of flow control, for streams and for the Chunks of a call (section 8).

Credit is what may still be sent; one event may take it below zero, and none
is sent or taken at zero or below.
"""

from typing import Final

from parley._node.protocol.errors import violation
from parley._node.protocol.limits import LARGEST_CREDIT, READ_ON

# Of streams `tunnel` (section 19) at first, both ways, whatever was agreed for others.
TUNNEL_WINDOW: Final = 65_536


class SendCredit:
    """What we may still send, in bytes of cost."""

    __slots__ = ("left",)

    def __init__(self, initial: int) -> None:
        self.left = initial

    def grant(self, credit: int) -> None:
        """The reader allows `credit` more.

        Raises:
            RemoteProtocolError: `protocol-error`, above 2^31 - 1.
        """
        self.left += credit
        if self.left > LARGEST_CREDIT:
            raise violation(f"{self.left} of credit; at most {LARGEST_CREDIT}")


class ReceiveWindow:
    """What the other side may still send, and what the application has used up.

    Credit is granted in one Window once half the size has been consumed, and either 512 bytes, or
    whole events, or everything that came. So `left` plus `consumed` plus what the application holds
    is `size`.
    """

    __slots__ = ("consumed", "left", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size
        self.consumed = 0

    def take(self, cost: int) -> None:
        """An event of `cost` came.

        Raises:
            RemoteProtocolError: `protocol-error`, it came at no credit.
        """
        if self.left <= 0:
            raise violation(f"an event that costs {cost} came with {self.left} of credit")
        self.left -= cost

    def resize(self, size: int) -> None:
        """It was `size` from the start: what came meanwhile is taken from that."""
        self.left += size - self.size
        self.size = size

    def consume(self, cost: int, *, shrink: bool = False, whole: bool = False) -> int:
        """The application used up `cost`: how much to grant now, 0 for nothing yet.

        With `shrink` (memory is short) half of it is kept back for good, down to 1 KiB. `whole`
        events are each a reason for a Window.
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
