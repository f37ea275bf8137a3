"""Requests as their handlers see them: calls, and what they share with subscriptions.

They are only read: handlers answer by what they return or raise.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbm.codec import Value
from node.messaging.pending import IncomingCall
from node.remote.remote import Remote


class Request:
    """What a peer (`peer`) asks of a handler; it is a `Guest` if it came in another dialect."""

    __slots__ = ("_call", "peer")

    def __init__(self, peer: Remote, call: IncomingCall) -> None:
        self.peer = peer
        self._call = call

    @property
    def topic(self) -> str:
        """The topic that is called, or to be subscribed to."""
        return self._call.topic

    @property
    def data(self) -> Value:
        """What came with the request; None if nothing did."""
        return self._call.data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} from {self.peer}>"


class Call(Request):
    """What was asked, by whom (`peer`), and until when.

    A handler answers by returning any LBM value, or raises `CallRefused(code, data)`.
    """

    __slots__ = ()

    @property
    def headers(self) -> Mapping[str, Value]:
        """The caller's headers; empty if it sent none."""
        return self._call.headers

    @property
    def deadline(self) -> float | None:
        """When the caller gives up, in seconds of the loop's clock, or None."""
        return self._call.deadline


CallHandler = Callable[[Call], Any]
