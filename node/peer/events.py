"""Runs an application's handlers for the named events of one peer (section 10).

One rule: an event whose emitter waits gets exactly one End or Error, whatever its
handler does. Knows the handlers and the peer; the core's rules are `NamedEvents`'.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from node.handlers.items import TURN_SIZE, run_items, send_items, send_part
from node.handlers.registry import Entry, Handlers
from node.handlers.running import Outcome, run_handler
from node.messaging.emits import IncomingEmit
from node.messaging.formats import FormatName
from node.messaging.named_events import NO_HANDLER
from node.messaging.payloads import Payload, make_payload
from node.protocol.codes import ResultCode
from node.protocol.errors import ConnectionClosedError, LocalProtocolError
from node.protocol.limits import EVENT_COST
from node.remote.named_event import NamedEvent
from node.transport.waiting import turn_of

if TYPE_CHECKING:
    from node.peer.peer import Peer

# What natively a handler's replies are in.
NATIVE_FORMAT: Final[FormatName] = "lbm"


class Eventing:
    """The handlers of named events, for one peer."""

    __slots__ = ("_handlers", "_peer")

    def __init__(self, peer: "Peer", handlers: Handlers) -> None:
        self._peer = peer
        self._handlers = handlers

    def find(self, namespace: str, name: str) -> ResultCode:
        """Whether an event may run, else the code that refuses it."""
        entry = self._handlers.find_event(namespace, name)
        if entry is None:
            return NO_HANDLER
        serving = self._peer.serving
        if not entry.takes(serving.supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        return ResultCode.OVERLOADED if serving.draining else ResultCode.ACCEPTED

    def run(self, emit: IncomingEmit) -> None:
        """Run the handler of an event that `find` let pass."""
        entry = self._handlers.find_event(emit.namespace, emit.topic)
        emit.runner = self._peer.backend.spawn(self._serve, entry, emit)

    async def _serve(self, entry: Entry[Any], emit: IncomingEmit) -> None:
        peer = self._peer
        emit.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NativeReplies(peer, emit)
        try:
            made = run_handler(
                entry,
                NamedEvent(peer, emit.topic, emit.namespace, emit.payload, port),
                peer,
                emit.topic,
                self._handlers.roles,
                port.send_all,
            )
            outcome = await peer.serving.room(emit, *await made)
        finally:
            # Also when it was cancelled: each event gets its one end.
            peer.serving.answer(emit, *outcome)


class NativeReplies:
    """Replies to one event of a native peer."""

    __slots__ = ("_emit", "_peer", "_said", "format")

    def __init__(self, peer: "Peer", emit: IncomingEmit) -> None:
        self._peer = peer
        self._emit = emit
        self._said = 0  # bytes of cost since others ran
        self.format: FormatName = NATIVE_FORMAT

    @property
    def wanted(self) -> bool:
        """Whether the emitter waits for replies."""
        return bool(self._emit.async_id) and not self._emit.answered

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send one, when there is room.

        Raises:
            PeerClosedError: the connection is over. PayloadTooLargeError: it is.
            LbmEncodeError, FormatError: it has no form in its format.
        """
        peer, named = self._peer, self._peer.calls.named
        body = named.encode_reply(self._emit, name, payload, namespace)
        try:
            await send_part(peer, self._emit, body, named.reply)
        except ConnectionClosedError as error:
            raise peer.closed_error() from error
        except LocalProtocolError:
            if self.wanted:
                raise
            # Nobody waits any more: nothing is lost.
        self._said += len(body) + EVENT_COST
        if self._said > TURN_SIZE:
            self._said = 0
            await turn_of(peer.backend)

    async def send_all(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Reply with each of what the handler yields."""
        named, emit = self._peer.calls.named, self._emit

        def encode_item(item: Any) -> bytes:
            return named.encode_reply(emit, "", make_payload(item, self.format))

        if emit.async_id:
            return await send_items(self._peer, emit, items, encode_item, named.reply)
        return await run_items(self._peer, items)
