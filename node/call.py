"""A call as its handler sees it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lbm.codec import Value
from node.messaging.pending import IncomingCall

if TYPE_CHECKING:
    from node.peer import Peer


class Call:
    """What was asked, by whom (`peer`), and until when.

    A handler answers by returning any LBM value, or raises `CallRefused(code, data)`.
    """

    __slots__ = ("_call", "peer")

    def __init__(self, peer: "Peer", call: IncomingCall) -> None:
        self.peer = peer
        self._call = call

    @property
    def topic(self) -> str:
        """The topic that was called."""
        return self._call.topic

    @property
    def data(self) -> Value:
        """What came with the call; None if nothing did."""
        return self._call.data

    @property
    def headers(self) -> Mapping[str, Value]:
        """The caller's headers; empty if there are none."""
        return self._call.headers

    @property
    def deadline(self) -> float | None:
        """When the caller gives up, in seconds of the loop's clock, or None."""
        return self._call.deadline

    def __repr__(self) -> str:
        return f"<Call {self.topic!r} from {self.peer}>"
