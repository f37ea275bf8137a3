"""Named events on one connection, in both directions: category 4 (section 10).

An event with a request ID gets exactly one End or Error, even if its handler fails.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.call_codec import encode_end
from parley._node.messaging.deadline_queue import clamp_timeout
from parley._node.messaging.incoming_calls import IncomingCall, IncomingCalls
from parley._node.messaging.outgoing_calls import OutgoingCall, OutgoingCalls
from parley._node.messaging.payloads import Payload, read_cells
from parley._node.protocol import event_types
from parley._node.protocol.codes import EMIT, MAIN_STREAM, NAMED, REPLY_EVENT, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import LocalError, LocalProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import REPLY_WEIGHT, REQUEST_WEIGHT, MemoryBudget

# Limits for the unread replies to one event: bytes of cost (a reply and 64), and of memory.
REPLIES_SIZE: Final = 1 << 20
REPLIES_MEMORY: Final = 4 << 20
# A local code, never sent: too many replies are unread.
UNREAD: Final = -3


class Reply(Payload):
    """A reply to an emitted event.

    Attributes: name: the name of the reply; empty if it has none. namespace: the namespace of the
    reply; empty if it has none. last: whether the handler has finished.

    Example:

        from parley import Identity, Node

        async with Node(Identity.create()) as server:
            @server.on("price")
            async def price(event):
                return 42

            peer = await node.connect(await server.listen("tcp://127.0.0.1:0"))
            reply = await peer.emit("price", "ACME").reply()
            assert reply.data == 42
    """

    __slots__ = ("last", "name", "namespace")

    def __init__(
        self,
        raw: bytes | None,
        format_id: int | None,
        data: Encodable = None,
        name: str = "",
        last: bool = False,
        namespace: str = "",
    ) -> None:
        super().__init__(raw, format_id, data)
        self.name = name
        self.namespace = namespace
        self.last = last

    def __repr__(self) -> str:
        return f"<Reply {self.name!r}{', the last' if self.last else ''}>"


class OutgoingEmit(OutgoingCall):
    """An outgoing event that expects replies.

    `on_done` is also called for each reply. The `data` of its final answer is the last reply, or
    None. Unread replies are charged to `account`; their cost on the wire (a reply and 64 bytes) is
    limited to `REPLIES_SIZE`.
    """

    category: ClassVar[int] = NAMED
    __slots__ = ("_costs", "account", "cost", "replies")

    def __init__(self, on_done: Callable[[], None]) -> None:
        super().__init__(on_done)
        self.account = MemoryBudget(REPLIES_MEMORY)
        self.replies: deque[tuple[Any, int]] = deque()
        self.cost = 0
        self._costs: deque[int] = deque()

    def __del__(self) -> None:
        self.drop_replies()  # The emitter may have been dropped without cancelling.

    def put(self, reply: Any, weight: int, size: int = 0) -> bool:
        """Store a reply of `weight` bytes of memory and `size` bytes on the wire; False at the
        limit.
        """
        weight, cost = weight + REPLY_WEIGHT, size + EVENT_COST
        if self.cost + cost > REPLIES_SIZE or not self.account.has_room(weight):
            return False
        self.cost += cost
        self._costs.append(cost)
        self.account.charge(weight)
        self.replies.append((reply, weight))
        self.on_done()
        return True

    def take(self) -> Any:
        """Return the next reply; raise IndexError if there is none."""
        reply, weight = self.replies.popleft()
        self.account.release(weight)
        self.cost -= self._costs.popleft()
        return reply

    def drop_replies(self) -> None:
        """Discard unread replies."""
        while self.replies:
            self.take()


def check_names(name: object, namespace: object) -> None:
    """Check that the name of an event and its namespace are text.

    Raises:
        LocalProtocolError: one of them isn't.
    """
    if not isinstance(name, str):
        raise LocalProtocolError(f"invalid event name {name!r}: expected text")
    if not isinstance(namespace, str):
        raise LocalProtocolError(
            f"invalid namespace {namespace!r}: expected text; leave it out if there is none"
        )


NO_FIELDS: Final[dict[int, Any]] = {}


class IncomingEmit(IncomingCall):
    """An incoming event, for its handler; `topic` is its name."""

    category: ClassVar[int] = NAMED
    __slots__ = ("namespace", "payload")

    def __init__(
        self,
        name: str,
        namespace: str,
        payload: Payload,
        stream: int,
        async_id: int,
        weight: int,
        cost: int,
        entry: Any = None,
        came: float = 0.0,
    ) -> None:
        super().__init__(EMIT, name, NO_FIELDS, stream, async_id, weight, cost, entry, came)
        self.namespace = namespace
        self.payload = payload


# Returned by `find_event` if an event has no handler.
NO_HANDLER: Final = ResultCode.TOPIC_NOT_FOUND
ACCEPTED: Final = ResultCode.ACCEPTED  # Enumeration members are slow to look up.


class EventRunner(Protocol):
    """Finds and runs the handlers of named events."""

    def find_event(self, namespace: str, name: str) -> object:
        """Return the entry of an event's handler, or a code that refuses the event.

        With `NO_HANDLER`, the event is ignored. `namespace` is empty if the event has none.
        """

    def run_event(self, emit: IncomingEmit) -> None:
        """Start the handler of an event."""


class NamedEvents:
    """The named events of one connection. `ignored` counts events without a handler."""

    __slots__ = ("_connection", "_incoming", "_outgoing", "_runner", "ignored")

    def __init__(
        self,
        connection: Connection,
        outgoing: OutgoingCalls,
        incoming: IncomingCalls,
        runner: EventRunner,
    ) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming
        self._runner = runner
        self.ignored = 0

    # Outgoing events.

    def emit(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event on stream 1 without waiting for replies.

        Raises:
            LocalError: the connection isn't open, or the event is too large.
            LbmEncodeError: the payload cannot be encoded.
            FormatError: the payload cannot be encoded in its format.
        """
        body = encode_event(payload, name, namespace)
        self._connection.send(MAIN_STREAM, 0, NAMED, EMIT, body)

    def ask(
        self,
        emit: OutgoingEmit,
        name: str,
        namespace: str,
        payload: Payload,
        now: float,
        timeout: float | None,
    ) -> None:
        """Send an event on stream 1; `emit` receives its replies.

        Raises:
            LimitReachedError: 65,535 requests are already waiting; other errors are those of
                `emit`.
        """
        body = encode_event(payload, name, namespace)
        emit.account = MemoryBudget(REPLIES_MEMORY, self._connection.account)
        self._outgoing.ask(emit, NAMED, EMIT, body, now, clamp_timeout(timeout))

    def encode_reply(
        self, emit: IncomingCall, name: str, payload: Payload, namespace: str = ""
    ) -> bytes:
        """Encode a reply to an event; its name is included only if it differs from the event's
        name.

        Raises:
            LbmEncodeError: the payload cannot be encoded.
            FormatError: the payload cannot be encoded in its format.
        """
        return encode_event(payload, name if name and name != emit.topic else None, namespace)

    def reply(self, emit: IncomingCall, body: bytes) -> bool:
        """Send a reply that isn't the last one; False if its stream has no capacity now.

        Raises:
            LocalError: the emitter no longer waits, the connection isn't open, or the reply is too
                large.
        """
        return bool(self._incoming.send_part(emit, NAMED, REPLY_EVENT, body))

    # Called by the connection. Each returns whether the cost of the event stays charged.

    def emit_received(self, event: Event, now: float) -> bool:
        """Process an Emit and start its handler.

        Raises:
            RemoteProtocolError: for the reasons that `IncomingCalls.require_free` documents.
        """
        stream, async_id = event.stream, event.async_id
        try:
            cells, weight = event_types.EMIT.read_weighed(event.payload)
        except LbmDecodeError:
            self._refuse(stream, async_id, ResultCode.MALFORMED)
            return False
        name = cells[keys.NAME]
        namespace = cells.get(keys.NAMESPACE, "")
        entry = self._runner.find_event(namespace, name)
        if isinstance(entry, ResultCode) and entry:
            if entry == NO_HANDLER:
                self.ignored += 1
                self._connection.count_dropped(charged=False)
                entry = ACCEPTED  # Answer with an empty End.
            self._refuse(stream, async_id, entry)
            return False
        weight += REQUEST_WEIGHT
        payload = Payload(*read_cells(cells))
        emit = IncomingEmit(
            name, namespace, payload, stream, async_id, weight, event.cost, entry, now
        )
        if not self._incoming.admit(emit):
            self._refuse(stream, async_id, ResultCode.OVERLOADED)
            return False
        self._runner.run_event(emit)
        return True

    def reply_received(self, event: Event, now: float) -> bool:
        """Process a Reply and pass it to the waiting emission."""
        emit = self._outgoing.get(event)
        if not isinstance(emit, OutgoingEmit) or emit.done:
            # Replies can continue to arrive after an emission was cancelled or has enough of them.
            self._connection.count_dropped(charged=emit is None)
            return False
        try:
            cells, weight = event_types.REPLY.read_weighed(event.payload)
        except LbmDecodeError:
            self._connection.count_dropped()
            return False
        if not emit.put(read_reply(cells), weight, len(event.payload)):
            self._outgoing.cancel(emit)
            emit.code = UNREAD
            emit.on_done()
        return False

    def end_received(self, event: Event, now: float) -> bool:
        """Process an End, the last reply to an outgoing event."""
        emit = self._outgoing.final_received(event)
        if emit is None:
            return False
        code, reply = ACCEPTED, None
        try:
            cells = event_types.END.read(event.payload)
            if keys.DATA in cells or keys.FORMAT in cells:
                reply = read_reply(cells, last=True)
        except LbmDecodeError:
            code = ResultCode.MALFORMED
        emit.finish(code, reply)
        return False

    def error_received(self, event: Event, now: float) -> bool:
        """Process an Error, which ends an outgoing event."""
        emit = self._outgoing.final_received(event)
        if emit is None:
            return False
        text: Value = None
        try:
            cells = event_types.ERROR.read(event.payload)
            code, text = cells[keys.CODE], cells.get(keys.TEXT, "")
        except LbmDecodeError:
            code = ResultCode.MALFORMED
        emit.finish(code, text)
        return False

    def _refuse(self, stream: int, async_id: int, code: ResultCode) -> None:
        if not async_id and not code:
            return  # It was already counted as ignored.
        try:
            self._incoming.refuse(stream, async_id, code, encode_end)
        except LocalError:
            return  # The connection is closing.


def encode_event(payload: Payload, name: str | None, namespace: str = "") -> bytes:
    """Encode the payload of an Emit, or of a Reply (without a name if it is the event's own).

    Raises:
        LbmEncodeError: the payload cannot be encoded.
        FormatError: the payload cannot be encoded in its format.
    """
    cells = payload.cells()
    # Encoding takes half the time if the keys are in ascending order.
    format_id = cells.pop(keys.FORMAT, None)
    if name is not None:
        cells[keys.NAME] = name
    if namespace:
        cells[keys.NAMESPACE] = namespace
    if format_id is not None:
        cells[keys.FORMAT] = format_id
    return encode(cells)


def read_reply(cells: dict[int, Any], *, last: bool = False) -> Reply:
    """Make a Reply from the cells of a Reply or End event."""
    name, namespace = cells.get(keys.NAME, ""), cells.get(keys.NAMESPACE, "")
    return Reply(*read_cells(cells), name, last, namespace)
