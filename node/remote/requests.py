"""Requests as their handlers see them: calls, and what they share with subscriptions.

They are only read: handlers answer by what they return or raise.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic

from parley._lbm.codec import Value
from parley._node.messaging.pending import IncomingCall
from parley._node.remote.remote import Remote
from parley._node.typed.data_type import DataType
from parley._node.typed.models import D


class Request(Generic[D]):
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
        self.data: D = call.data
        self._call = call

    def hold_to(self, kind: DataType[D]) -> None:
        """Make its data what `kind` says; MalformedDataError if it does not fit."""
        self.data = kind.read(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} from {self.peer}>"


class Call(Request[D]):
    """What was asked, by whom (`peer`), and until when.

    A handler answers by returning any LBM value, or raises `CallRefused(code, data)`. One whose
    hint is `Call[Order]` is given an Order as `data`, and is not run for anything else.
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


CallHandler = Callable[[Call[Any]], Any]
