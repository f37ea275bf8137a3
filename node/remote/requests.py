"""Calls and named events, as their handlers see them. Handlers respond by returning or raising."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol

from anyio.lowlevel import checkpoint

from parley._lbm.codec import Encodable, Value
from parley._node.data_types import D, DataType
from parley._node.errors import MalformedDataError
from parley._node.messaging.formats import FormatError, FormatName
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.named_events import check_names
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.remote.remote import Remote


class Request(Generic[D]):
    """A request from a peer.

    Attributes:
        peer: the peer; a `Guest` if the request came in another dialect.
        topic: the called or subscribed topic.
        data: the data of the request, or None.
    """

    __slots__ = ("_call", "data", "peer", "topic")

    def __init__(self, peer: Remote, call: IncomingCall) -> None:
        self.peer = peer
        self.topic = call.topic
        self.data: D = call.data
        self._call = call

    def hold_to(self, kind: DataType[D]) -> None:
        """Convert the data to `kind`; raises MalformedDataError if it doesn't fit."""
        self.data = kind.read(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} from {self.peer}>"


class Call(Request[D]):
    """A call.

    A handler returns any LBM value, or raises `CallRefused(code, data)`. A handler with the hint
    `Call[Order]` gets an Order as `data`, and isn't run for other data.
    """

    __slots__ = ()

    @property
    def headers(self) -> Mapping[str, Value]:
        """The caller's headers; empty if it sent none."""
        return self._call.headers

    @property
    def deadline(self) -> float | None:
        """When the caller gives up, by the loop's clock, or None."""
        return self._call.deadline


CallHandler = Callable[[Call[Any]], Any]


class ReplyPort(Protocol):
    """Sends the replies to one event, in `format` by default."""

    format: FormatName

    @property
    def wanted(self) -> bool:
        """Whether the emitter waits for replies, or the dialect cannot tell."""

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send a reply; may wait until it can be written. Raises PeerClosedError."""


class NamedEvent(Generic[D]):
    """An event that `peer` emitted, with a `name` and a `namespace` (empty for none). A handler
    with the hint `NamedEvent[Order]` gets an Order as `data`."""

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
        """The payload, decoded by its format; bytes if it has none.

        Raises:
            FormatError: the payload isn't of its format.
        """
        data: Any = self._payload.data
        return data if self._kind is None else self._kind.read(data)

    def hold_to(self, kind: DataType[D]) -> None:
        """Convert the data to `kind`; raises MalformedDataError if it doesn't fit."""
        try:
            kind.read(self._payload.data)
        except FormatError as error:
            payload = self._payload
            text = f"{len(payload.raw):,} bytes are not of format {payload.format}"
            raise MalformedDataError("$", text) from error
        self._kind = kind

    @property
    def raw(self) -> bytes:
        """The payload as bytes."""
        return self._payload.raw

    @property
    def tandem(self) -> Tandem:
        """Both payloads of a tandem.

        Raises:
            FormatError: it is not a tandem payload.
        """
        return self._payload.tandem

    @property
    def payload(self) -> Payload:
        """The undecoded payload, to be forwarded."""
        return self._payload

    @property
    def format(self) -> int | None:
        """The format id of the payload (section 10); None for raw bytes."""
        return self._payload.format

    @property
    def wants_reply(self) -> bool:
        """Whether the emitter waits for replies."""
        return self._port.wanted

    async def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> None:
        """Send a reply that may be followed by others; ignored if the emitter doesn't wait. A
        native peer learns the name only if it differs from the event's.

        Raises:
            LocalProtocolError: the name or the namespace is not text, or too long.
            LbmEncodeError, FormatError: the data cannot be encoded in the format.
            PeerClosedError: the connection is over.
        """
        check_names(name, namespace)
        if self._port.wanted:
            await self._port.reply(name, namespace, make_payload(data, format or self._port.format))
        else:
            await checkpoint()  # a handler that says things for ever can be ended here


EventHandler = Callable[[NamedEvent[Any]], Any]
