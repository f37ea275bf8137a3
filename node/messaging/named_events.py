"""Named events over one connection, both ways: category 4 (section 10).

An event whose async id is not 0 gets exactly one End or Error, also when
nobody handles it; those without a handler are ignored and counted. A caller that waits
for a reply gets it; natively a reply that nobody waits for is ignored, since it has no name.
"""

from collections.abc import Callable
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.answering import Answering
from parley._node.messaging.asking import Asking
from parley._node.messaging.deadlines import within_reason
from parley._node.messaging.emits import REPLIES_MEMORY, UNREAD, IncomingEmit, OutgoingEmit, Reply
from parley._node.messaging.finals import named_final
from parley._node.messaging.payloads import Payload, read_cells
from parley._node.messaging.pending import IncomingCall
from parley._node.protocol import event_types
from parley._node.protocol.codes import EMIT, MAIN_STREAM, NAMED, REPLY_EVENT, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.memory_budget import REQUEST_WEIGHT, MemoryBudget
from parley._node.protocol.reports import EventReceived

# What `find` says of an event that nobody handles.
NO_HANDLER: Final = ResultCode.TOPIC_NOT_FOUND
ACCEPTED: Final = ResultCode.ACCEPTED  # members of enumerations are slow to look up


class NamedEvents:
    """The named events of one connection.

    `find` gives what an event of this namespace (empty for none) and name runs, or the code
    that refuses it (`NO_HANDLER`: it is ignored); `run` starts that, the event's `entry`.
    `ignored` counts events without a handler.
    """

    __slots__ = ("_answering", "_asking", "_connection", "_find", "_run", "ignored")

    def __init__(
        self,
        connection: Connection,
        asking: Asking,
        answering: Answering,
        find: Callable[[str, str], object],
        run: Callable[[IncomingEmit], None],
    ) -> None:
        self._connection = connection
        self._asking = asking
        self._answering = answering
        self._find = find
        self._run = run
        self.ignored = 0

    # Ours.

    def emit(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event on stream 1 to which no reply is wanted.

        Raises:
            LocalProtocolError: not open, or too large. LbmEncodeError, FormatError: the
                payload has no form in its format.
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
        LocalProtocolError if 65,535 requests wait already."""
        body = encode_event(payload, name, namespace)
        emit.account = MemoryBudget(REPLIES_MEMORY, self._connection.account)
        self._asking.ask(emit, NAMED, EMIT, body, now, within_reason(timeout))

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
            LocalProtocolError: nobody waits for it, not open, or too large.
        """
        return bool(self._answering.send_part(emit, NAMED, REPLY_EVENT, body))

    # From the connection. Each returns whether the cost of the event is kept for now.

    def emit_received(self, event: EventReceived, now: float) -> bool:
        """Take an Emit: start its handler.

        Raises:
            RemoteProtocolError: as `Answering.require_free`.
        """
        stream, async_id, _, _, body, cost = event
        try:
            cells, weight = event_types.EMIT.read_weighed(body)
        except LbmDecodeError:
            self._refuse(stream, async_id, ResultCode.MALFORMED)
            return False
        name = cells[keys.NAME]
        namespace = cells.get(keys.NAMESPACE, "")
        entry = self._find(namespace, name)
        if isinstance(entry, ResultCode) and entry:
            if entry == NO_HANDLER:
                self.ignored += 1
                self._connection.count_dropped(charged=False)
                entry = ACCEPTED  # an empty End
            self._refuse(stream, async_id, entry)
            return False
        weight += REQUEST_WEIGHT
        if not self._answering.has_room(weight):
            self._refuse(stream, async_id, ResultCode.OVERLOADED)
            return False
        payload = Payload(*read_cells(cells))
        emit = IncomingEmit(name, namespace, payload, stream, async_id, weight, cost, entry)
        emit.came = now
        self._answering.admit(emit)
        self._run(emit)
        return True

    def reply_received(self, event: EventReceived, now: float) -> bool:
        """Take a Reply: it goes to the emission that waits for it."""
        emit = self._asking.get(event)
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
            self._asking.give_up(emit)
            emit.code = UNREAD
            emit.on_done()
        return False

    def end_received(self, event: EventReceived, now: float) -> bool:
        """Take an End: the last reply to an event of ours."""
        emit = self._asking.final_received(event)
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

    def error_received(self, event: EventReceived, now: float) -> bool:
        """Take an Error: the end of an event of ours."""
        emit = self._asking.final_received(event)
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
            self._answering.refuse(stream, async_id, code, named_final)
        except LocalProtocolError:
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
