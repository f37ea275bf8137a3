"""Outgoing calls and subscriptions, and their responses (section 9).

They are sent on stream 1. A caller that stops waiting sends Cancel; the request ID stays in use
until the final response arrives.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, encode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._lbm.fields import MAX_UINT
from parley._node.data_types import Model, plain_cells
from parley._node.messaging.call_codec import decode_result, encode_call
from parley._node.messaging.deadline_queue import (
    LONGEST_TIMEOUT,
    NO_SLOT,
    DeadlineQueue,
    clamp_timeout,
)
from parley._node.messaging.topic_history import TopicPosition
from parley._node.protocol import event_types
from parley._node.protocol.codes import (
    CALL,
    CANCEL,
    LOST,
    MAIN_STREAM,
    SIM,
    STREAMED,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ResultCode,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import LocalError
from parley._node.protocol.event import Event
from parley._node.protocol.event_types import EPOCH_SIZE
from parley._node.protocol.flow_control import ReceiveWindow
from parley._node.protocol.limits import EVENT_COST, LARGEST_CREDIT
from parley._node.protocol.memory_budget import REPLY_WEIGHT, MemoryBudget
from parley._node.protocol.request_ids import OutgoingRequests


class ChunkInbox:
    """The unread Chunks of a call. `size` is the receive window, in bytes of cost.

    `on_chunk` is called for each Chunk that arrives, `grant` with credit for the peer. Unread
    Chunks are charged to `account`.
    """

    __slots__ = ("_account", "_grant", "_on_chunk", "_waiting", "_window")

    def __init__(
        self,
        size: int,
        on_chunk: Callable[[], None],
        grant: Callable[[int], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self._window = ReceiveWindow(size)
        self._waiting: deque[bytes] = deque()
        self._on_chunk = on_chunk
        self._grant = grant

    def __len__(self) -> int:
        return len(self._waiting)

    def __del__(self) -> None:
        self.clear()  # The answer stream may have been dropped without cancelling.

    def put(self, payload: bytes) -> bool:
        """Store a Chunk; False if the memory budget is exhausted.

        Raises:
            RemoteProtocolError: `protocol-error`, the peer had no credit for it.
        """
        self.drop(payload)
        if not self._account.has_room(len(payload) + REPLY_WEIGHT):
            return False
        self._account.charge(len(payload) + REPLY_WEIGHT)
        self._waiting.append(payload)
        self._on_chunk()
        return True

    def drop(self, payload: bytes) -> None:
        """Use up the credit of a Chunk that is discarded; raises as `put`."""
        self._window.take(len(payload) + EVENT_COST)

    def clear(self) -> None:
        """Discard all unread Chunks."""
        while self._waiting:
            self._account.release(len(self._waiting.popleft()) + REPLY_WEIGHT)

    def take(self) -> Value:
        """Return the item of the next Chunk.

        Raises:
            LbmDecodeError: the Chunk is malformed.
            IndexError: there are no unread Chunks.
        """
        payload = self._waiting.popleft()
        self._account.release(len(payload) + REPLY_WEIGHT)
        credit = self._window.consume(len(payload) + EVENT_COST, whole=True)
        if credit:
            self._grant(credit)
        item: Value = event_types.CHUNK.read(payload).get(keys.DATA)
        return item


NO_CELLS: Final[Mapping[int, Any]] = {}


class OutgoingCall:
    """An outgoing request. `code` and `data` are its response once it is `done`.

    `on_done` is called once: when the response has arrived, the deadline has passed (code 17) or
    the connection has ended (code `LOST`, with `close_code` and `close_text`). `on_final` is called
    with the code and stream (or 0) of the final response, even after the caller stopped waiting;
    `cells` are then the fields of a Result. `chunks` buffers a streamed response.
    """

    category: ClassVar[int] = SIM  # The category of its responses.

    __slots__ = (
        "async_id",
        "cells",
        "chunks",
        "close_code",
        "close_text",
        "code",
        "data",
        "done",
        "on_done",
        "on_final",
        "slot",
    )

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.on_done = on_done
        self.on_final: Callable[[int, int], None] | None = None
        self.cells: Mapping[int, Any] = NO_CELLS
        self.chunks: ChunkInbox | None = None
        self.async_id = 0
        self.slot: set[Any] = NO_SLOT
        self.done = False
        self.code = 0
        self.data: Any = None
        self.close_code = 0
        self.close_text = ""

    def finish(self, code: int, data: Any) -> None:
        """Set the response; later ones are ignored."""
        if not self.done:
            self.done = True
            self.code = code
            self.data = data
            self.on_done()


C = TypeVar("C", bound=OutgoingCall)


class OutgoingCalls:
    """The outgoing requests of one connection that have no final response yet."""

    __slots__ = ("_connection", "_deadlines", "waiting")

    def __init__(self, connection: Connection, deadlines: DeadlineQueue[Any]) -> None:
        self._connection = connection
        self.waiting: OutgoingRequests[OutgoingCall] = OutgoingRequests()
        self._deadlines = deadlines

    def __len__(self) -> int:
        return len(self.waiting)

    # Requests.

    def call(
        self,
        topic: str,
        data: Encodable | Model,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
        headers: Mapping[str, Encodable] | None = None,
        window: int | None = None,
        once: bytes | None = None,
    ) -> OutgoingCall:
        """Send a call on stream 1.

        `timeout` is in seconds from `now`; None or infinity means no deadline. `window` is the
        receive window of a streamed response in bytes, `once` an idempotency key.

        Raises:
            LocalError: the connection isn't open, the call is too large, or 65,535 requests are
                waiting.
            LbmEncodeError: `data` or `headers`, or a model in them, cannot be encoded.
            ValueError: `window` is not 1..2^31-1.
        """
        if timeout is not None and not (
            type(timeout) is float and 0.0 <= timeout <= LONGEST_TIMEOUT
        ):
            timeout = clamp_timeout(timeout)
        deadline_ms = None if timeout is None else max(1, int(timeout * 1000))
        if not headers and window is None and once is None:
            payload = encode_call(topic, data, deadline_ms)
            if payload is not None:
                return self.ask(OutgoingCall(on_done), SIM, CALL, payload, now, timeout)
        cells: dict[int, Any] = {keys.TOPIC: topic}
        if data is not None:
            cells[keys.DATA] = data
        if deadline_ms is not None:
            cells[keys.DEADLINE_MS] = deadline_ms
        if headers:
            cells[keys.HEADERS] = _require_headers(headers)
        if window is not None:
            cells[keys.WINDOW] = _require_window(window)
        if once is not None:
            cells[keys.ONCE_KEY] = once
        try:
            payload = encode(cells)
        except LbmEncodeError as error:
            payload = encode(plain_cells(cells, error))
        return self.ask(OutgoingCall(on_done), SIM, CALL, payload, now, timeout)

    def subscribe(
        self,
        topic: str,
        data: Encodable | Model,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
        window: int | None = None,
        after: TopicPosition | None = None,
    ) -> OutgoingCall:
        """Send a Subscribe for a topic's notes; raises as `call`.

        If the topic keeps a history, the notes begin `after` a position. The answer's `stream`
        carries them.
        """
        cells: dict[int, Any] = {keys.TOPIC: topic}
        if data is not None:
            cells[keys.DATA] = data
        if window is not None:
            cells[keys.WINDOW] = _require_window(window)
        if after is not None:
            cells[keys.TOPIC_EPOCH], cells[keys.NUMBER] = _require_position(after)
        try:
            payload = encode(cells)
        except LbmEncodeError as error:
            payload = encode(plain_cells(cells, error))
        timeout = clamp_timeout(timeout)
        return self.ask(OutgoingCall(on_done), SIM, SUBSCRIBE, payload, now, timeout)

    def unsubscribe(
        self, topic: str, now: float, timeout: float | None, on_done: Callable[[], None]
    ) -> OutgoingCall:
        """Send an Unsubscribe for a topic; raises as `call`."""
        payload = encode({keys.TOPIC: topic})
        timeout = clamp_timeout(timeout)
        return self.ask(OutgoingCall(on_done), SIM, UNSUBSCRIBE, payload, now, timeout)

    def ask(
        self,
        call: C,
        category: int,
        subcategory: int,
        payload: bytes,
        now: float,
        timeout: float | None,
    ) -> C:
        """Send a request of any kind on stream 1; `call` receives its answer.

        `timeout` is in seconds from `now`, already clamped, or None.

        Raises:
            LocalError: the connection isn't open, the request is too large, or 65,535 requests are
                waiting.
        """
        call.async_id = async_id = self.waiting.add(MAIN_STREAM, call)
        try:
            self._connection.send(MAIN_STREAM, async_id, category, subcategory, payload)
        except LocalError:
            self.waiting.pop(MAIN_STREAM, async_id)
            raise
        if timeout is not None:
            call.slot = self._deadlines.add(call, now + timeout)
        return call

    def stop_waiting(self, call: OutgoingCall) -> None:
        """Ignore further answers to `call` without cancelling; its ID stays in use until the final
        answer.
        """
        call.done = True
        call.slot.discard(call)

    def cancel(self, call: OutgoingCall) -> None:
        """Stop waiting for `call` and send Cancel; its ID stays in use until the final answer."""
        if call.done:
            return
        call.done = True
        call.slot.discard(call)
        self._send_cancel(call)

    # Called by the connection.

    def get(self, event: Event) -> OutgoingCall | None:
        """Return the request that an event answers, if it has no final answer yet."""
        return self.waiting.get(event.stream, event.async_id)

    def final_received(self, event: Event) -> OutgoingCall | None:
        """Return the request that an event finally answers, and free its ID.

        Returns None, and counts the event as dropped, if there is no such request. Also returns
        None if the event answers another kind of request; the answer then counts as malformed.
        """
        call = self.waiting.by_id.pop(event.stream << 16 | event.async_id, None)
        if call is None:
            self._connection.count_dropped()
            return None
        call.slot.discard(call)
        if call.category != event.category:
            if call.on_final is not None:
                call.on_final(ResultCode.MALFORMED, 0)
            call.finish(ResultCode.MALFORMED, None)
            return None
        return call

    def result_received(self, event: Event, now: float) -> bool:
        """Process a Result, the final answer to an outgoing request."""
        call = self.final_received(event)
        if call is None:
            return False
        payload = event.payload
        try:
            cells = decode_result(payload) or event_types.RESULT.read(payload)
        except LbmDecodeError:
            cells = {keys.CODE: ResultCode.MALFORMED}
        code = cells[keys.CODE]
        if call.on_final is not None:
            call.cells = cells
            call.on_final(code, cells.get(keys.STREAM, 0))
        call.finish(code, cells.get(keys.DATA))
        return False

    def chunk_received(self, event: Event, now: float) -> bool:
        """Process a Chunk of an answer.

        The credit of a request is valid until its final answer, even if the caller stopped waiting
        or expects no Chunks.

        Raises:
            RemoteProtocolError: `protocol-error`, the peer had no credit for it.
        """
        call = self.waiting.get(event.stream, event.async_id)
        if call is None or call.category != SIM:
            self._connection.count_dropped()
            return False
        payload = event.payload
        if call.done:
            self._chunks_of(call).drop(payload)
            self._connection.count_dropped(charged=False)
        elif call.chunks is None:
            self._chunks_of(call).drop(payload)
            self._refuse_chunks(call, STREAMED)
        elif not call.chunks.put(payload):
            self._refuse_chunks(call, ResultCode.OVERLOADED)
        return False

    def expire(self, call: OutgoingCall) -> None:
        """Cancel and finish a request whose deadline has passed."""
        if not call.done:
            self._send_cancel(call)
            call.finish(ResultCode.DEADLINE_EXCEEDED, None)

    def connection_ended(self, code: int, text: str) -> None:
        """Finish all waiting requests with `LOST`."""
        for call in self.waiting.end_all():
            call.close_code = code
            call.close_text = text
            call.finish(LOST, None)

    def _chunks_of(self, call: OutgoingCall) -> ChunkInbox:
        """Return the inbox of a call, which has credit even if its Chunks are not read."""
        if call.chunks is None:
            connection = self._connection
            size = connection.limits.stream_window
            call.chunks = ChunkInbox(size, _ignore, _ignore, connection.account)
        return call.chunks

    def _refuse_chunks(self, call: OutgoingCall, code: int) -> None:
        call.slot.discard(call)
        self._send_cancel(call)
        call.finish(code, None)

    def _send_cancel(self, call: OutgoingCall) -> None:
        try:
            payload = encode({keys.REQUEST: call.async_id})
            self._connection.send(MAIN_STREAM, 0, SIM, CANCEL, payload)
        except LocalError:
            return  # The connection is closing, so Cancel is not needed.


def _ignore(credit: int = 0) -> None:
    """Grant no credit and wake no reader, because the Chunks of the call are dropped."""


def _require_window(window: int) -> int:
    if type(window) is not int or not 1 <= window <= LARGEST_CREDIT:
        raise ValueError(f"invalid window {window!r}: expected 1 to {LARGEST_CREDIT} bytes")
    return window


def _require_headers(headers: Any) -> Mapping[str, Encodable]:
    if not isinstance(headers, Mapping) or not all(type(name) is str for name in headers):
        raise LbmEncodeError(f"cannot send headers {headers!r}: they must be a map with text keys")
    plain: Mapping[str, Encodable] = headers
    return plain


def _require_position(after: Any) -> TopicPosition:
    if isinstance(after, tuple) and len(after) == len(TopicPosition._fields):
        epoch, number = after
        right = isinstance(epoch, bytes) and len(epoch) == EPOCH_SIZE and type(number) is int
        if right and 0 <= number <= MAX_UINT:
            return TopicPosition(epoch, number)
    raise ValueError(
        f"invalid after {after!r}: expected a TopicPosition with an epoch of {EPOCH_SIZE} bytes "
        "and a number from 0 on"
    )
