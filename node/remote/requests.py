"""Requests as their handlers see them: calls, and what they share with subscriptions.

They are only read: handlers answer by what they return or raise.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbm.codec import Value
from node.messaging.pending import IncomingCall
from node.remote.remote import Remote


class Request:
    """What a peer asks of a handler.

    Attributes:
        peer: the peer; a `Guest` if the request came in another dialect.
        topic: the topic that is called, or to be subscribed to.
        data: what came with the request; None if nothing did.
    """

    __slots__ = ("_call", "data", "peer", "topic")

    def __init__(self, peer: Remote, call: IncomingCall) -> None:
        self.peer = peer
        self.topic = call.topic
        self.data: Value = call.data
        self._call = call

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
