"""Calls and named events as their handlers receive them."""

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
        """Convert the data to `kind`; raise MalformedDataError if it doesn't match."""
        self.data = kind.read(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} from {self.peer}>"


class Call(Request[D]):
    """A call, as its handler receives it.

    The handler returns any value that LBM can encode, or raises `CallRefused(code, data)`. A
    handler with the hint `Call[Order]` receives an Order as `data`; other data is refused before it
    runs.

    Example:

        from parley import Call, CallRefused

        @node.on_call("divide")
        async def divide(call: Call):
            if call.data["by"] == 0:
                raise CallRefused(64, "division by zero")
            return call.data["value"] / call.data["by"]
    """

    __slots__ = ()

    @property
    def headers(self) -> Mapping[str, Value]:
        """The caller's headers; empty if it sent none."""
        return self._call.headers

    @property
    def deadline(self) -> float | None:
        """When the caller stops waiting, in seconds of the event loop's clock, or None."""
        return self._call.deadline


CallHandler = Callable[[Call[Any]], Any]


class ReplyPort(Protocol):
    """Sends the replies to one event, in `format` by default."""

    format: FormatName

    @property
    def wanted(self) -> bool:
        """Whether the emitter waits for replies, or the dialect cannot tell."""

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send a reply, after waiting for capacity; raises PeerClosedError."""


class NamedEvent(Generic[D]):
    """A named event, as its handler receives it.

    `namespace` is empty if the event has none. A handler with the hint `NamedEvent[Order]` receives
    an Order as `data`. Its return value is the last reply.

    Example:

        from parley import NamedEvent

        @node.on("order")
        async def order(event: NamedEvent):
            await event.emit("progress", 0.5)
            return "accepted"
    """

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
        """The decoded payload; bytes if it has no format.

        Raises:
            FormatError: the payload is not valid in its format.
        """
        data: Any = self._payload.data
        return data if self._kind is None else self._kind.read(data)

    def hold_to(self, kind: DataType[D]) -> None:
        """Convert the data to `kind`; raise MalformedDataError if it doesn't match."""
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
        """The two payloads of a tandem.

        Raises:
            FormatError: the payload is not a tandem.
        """
        return self._payload.tandem

    @property
    def payload(self) -> Payload:
        """The undecoded payload, for example to forward it."""
        return self._payload

    @property
    def format(self) -> int | None:
        """The format ID of the payload (section 10); None for raw bytes."""
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
        """Send a reply, which can be followed by others; does nothing if the emitter doesn't wait.

        A native peer receives the name only if it differs from the event's.

        Raises:
            LocalProtocolError: the name or the namespace is not text, or too long.
            LbmEncodeError: the data cannot be encoded.
            FormatError: the data cannot be encoded in the format.
            PeerClosedError: the connection has ended.
        """
        check_names(name, namespace)
        if self._port.wanted:
            await self._port.reply(name, namespace, make_payload(data, format or self._port.format))
        else:
            await checkpoint()  # Allow an endless handler to be cancelled here.


EventHandler = Callable[[NamedEvent[Any]], Any]
