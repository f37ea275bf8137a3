"""`StreamEvent`: an application's event that came on a stream, and the answer to it.

An event that asks is answered at most once. Its payload is decoded only when it is looked at.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, Self

import anyio

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, decode
from parley._node.messaging.stream_requests import IncomingRequest
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.reports import EventReceived
from parley._node.remote.live import LiveConnection
from parley._node.transport.waiting import Changes


class AnsweringStream(Protocol):
    """The stream that an event came on, as far as its answer needs it."""

    live: LiveConnection

    async def send_answer(
        self,
        request: IncomingRequest,
        category: int,
        subcategory: int,
        data: Encodable,
        payload: bytes | None,
    ) -> None:
        """Answer a request; raises as `StreamEvent.answer`."""


class StreamEvent:
    """An event of `category` 64..255 (on the bus's streams: 6). `payload` is its bytes, empty
    for none; `async_id` is 0 unless it asks or answers."""

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
        self, stream: AnsweringStream, event: EventReceived, request: IncomingRequest | None = None
    ) -> None:
        self.stream = stream
        self.category = event.category
        self.subcategory = event.subcategory
        self.payload = event.payload
        self.async_id = event.async_id
        self._request = request
        self._cells: Mapping[int, Value] | None = None
        self._changes: Changes | None = None

    def __repr__(self) -> str:
        number = f" #{self.async_id}" if self.async_id else ""
        size = len(self.payload)
        return f"<StreamEvent {self.category}/{self.subcategory}{number}, {size} bytes>"

    @property
    def cells(self) -> Mapping[int, Value]:
        """The payload's cells, none without payload; raises LbmDecodeError if it is no LBM."""
        if self._cells is None:
            self._cells = decode(self.payload) if self.payload else {}
        return self._cells

    @property
    def data(self) -> Value:
        """What `send_event` or `answer` was given as data; raises LbmDecodeError."""
        return self.cells.get(keys.DATA)

    @property
    def wants_answer(self) -> bool:
        """Whether it asks and was not answered yet."""
        return self._request is not None and not self._request.answered

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer: Cancel came, or the stream has ended.

        After Cancel the answer is still owed: until it comes, the other side cannot use
        its async id again.
        """
        return self._request is not None and self._request.cancelled

    async def wait_cancelled(self) -> None:
        """Wait until nobody waits for an answer: it was `cancelled`, or is answered."""
        await anyio.lowlevel.checkpoint()
        request = self._request
        if request is not None and not request.over:
            if self._changes is None:
                self._changes = Changes(self.stream.live.backend.waiter)
                request.on_over = self._changes.notify
            await self._changes.until(lambda: request.over)

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Call back, once, when nobody waits for the answer; at once if that is so already, or
        it asked for none. It replaces `wait_cancelled` where there is no task to spare."""
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
        """Answer, finally, with an event that the other side has declared as an answer.

        `category` is the request's own if it is not given; the rest is as with
        `Stream.send_event`, and so are the errors; after one it is still unanswered.

        Raises:
            LocalProtocolError: it asks for no answer, or was answered.
        """
        if self._request is None:
            raise LocalProtocolError(
                f"cannot answer the event {self.category}/{self.subcategory}: it is not a request"
            )
        if category is None:
            category = self.category
        await self.stream.send_answer(self._request, category, subcategory, data, payload)


class StreamEvents:
    """The events of a stream for `async for`; ends when the other side has finished."""

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
