"""`AnswerStream`: the items of a streamed answer, with back-pressure.

Leaving its `async with` block before the end cancels the call. Only the request ID stays in use,
until the peer has answered.
"""

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, cast

import anyio

from parley._lbm.codec import Encodable, Value
from parley._lbm.errors import LbmDecodeError
from parley._node.data_types import D, DataType, Model
from parley._node.errors import ParleyError, PeerClosedError, StreamedAnswerError, received_refusal
from parley._node.handlers.interceptors import Chain, Intercepted
from parley._node.messaging.outgoing_calls import ChunkInbox, OutgoingCall, OutgoingCalls
from parley._node.protocol.codes import GIVEN_UP, LOST, MAIN_STREAM, STREAMED, ResultCode
from parley._node.protocol.errors import ConnectionClosedError, LocalError
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.conditions import Condition


class AnswerStream(Generic[D]):
    """The items of a streamed answer, in order. Made by `Peer.call_stream`.

    Enter it with `async with`, then iterate with `async for`. With `returns`, each item is
    converted to that type.

    Attributes: result: the value of the final answer, available after the last item. It is None if
    the handler is a generator.

    Example:

        async with peer.call_stream("greet", "Ann") as answer:
            assert [item async for item in answer] == []
        assert answer.result == "hello Ann"
    """

    def __init__(
        self,
        live: LiveConnection,
        outgoing: OutgoingCalls,
        chain: Chain,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
        window: int | None,
        kind: DataType[D] | None = None,
    ) -> None:
        self.peer = live.remote
        self._live = live
        self._outgoing = outgoing
        self.topic = topic
        self.result: Value = None
        self._chain = chain
        self._arguments = data, timeout, headers
        self._window = window
        self._kind = kind
        self._call: OutgoingCall | None = None
        self._inbox: ChunkInbox | None = None
        self._closed = False
        self._began = 0.0
        self._changes = Condition(live.backend.waiter)
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<AnswerStream of {self.topic!r} from {self.peer}>"

    async def __aenter__(self) -> Self:
        """Send the call.

        Raises:
            ValueError: `window` is out of range.
            ParleyError: the call cannot be sent, for the reasons that `Peer.call` documents.
        """
        data, timeout, headers = self._arguments
        if not self._chain:
            await self._ask(data, timeout, headers)
            return self

        async def proceed(one: Intercepted) -> None:
            await self._ask(one.data, one.timeout, one.headers)

        one = Intercepted(self._chain, self.peer, self.topic, data, headers, timeout=timeout)
        try:
            await self._chain.run(one, proceed)
        except BaseException:
            self._leave()
            raise
        if self._call is None:
            raise ParleyError(f"cannot call {self.topic!r}: an interceptor did not call proceed")
        return self

    async def _ask(
        self,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
    ) -> None:
        if self._call is not None:
            raise ParleyError(
                f"cannot call {self.topic!r} again with the same object; use call_stream again"
            )
        live, window = self._live, self._window
        timeout = await live.wait_writable(timeout)
        size = window or live.limits.stream_window
        inbox = self._inbox = ChunkInbox(size, self._changes.notify, self._grant, live.core.account)
        self._began = now = live.backend.now()
        try:
            call = self._outgoing.call(
                self.topic, data, now, timeout, self._changes.notify, headers, window
            )
        except ConnectionClosedError as error:
            raise live.closed_error() from error
        call.chunks = inbox
        self._call = call

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._leave()

    def __aiter__(self) -> AsyncIterator[D]:
        return self

    async def __anext__(self) -> D:
        """Return the next item.

        Raises:
            MalformedDataError: the item does not match the type; reading can continue with the
                next.
            CallRefused: the final answer has a code other than 0.
            CallTimeout: the answer was not complete in time.
            PeerClosedError: the connection has ended.
            ClosedResourceError: the answer stream was left.
            BusyResourceError: another task is reading.
        """
        call, inbox = self._call, self._inbox
        if call is None or inbox is None:
            raise ParleyError(
                f"cannot read the answer of {self.topic!r}: the call isn't sent yet; "
                "use `async with` before `async for`"
            )
        with self._reading:
            await self._changes.until(lambda: bool(inbox) or call.done or self._closed)
            if self._closed:
                raise anyio.ClosedResourceError(f"the answer of {self.topic!r} was left")
            if inbox:
                try:
                    item: Any = inbox.take()
                except LbmDecodeError as error:
                    self._leave()
                    raise received_refusal(ResultCode.MALFORMED, None) from error
                return item if self._kind is None else self._kind.read(item)
            self.result = answer_of(call)
            raise StopAsyncIteration

    def _leave(self) -> None:
        """Cancel the call and discard unread items."""
        call, live = self._call, self._live
        if call is not None and not self._closed:
            code = call.code if call.done else GIVEN_UP
            live.metrics.made.add(code, live.backend.now() - self._began)
        self._closed = True
        if call is not None and not call.done:
            self._outgoing.cancel(call)
        if self._inbox is not None:
            self._inbox.clear()
        self._changes.notify()

    def _grant(self, credit: int) -> None:
        if self._call is not None and not self._call.done:
            try:
                self._live.core.streams.grant(MAIN_STREAM, self._call.async_id, credit)
            except LocalError:
                return  # The connection is closing.


def answer_of(call: OutgoingCall) -> Value:
    """Return the data of an answered request, or raise the error for its code."""
    if call.code == ResultCode.ACCEPTED:
        return cast("Value", call.data)
    if call.code == LOST:
        raise PeerClosedError(call.close_code, call.close_text)
    if call.code == STREAMED:
        raise StreamedAnswerError
    raise received_refusal(call.code, call.data)
