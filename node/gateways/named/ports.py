"""How events and replies are sent in the named events dialect.

A payload is sent as the crate bromine writes it, or is refused: MessagePack, JSON, raw bytes
and two payloads in tandem, but none of the native formats.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from parley._node.dialects.named.codec import BromineEvent, Flavour
from parley._node.dialects.named.core import NamedCore
from parley._node.dialects.named.replies import NamedReply
from parley._node.errors import PeerClosedError
from parley._node.gateways.guest import Guest
from parley._node.handlers.items import TURN_SIZE
from parley._node.handlers.running import Outcome
from parley._node.messaging.emits import OutgoingEmit
from parley._node.messaging.formats import Format, FormatError, FormatName
from parley._node.messaging.payloads import FormattedPayload, Payload, make_payload
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import ConnectionClosedError, PayloadTooLargeError
from parley._node.protocol.limits import EVENT_COST
from parley._node.transport.backend import Backend
from parley._node.transport.waiting import left_after, turn_of

_OURS: Final = frozenset({Format.LBM, Format.CBOR})


class NamedReplies:
    """Replies to one event of a peer, in `format` unless told."""

    __slots__ = ("_core", "_event", "_peer", "_said", "format")

    def __init__(
        self, peer: Guest, core: NamedCore, event: BromineEvent, format: FormatName
    ) -> None:
        self._peer = peer
        self._core = core
        self._event = event
        self._said = 0  # bytes since others ran: a handler that never waits must not hog the loop
        self.format: FormatName = format

    @property
    def wanted(self) -> bool:
        """Whether the connection is open; the dialect does not say whether the emitter waits."""
        return self._peer.is_open

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send a reply once there is room.

        Raises:
            PeerClosedError: the connection is over. PayloadTooLargeError: it is too long.
            LocalProtocolError: the name is too long. FormatError: the payload has no form in
                its format.
        """
        try:
            await self._send(name, namespace, on_wire(payload))
        except ConnectionClosedError as error:
            raise self._peer.closed_error() from error

    async def send_all(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Reply with each item that the handler yields."""
        async with aclosing(items):
            async for item in items:
                try:
                    await self._send("", "", on_wire(make_payload(item, self.format)))
                except PayloadTooLargeError:
                    return ResultCode.PAYLOAD_TOO_LARGE, None
                except ConnectionClosedError:
                    break  # nobody reads on
        return ResultCode.ACCEPTED, None

    async def _send(self, name: str, namespace: str, data: bytes) -> None:
        driver = self._peer.driver
        if not driver.has_room:
            await driver.room()
        self._core.reply(self._event, data, name, namespace)
        self._said += len(data) + EVENT_COST
        if self._said > TURN_SIZE:
            self._said = 0
            await turn_of(self._peer.backend)


class NamedEmitter:
    """The connection as `Emission` needs it."""

    __slots__ = ("_core", "_peer", "backend", "marks_end")

    def __init__(self, peer: Guest, core: NamedCore) -> None:
        self._peer = peer
        self._core = core
        self.backend: Backend = peer.backend
        self.marks_end = core.flavour is Flavour.TYPED

    @property
    def has_room(self) -> bool:
        """Whether an event can be sent without waiting."""
        return self._peer.driver.has_room

    async def room(self, timeout: float | None) -> float | None:
        """Wait while too much waits to be written; CallTimeout if it takes too long."""
        if self.has_room:
            return timeout
        return await left_after(self._peer.driver.room, timeout, self.backend.now)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._core.emit(name, on_wire(payload), namespace)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        now = self.backend.now()
        self._core.ask(emit, name, on_wire(payload), now, timeout, namespace)

    def leave(self, emit: OutgoingEmit) -> None:
        """Only its first reply was wanted: the others go to handlers."""
        self._core.leave(emit)
        self._peer.driver.settle()

    def give_up(self, emit: OutgoingEmit) -> None:
        """Its replies are not wanted any more; the dialect cannot say so."""
        self._core.give_up(emit)

    def closed_error(self) -> PeerClosedError:
        """The error for an event that came too late."""
        return self._peer.closed_error()


def on_wire(payload: Payload) -> bytes:
    """The bytes of a payload in this dialect: its format id, if it has one, then its data.

    Raises:
        FormatError: the crate has no such format, or a value has no form in it.
    """
    if payload.format is None or isinstance(payload, FormattedPayload | NamedReply):
        return payload.raw
    if payload.format in _OURS:
        raise FormatError(
            f"cannot send a payload of format {payload.format}: named events (bromine) support "
            "neither LBM nor CBOR; use msgpack, json or raw"
        )
    return bytes((payload.format,)) + payload.raw
