"""What is told how a transfer goes.

A watcher cannot change a transfer, and must not raise.
"""

from dataclasses import dataclass

from parley._node.apps.transfer.protocol import FileOffer
from parley._node.errors import ParleyError


@dataclass(slots=True, eq=False)
class Transfer:
    """One file under way. `at` is how much of it the receiver has, or was sent, in bytes."""

    offer: FileOffer
    peer: str  # the other side's node id, or its address if it has none
    offset: int = 0  # where this try began
    at: int = 0


class Watcher:
    """Told by senders and receivers what happens; all of it does nothing here."""

    def began(self, transfer: Transfer) -> None:
        """Both agree on where to begin."""

    def advanced(self, transfer: Transfer) -> None:
        """Some more bytes were sent, or have come."""

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        """It ended early; None if it was cancelled."""

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        """The file is in its place; `new` is false if it had been there before."""

    def refused(self, name: str, peer: str, error: ParleyError) -> None:
        """The receiver would not have it."""

    def retrying(self, name: str, error: Exception, number: int, pause: float) -> None:
        """The sender tries again in `pause` seconds, for the `number`th time in a row."""
