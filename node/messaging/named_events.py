"""Named events on one connection, in both directions: category 4 (section 10).

An event whose async id is not 0 gets exactly one End or Error, even if its handler fails.
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

# What may wait unread for one event of ours: bytes of cost (a reply and 64), and of memory.
REPLIES_SIZE: Final = 1 << 20
REPLIES_MEMORY: Final = 4 << 20
# A code of our own, which cannot come from the wire: more replies waited than that.
UNREAD: Final = -3


class Reply(Payload):
    """A reply to an event of ours. `name` and `namespace` are what it was called, each empty
    if there was none; `last` says that the handler is done."""

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
    """An event of ours whose replies are wanted. `on_done` is called for each reply as well;
    its final answer's `data` is the last reply, or None. What waits unread is charged to
    `account`; of its cost on the wire (a reply and 64) at most `REPLIES_SIZE` waits."""

    category: ClassVar[int] = NAMED
    __slots__ = ("_costs", "account", "cost", "replies")

    def __init__(self, on_done: Callable[[], None]) -> None:
        super().__init__(on_done)
        self.account = MemoryBudget(REPLIES_MEMORY)
        self.replies: deque[tuple[Any, int]] = deque()
        self.cost = 0
        self._costs: deque[int] = deque()

    def __del__(self) -> None:
        self.drop_replies()  # whoever left without a word

    def put(self, reply: Any, weight: int, size: int = 0) -> bool:
        """A reply of so many bytes of memory, and `size` on the wire, came; False if too many
        wait already."""
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
        """The next reply; raises IndexError if none waits."""
        reply, weight = self.replies.popleft()
        self.account.release(weight)
        self.cost -= self._costs.popleft()
        return reply

    def drop_replies(self) -> None:
        """Nobody reads what waits."""
        while self.replies:
            self.take()


def check_names(name: object, namespace: object) -> None:
    """What an event and its namespace are called is text.

    Raises:
        LocalProtocolError: it is not; what has no namespace has the empty one.
    """
    if not isinstance(name, str):
        raise LocalProtocolError(f"the name of an event is text, not {type(name).__name__}")
    if not isinstance(namespace, str):
        kind = type(namespace).__name__
        raise LocalProtocolError(f"a namespace is text, not {kind}; without one leave it empty")


NO_FIELDS: Final[dict[int, Any]] = {}


class IncomingEmit(IncomingCall):
    """An event of the peer, for its handler; `topic` is its name."""

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


# What `find` says of an event that nobody handles.
NO_HANDLER: Final = ResultCode.TOPIC_NOT_FOUND
ACCEPTED: Final = ResultCode.ACCEPTED  # members of enumerations are slow to look up


class EventRunner(Protocol):
    """Finds and runs the handlers of named events."""

    def find_event(self, namespace: str, name: str) -> object:
        """Return the entry of an event's handler, or the code of a refusal (`NO_HANDLER`: the
        event is ignored). `namespace` is empty for none."""

    def run_event(self, emit: IncomingEmit) -> None:
        """Start the handler of an event."""


class NamedEvents:
    """The named events of one connection. `ignored` counts those without a handler."""

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

    # Ours.

    def emit(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event on stream 1 to which no reply is wanted.

        Raises:
            LocalError: not open, or too large.
            LbmEncodeError, FormatError: the payload has no form in its format.
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
        """Send an event on stream 1; `emit` gets its replies. Raises as `emit`, and
        LimitReachedError if 65,535 requests wait already."""
        body = encode_event(payload, name, namespace)
        emit.account = MemoryBudget(REPLIES_MEMORY, self._connection.account)
        self._outgoing.ask(emit, NAMED, EMIT, body, now, clamp_timeout(timeout))

    def encode_reply(
        self, emit: IncomingCall, name: str, payload: Payload, namespace: str = ""
    ) -> bytes:
        """A reply to an event; the name goes with it if it is not that of the event.

        Raises:
            LbmEncodeError, FormatError: the payload has no form in its format.
        """
        return encode_event(payload, name if name and name != emit.topic else None, namespace)

    def reply(self, emit: IncomingCall, body: bytes) -> bool:
        """Reply to an event, before its last reply; False if its stream has no room now.

        Raises:
            LocalError: nobody waits for it, not open, or too large.
        """
        return bool(self._incoming.send_part(emit, NAMED, REPLY_EVENT, body))

    # From the connection. Each returns whether the cost of the event is kept for now.

    def emit_received(self, event: Event, now: float) -> bool:
        """Take an Emit: start its handler.

        Raises:
            RemoteProtocolError: as `IncomingCalls.require_free`.
        """
        stream, async_id, _, _, body, cost = event
        try:
            cells, weight = event_types.EMIT.read_weighed(body)
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
                entry = ACCEPTED  # an empty End
            self._refuse(stream, async_id, entry)
            return False
        weight += REQUEST_WEIGHT
        payload = Payload(*read_cells(cells))
        emit = IncomingEmit(name, namespace, payload, stream, async_id, weight, cost, entry, now)
        if not self._incoming.admit(emit):
            self._refuse(stream, async_id, ResultCode.OVERLOADED)
            return False
        self._runner.run_event(emit)
        return True

    def reply_received(self, event: Event, now: float) -> bool:
        """Take a Reply: it goes to the emission that waits for it."""
        emit = self._outgoing.get(event)
        if not isinstance(emit, OutgoingEmit) or emit.done:
            # What has enough replies, or was given up, may go on for a while.
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
        """Take an End: the last reply to an event of ours."""
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
        """Take an Error: the end of an event of ours."""
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

    # Inside.

    def _refuse(self, stream: int, async_id: int, code: ResultCode) -> None:
        if not async_id and not code:
            return  # counted as ignored already
        try:
            self._incoming.refuse(stream, async_id, code, encode_end)
        except LocalError:
            return  # the connection is closing


def encode_event(payload: Payload, name: str | None, namespace: str = "") -> bytes:
    """The payload of an Emit or, without a name if that is the event's own, of a Reply.

    Raises:
        LbmEncodeError, FormatError: its payload has no form in its format.
    """
    cells = payload.cells()
    # Keys that ascend are encoded in half the time.
    format_id = cells.pop(keys.FORMAT, None)
    if name is not None:
        cells[keys.NAME] = name
    if namespace:
        cells[keys.NAMESPACE] = namespace
    if format_id is not None:
        cells[keys.FORMAT] = format_id
    return encode(cells)


def read_reply(cells: dict[int, Any], *, last: bool = False) -> Reply:
    """What the cells of a Reply or End say."""
    name, namespace = cells.get(keys.NAME, ""), cells.get(keys.NAMESPACE, "")
    return Reply(*read_cells(cells), name, last, namespace)
