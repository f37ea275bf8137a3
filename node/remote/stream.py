"""Streams of a connection: bytes in both directions, and typed events, some of them requests.

When a stream ends, all operations that wait on it fail immediately with its code.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

import anyio
from anyio.abc import ByteStream

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, decode
from parley._node.errors import PeerClosedError, StreamResetError, received_refusal
from parley._node.messaging.application_events import (
    APPLICATION,
    Carries,
    IncomingRequest,
    StreamRequests,
)
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError, LocalError, LocalProtocolError
from parley._node.protocol.event import Event
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.conditions import Condition, wait_within
from parley._node.transport.loop import Waiter

# The largest Data event, so that all streams get their turn (section 8); one flush sends this much.
# Small pieces are joined up to this size. Its frame fits into one Data of a tunnel.
LARGEST_PIECE: Final = 64 * 1024
DEFAULT_TIMEOUT = 30.0  # The default timeout of a request, in seconds.


T = TypeVar("T")

# How many reads are done before other tasks run, because one item can be read in many pieces.
READS_PER_TURN: Final = 64


class ReceiveQueue(Generic[T]):
    """Received bytes or events for one reader. `end` is raised after the last one; None while more
    may come.

    Credit goes back to the sender only when the reader takes items, so that a slow reader slows
    only its own sender.
    """

    __slots__ = ("_guard", "_live", "_reader", "_reads", "_stream", "end", "items")

    def __init__(self, live: LiveConnection, stream: int) -> None:
        self._live = live
        self._stream = stream
        self.items: deque[tuple[T, int]] = deque()
        self._guard = anyio.ResourceGuard("receiving from")
        self._reader: Waiter | None = None
        self._reads = 0  # Since other tasks last ran.
        self.end: Exception | type[Exception] | None = None

    def __len__(self) -> int:
        return len(self.items)

    # Used by the reader.

    async def first(self) -> T:
        """Wait for the first item, which stays in the queue until `take`.

        Raises:
            BusyResourceError: another task is waiting; after the last item, `end` is raised.
        """
        with self._guard:
            if self.items and self._reads < READS_PER_TURN:
                self._reads += 1
                await anyio.lowlevel.checkpoint_if_cancelled()
            else:
                if self.items or self.end is not None:
                    await anyio.lowlevel.checkpoint()
                self._reads = 0
            while not self.items:
                if self.end is not None:
                    raise self.end
                self._reader = self._live.backend.waiter()
                try:
                    await self._reader
                finally:
                    self._reader = None
            return self.items[0][0]

    def take(self) -> None:
        """Remove the first item and give its credit back."""
        _, cost = self.items.popleft()
        self._live.core.consume(self._stream, cost)

    def take_all(self) -> list[tuple[T, int]]:
        """Remove all items with their costs, without giving credit back."""
        items = list(self.items)
        self.items.clear()
        return items

    # Used by the stream.

    def put(self, item: T, cost: int) -> None:
        self.items.append((item, cost))
        self._wake()

    def finish(self, end: Exception | type[Exception], *, drop: bool) -> None:
        """Accept no more items; the first `end` stays unless this one discards the items."""
        if drop:
            for _, cost in self.items:
                self._live.core.consume(self._stream, cost)
            self.items.clear()
        if drop or self.end is None:
            self.end = end
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()


# How many events of a stream can be queued before its senders wait. More are allowed if they are
# small, because an iteration of the event loop costs as much as sending several. (With 4 at a time,
# 64 concurrent requests reach only 4,200/s.)
WAITING_EVENTS = 4
WAITING_SMALL_EVENTS = 64
SMALL_EVENTS_SIZE = 32 * 1024
# How many events of a stream are sent before other tasks run. Otherwise a peer with a large window
# that reads fast enough would block the event loop.
EVENTS_PER_TURN = 16


class SendLimiter:
    """Limits the queue of one stream: senders wait in order, and add the size of what they sent to
    `queued`.

    `check` raises an exception if the stream has ended.
    """

    __slots__ = ("_check", "_live", "_since", "_stream", "_turn", "_writer", "queued")

    def __init__(self, live: LiveConnection, stream: int, check: Callable[[], None]) -> None:
        self._live = live
        self._stream = stream
        self._check = check
        self.queued = 0  # Bytes since the queue was empty.
        self._since = 0  # Events since other tasks last ran.
        # Made by the first sender that waits: streams are opened in callbacks of the event loop,
        # where anyio does not know which loop is running.
        self._turn: anyio.Lock | None = None
        self._writer: Waiter | None = None

    @property
    def is_free(self) -> bool:
        return (self._turn is None or not self._turn.locked()) and self._has_room()

    @property
    def has_waiting(self) -> bool:
        return self._turn is not None and self._turn.locked()

    async def wait(self) -> None:
        """Wait until one event can be queued; raises the exceptions of `check`."""
        self._since += 1
        if self._since > EVENTS_PER_TURN:
            self._since = 0
            await anyio.lowlevel.checkpoint()
        if self.is_free:
            self._check()
            return
        core = self._live.core
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            while True:
                self._check()
                if self._has_room():
                    return
                self._writer = waiter = self._live.backend.waiter()
                try:
                    if self._is_clear():
                        await self._live.driver.write_waiters.wait(waiter)
                    else:
                        core.notify_writable(self._stream, credit=True)
                        await waiter
                except LocalError as error:
                    raise self._live.closed_error() from error
                finally:
                    self._writer = None

    def changed(self) -> None:
        """Wake a sender, because there may be capacity or the stream has ended."""
        if self._writer is not None:
            self._writer.wake()

    def _is_clear(self) -> bool:
        """Whether an event of the stream would wait only for the transport."""
        core = self._live.core
        return not core.outbox.waiting(self._stream) and core.has_credit(self._stream)

    def _has_room(self) -> bool:
        core, driver = self._live.core, self._live.driver
        waiting = core.outbox.waiting(self._stream)
        if not waiting:
            self.queued = 0
        if core.queued_bytes > driver.high_water:
            # Streams without credit must not accumulate queued data, however many there are.
            return self._is_clear() and driver.can_send
        if waiting < WAITING_EVENTS:
            return True
        return waiting < WAITING_SMALL_EVENTS and self.queued < SMALL_EVENTS_SIZE


class StreamEvent:
    """An event on a stream, of category 64 to 255 (6 on a bus stream).

    `payload` is its bytes; `async_id` is 0 unless it is a request or a response.

    Example:

        @node.on_stream("jobs")
        async def jobs(stream):
            async for event in stream.events():
                if event.wants_answer:
                    await event.answer(2, {"echo": event.data})
    """

    __slots__ = (
        "_cells",
        "_changes",
        "_request",
        "async_id",
        "category",
        "payload",
        "stream",
        "subcategory",
    )

    def __init__(
        self, stream: "Stream", event: Event, request: IncomingRequest | None = None
    ) -> None:
        self.stream = stream
        self.category = event.category
        self.subcategory = event.subcategory
        self.payload = event.payload
        self.async_id = event.async_id
        self._request = request
        self._cells: Mapping[int, Value] | None = None
        self._changes: Condition | None = None

    def __repr__(self) -> str:
        number = f" #{self.async_id}" if self.async_id else ""
        size = len(self.payload)
        return f"<StreamEvent {self.category}/{self.subcategory}{number}, {size} bytes>"

    @property
    def cells(self) -> Mapping[int, Value]:
        """The payload decoded as a map; empty without a payload. Raises LbmDecodeError."""
        if self._cells is None:
            self._cells = decode(self.payload) if self.payload else {}
        return self._cells

    @property
    def data(self) -> Value:
        """The `data` given to `send_event` or `answer`; raises LbmDecodeError."""
        return self.cells.get(keys.DATA)

    @property
    def wants_answer(self) -> bool:
        """Whether it is a request without an answer."""
        return self._request is not None and not self._request.answered

    @property
    def cancelled(self) -> bool:
        """Whether the sender no longer waits, because it sent Cancel or the stream has ended.

        A cancelled request must still be answered, because its request ID is in use until then.
        """
        return self._request is not None and self._request.cancelled

    async def wait_cancelled(self) -> None:
        """Wait until the request is cancelled or answered."""
        await anyio.lowlevel.checkpoint()
        request = self._request
        if request is not None and not request.over:
            if self._changes is None:
                self._changes = Condition(self.stream.live.backend.waiter)
                request.on_over = self._changes.notify
            await self._changes.until(lambda: request.over)

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the request is cancelled, or now if it already is or isn't a
        request.

        It is called once. This is an alternative to `wait_cancelled` that needs no task.
        """
        request = self._request
        if request is None or request.over:
            callback()
        else:
            request.on_over = lambda: callback() if request.cancelled else None

    async def answer(
        self,
        subcategory: int,
        data: Encodable = None,
        *,
        category: int | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Answer the request with an event of a type that the peer declared as an answer.

        `category` defaults to the category of the request. Other arguments and errors are those of
        `Stream.send_event`; after an error, the request can still be answered.

        Raises:
            LocalProtocolError: the event isn't a request, or was already answered.
        """
        if self._request is None:
            raise LocalProtocolError(
                f"cannot answer the event {self.category}/{self.subcategory}: it is not a request"
            )
        if category is None:
            category = self.category
        await self.stream.send_answer(self._request, category, subcategory, data, payload)


class StreamEvents:
    """Iterates over the events of a stream."""

    __slots__ = ("_receive",)

    def __init__(self, receive: Callable[[], Awaitable[StreamEvent]]) -> None:
        self._receive = receive

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        try:
            return await self._receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class Stream(ByteStream):
    """A bidirectional stream to a peer, for bytes and typed events.

    Leaving its `async with` block finishes the sending direction; leaving it with an exception
    resets both directions. `label` is the purpose of the stream; `answers` are the types of the
    peer's events that answer requests. One task at a time can receive bytes, send bytes, and
    receive events; any number of tasks can send events, requests and answers.

    Example:

        async with peer.open_stream("upload") as stream:
            await stream.send(b"first part")
            await stream.send(b"second part")
    """

    def __init__(
        self,
        live: LiveConnection,
        requests: StreamRequests,
        on_over: Callable[["Stream"], None],
        stream_id: int,
        label: str,
        answers: frozenset[tuple[int, int]] = frozenset(),
        carries: Carries = APPLICATION,
    ) -> None:
        """`on_over` is called when no more data can arrive."""
        self.live = live
        self.peer = live.remote
        self._requests = requests
        self._on_over = on_over
        self.id = stream_id
        self.label = label
        self.answers = answers
        self.carries = carries
        self._largest = live.limits.max_payload  # The largest payload of an event, in bytes.
        self._bytes: ReceiveQueue[bytes] = ReceiveQueue(live, stream_id)
        self._events: ReceiveQueue[StreamEvent] = ReceiveQueue(live, stream_id)
        self._position = 0  # How many of the first bytes were already read.
        self._eof = False
        self._finished = False
        self._closed = False
        self._error: StreamResetError | PeerClosedError | None = None
        self._sending = anyio.ResourceGuard("sending to")
        self._room = SendLimiter(live, stream_id, self._require_sendable)

    @property
    def has_ended(self) -> bool:
        """Whether no more data arrives: the peer finished the stream, or it was reset or closed."""
        return self._eof or self._closed or self._error is not None

    # Bytes.

    async def receive(self, max_bytes: int = LARGEST_PIECE) -> bytes:
        """Return 1 to `max_bytes` bytes.

        Raises:
            EndOfStream: the peer has finished sending.
            StreamResetError: the stream was reset.
            PeerClosedError: the connection has ended.
            ClosedResourceError: the stream was closed on this side.
            BusyResourceError: another task is receiving.
            ValueError: `max_bytes` is below 1.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it must be at least 1")
        data = await self._bytes.first()
        start = self._position
        piece = data[start : start + max_bytes] if start or len(data) > max_bytes else data
        self._position = start + len(piece)
        if self._position == len(data):
            self._position = 0
            self._bytes.take()
            self._forget_if_over()
        return piece

    async def send(self, item: bytes | bytearray | memoryview) -> None:
        """Queue all of `item`, waiting while the queue is full.

        Raises:
            StreamResetError: the stream was reset before all of it was sent.
            PeerClosedError: the connection ended before all of it was sent.
            ClosedResourceError: the sending direction is finished.
            BusyResourceError: another task is sending.
        """
        with self._sending:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._require_sendable()
            # Pieces of immutable data are not copied before encryption.
            whole = item if type(item) is bytes else bytes(memoryview(item))
            size = min(LARGEST_PIECE, self._largest)
            if len(whole) <= size:
                if whole:
                    await self._send_piece(whole, size)
                return
            view = memoryview(whole)
            try:
                for start in range(0, len(view), size):
                    await self._send_piece(view[start : start + size], size)
            finally:
                # After this call, queued pieces must not keep all of `item` in memory; with many
                # streams, this uncounted memory would accumulate.
                self.live.core.outbox.own(self.id)

    # Events.

    def events(self) -> StreamEvents:
        """Iterate over the events; raises the exceptions of `receive_event`."""
        return StreamEvents(self.receive_event)

    async def receive_event(self) -> StreamEvent:
        """Return the next event that isn't an answer; raises the exceptions of `receive`.

        Events arrive in order, and so do bytes, but there is no order between events and bytes.
        """
        event = await self._events.first()
        self._events.take()
        self._forget_if_over()
        return event

    async def send_event(
        self,
        category: int,
        subcategory: int,
        data: Encodable = None,
        *,
        payload: bytes | None = None,
    ) -> None:
        """Send an event of category 64 to 255 and subcategory 1 to 255.

        It carries `data` (any LBM value), a `payload` in any format, or neither. Waits while the
        queue is full. If an exception is raised, the event was not sent.

        Raises:
            ValueError: the type is invalid, or both data and payload are given.
            LbmEncodeError: `data` cannot be encoded.
            PayloadTooLargeError: the payload exceeds `limits.max_payload`.
            LocalProtocolError: the payload is the single byte 0x00.
            StreamResetError: the stream was reset.
            PeerClosedError: the connection has ended.
            ClosedResourceError: the sending direction is finished.
        """
        body, lbm = self.carries.encode(category, subcategory, data, payload, self._largest)
        await anyio.lowlevel.checkpoint_if_cancelled()
        await self._room.wait()
        self._queue(self.live.core.send, 0, category, subcategory, body, lbm=lbm)
        self._room.queued += len(body)

    async def request(
        self,
        category: int,
        subcategory: int,
        data: Encodable = None,
        *,
        payload: bytes | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        unwanted: Callable[[bytes], None] | None = None,
    ) -> StreamEvent:
        """Send an event and return the event that answers it, of a type in `answers`.

        `timeout` is in seconds, in total; None waits while the stream is open. A request that times
        out or is cancelled sends Cancel; `unwanted` is called with the payload of an answer that
        arrives later.

        Raises:
            CallTimeout: no answer arrived in time.
            EndOfStream: the peer finished without answering.
            StreamResetError: the stream was reset.
            PeerClosedError: the connection has ended.
            LimitReachedError: 65,535 requests are waiting.
            LocalProtocolError: the stream was opened without `answers`; other errors are those of
                `send_event`.
        """
        body, lbm = self.carries.encode(category, subcategory, data, payload, self._largest)
        if not self.answers:
            raise LocalProtocolError(
                f"cannot send a request on the stream {self.label!r}: it was opened without "
                "answers; open it with answers="
            )
        if not self._room.is_free:
            timeout = await wait_within(self._room.wait, timeout, self.live.backend.now)
        self._require_sendable()
        if self._eof:
            raise self._unanswered()
        requests, backend = self._requests, self.live.backend
        waiter = backend.waiter()
        try:
            request = requests.ask(
                self.id, category, subcategory, body, lbm, backend.now(), timeout, waiter.wake
            )
        except ConnectionClosedError as error:
            raise self.live.closed_error() from error
        self._room.queued += len(body)
        try:
            await waiter
        except BaseException:
            requests.cancel(request, unwanted)
            raise
        if request.answer is None:
            if request.late:
                raise received_refusal(ResultCode.DEADLINE_EXCEEDED, None)
            raise self._unanswered()
        return StreamEvent(self, request.answer)

    async def send_answer(
        self,
        request: IncomingRequest,
        category: int,
        subcategory: int,
        data: Encodable,
        payload: bytes | None,
    ) -> None:
        """Answer a request; raises as `StreamEvent.answer`."""
        body, lbm = self.carries.encode(category, subcategory, data, payload, self._largest)
        if request.answered:
            raise LocalProtocolError(
                f"cannot answer the event #{request.async_id} on the stream {self.label!r} again"
            )
        request.answered = True
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            await self._room.wait()
            send = self.live.core.send
            self._queue(send, request.async_id, category, subcategory, body, lbm=lbm)
            self._room.queued += len(body)
        except BaseException:
            request.answered = False
            raise
        self._requests.answer_sent(request)

    # Closing.

    async def send_eof(self) -> None:
        """Finish the sending direction after the queued data; unanswered requests of the peer fail.

        Raises:
            BusyResourceError: another task is sending.
        """
        with self._sending:
            await anyio.lowlevel.checkpoint()
            if self._room.has_waiting:
                raise anyio.BusyResourceError("sending to")
            self._finish()

    def reset(self, code: int = CloseCode.CANCELLED, text: str = "") -> None:
        """Reset both directions immediately with `code` (section 11).

        Raises:
            ValueError: Reset cannot carry `code`, or `text` is too long.
        """
        with suppress(LocalError):  # The connection has ended.
            self.live.core.reset_stream(self.id, code, text)
        self._finished = True
        self._close()
        self._requests.local_ended(self.id)
        self._on_over(self)

    async def aclose(self) -> None:
        """Finish the sending direction and stop reading; further data of the peer is answered with
        Reset.
        """
        if not self._closed:
            # No checkpoint comes before this, so that a cancelled close has also closed.
            self._close()
            self._finish()
        await anyio.lowlevel.checkpoint()

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.aclose()
        else:
            self.reset()

    # Called by the connection.

    def data_received(self, data: bytes, cost: int) -> None:
        """Store received bytes."""
        if self._closed:
            self._unwanted(cost)
        else:
            self._bytes.put(data, cost)

    def event_received(self, event: Event) -> bool:
        """Process an event; return False if the stream doesn't carry its category.

        Raises:
            RemoteProtocolError: `protocol-error`, its request ID is already in use.
        """
        if event.category not in self.carries.categories:
            return False
        requests = self._requests
        if (event.category, event.subcategory) in self.answers:
            if not requests.answer_received(event):
                return False
            self.live.core.consume(self.id, event.cost)
            return True
        if not self.carries.events:
            return False
        request = None
        if event.async_id and self.carries.asks and not self._finished:
            request = requests.request_received(self.id, event.async_id, len(event.payload))
            if request is None:
                self._overloaded()
                return False
        if self._closed:
            self._unwanted(event.cost)
        else:
            self._events.put(StreamEvent(self, event, request), event.cost)
        return True

    def finished(self) -> None:
        """Called when the peer has finished its direction."""
        self._eof = True
        for inbox in (self._bytes, self._events):
            inbox.finish(anyio.EndOfStream, drop=False)
        self._requests.remote_ended(self.id)
        self._forget_if_over()

    def failed(self, error: StreamResetError | PeerClosedError) -> None:
        """Called when the stream was reset or the connection ended; data before a Finish stays
        readable.
        """
        self._error = error
        if not self._closed:
            for inbox in (self._bytes, self._events):
                inbox.finish(error, drop=not self._eof)
        self._requests.remote_ended(self.id)
        self._requests.local_ended(self.id)
        self._room.changed()

    def writable(self) -> None:
        """Wake a sender, because the stream's queue is empty."""
        self._room.changed()

    def _require_sendable(self) -> None:
        if self._error is not None:
            raise self._error
        if self._finished or self._closed:
            raise anyio.ClosedResourceError

    def _unanswered(self) -> Exception:
        """Return the reason why a request cannot be answered."""
        if self._closed:
            return anyio.ClosedResourceError()
        return self._error or anyio.EndOfStream("the other side finished and answers nothing")

    async def _send_piece(self, piece: bytes | memoryview, largest: int) -> None:
        await self._room.wait()
        self._queue(self.live.core.send_data, piece, largest)
        self._room.queued += len(piece)

    def _queue(self, send: Callable[..., object], *what: Any, **how: Any) -> None:
        try:
            send(self.id, *what, **how)
        except LocalError as error:
            raise self.live.closed_error() from error

    def _finish(self) -> None:
        if not self._finished and self._error is None:
            self._finished = True
            # The stream may already be reset, or the connection ended.
            with suppress(LocalError):
                self.live.core.finish_stream(self.id)
            self._requests.local_ended(self.id)
        self._forget_if_over()

    def _close(self) -> None:
        self._closed = True
        for inbox in (self._bytes, self._events):
            inbox.finish(anyio.ClosedResourceError, drop=True)
        self._requests.abandon(self.id)
        self._room.changed()

    def _unwanted(self, cost: int) -> None:
        self.live.core.consume(self.id, cost)
        if not self.live.core.outbox.waiting(self.id):
            self.reset()  # The data will never be read.

    def _overloaded(self) -> None:
        """Reset the stream, because too many requests are unanswered."""
        with suppress(LocalError):
            self.live.core.reset_stream(self.id, CloseCode.OVERLOADED)
        self._on_over(self)
        self.failed(StreamResetError(CloseCode.OVERLOADED, ""))

    def _forget_if_over(self) -> None:
        if self._eof and self._finished and not (self._bytes or self._events):
            self._on_over(self)


StreamHandler = Callable[[Stream], Awaitable[None]]
