"""Requests as their handlers see them: calls, and what they share with subscriptions.

They are only read: handlers answer by what they return or raise.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol

from anyio.lowlevel import checkpoint

from parley._lbm.codec import Encodable, Value
from parley._node.data_types import D, DataType
from parley._node.errors import MalformedDataError
from parley._node.messaging.formats import FormatError, FormatName
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.messaging.named_events import check_names
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.remote.remote import Remote


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


class ReplyPort(Protocol):
    """Where the replies to one event go. `format` is what they are in unless told."""

    format: FormatName

    @property
    def wanted(self) -> bool:
        """Whether the emitter said that it waits for replies, or cannot say."""

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send one; it may wait for room. PeerClosedError if the connection is over."""


class NamedEvent(Generic[D]):
    """An event that `peer` emitted: its `name`, its `namespace` (empty for none), and what
    it carries. A handler whose hint is `NamedEvent[Order]` is given an Order as `data`."""

    __slots__ = ("_kind", "_payload", "_port", "name", "namespace", "peer")

    def __init__(
        self, peer: Remote, name: str, namespace: str, payload: Payload, port: ReplyPort
    ) -> None:
        self.peer = peer
        self.name = name
        self.namespace = namespace
        self._payload = payload
        self._port = port
        self._kind: DataType[D] | None = None

    def __repr__(self) -> str:
        where = f" of {self.namespace!r}" if self.namespace else ""
        return f"<NamedEvent {self.name!r}{where} from {self.peer}>"

    @property
    def data(self) -> D:
        """What it carries, by the format that it says; raw bytes if it says none.

        Raises:
            FormatError: it is not of that format.
        """
        data: Any = self._payload.data
        return data if self._kind is None else self._kind.read(data)

    def hold_to(self, kind: DataType[D]) -> None:
        """Make its data what `kind` says; MalformedDataError if it does not fit."""
        try:
            kind.read(self._payload.data)
        except FormatError as error:
            payload = self._payload
            text = f"{len(payload.raw):,} bytes are not of format {payload.format}"
            raise MalformedDataError("$", text) from error
        self._kind = kind

    @property
    def raw(self) -> bytes:
        """What it carries as bytes, unread."""
        return self._payload.raw

    @property
    def tandem(self) -> Tandem:
        """The two payloads that it carries.

        Raises:
            FormatError: it is not a tandem payload.
        """
        return self._payload.tandem

    @property
    def payload(self) -> Payload:
        """What it carries as it came, to be passed on or answered unread."""
        return self._payload

    @property
    def format(self) -> int | None:
        """The format id of what it carries (section 10); None for raw bytes."""
        return self._payload.format

    @property
    def wants_reply(self) -> bool:
        """Whether its emitter waits for replies; False if they would go nowhere."""
        return self._port.wanted

    async def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> None:
        """Reply to it, with more to follow; nothing happens if nobody waits. Natively the
        name goes along only if it is another one than the event's.

        Raises:
            LocalProtocolError: the name or the namespace is not text, or too long.
            LbmEncodeError, FormatError: the data has no form in the format.
            PeerClosedError: the connection is over.
        """
        check_names(name, namespace)
        if self._port.wanted:
            await self._port.reply(name, namespace, make_payload(data, format or self._port.format))
        else:
            await checkpoint()  # a handler that says things for ever can be ended here


EventHandler = Callable[[NamedEvent[Any]], Any]
