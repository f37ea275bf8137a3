"""Progress of file transfers: `Watcher` is notified of it."""

from dataclasses import dataclass

from parley._node.apps.transfer.protocol import FileOffer
from parley._node.errors import ParleyError


@dataclass(slots=True, eq=False)
class Transfer:
    """A transfer in progress. `at` is the number of bytes that the receiver has, or was sent."""

    offer: FileOffer
    peer: str  # the other side's node ID, or its address if it has none
    offset: int = 0  # where this attempt began
    at: int = 0


class Watcher:
    """Callbacks for senders and receivers, which must not raise; by default they do nothing."""

    def began(self, transfer: Transfer) -> None:
        """Called when both sides agree on the offset."""

    def advanced(self, transfer: Transfer) -> None:
        """Called when more bytes were sent or received."""

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        """Called when it ended early; `error` is None if it was cancelled."""

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        """Called when the file is complete; `new` is False if it existed before."""

    def refused(self, name: str, peer: str, error: ParleyError) -> None:
        """Called when the receiver refuses the file."""

    def retrying(self, name: str, error: Exception, number: int, pause: float) -> None:
        """Called before the `number`th successive retry, which follows in `pause` seconds."""
