"""Emitted events and their replies, for every dialect."""

import warnings
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio

from parley._node.errors import (
    ParleyError,
    PeerClosedError,
    UnreadRepliesError,
    received_refusal,
)
from parley._node.messaging.formats import Format
from parley._node.messaging.named_events import UNREAD, OutgoingEmit, Reply, check_names
from parley._node.messaging.payloads import Payload
from parley._node.protocol.codes import LOST, ResultCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.transport.conditions import Condition
from parley._node.transport.loop import Loop

# The default timeout of `reply`, and of `replies` if the peer doesn't mark the last reply.
REPLY_TIMEOUT = 30.0


class Emitter(Protocol):
    """Sends events over one connection. `marks_end` tells whether the peer marks the last reply."""

    marks_end: bool

    @property
    def backend(self) -> Loop: ...

    @property
    def can_send(self) -> bool:
        """Whether a sender may send without waiting."""

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait until a sender may send; returns the rest of `timeout`."""

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event without replies; raises ConnectionClosedError."""

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies, or code 17 after `timeout` seconds."""

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Stop waiting for replies; the handler may continue."""

    def cancel(self, emit: OutgoingEmit) -> None:
        """Cancel the handler if the dialect can, and discard its replies."""

    def closed_error(self) -> PeerClosedError:
        """Return the reason why nothing can be sent."""


class Emission:
    """An event to send, made by `emit`.

    Await it to send the event without replies. Use `reply()` for the first reply or `replies()` for
    all of them.

    Example:

        await peer.emit("order", {"id": 7})

    Raises:
        LocalProtocolError: the name or the namespace is not text.
    """

    __slots__ = ("_emitter", "_is_used", "_name", "_namespace", "_payload", "_sent")

    def __init__(self, emitter: Emitter, name: str, namespace: str, payload: Payload) -> None:
        self._is_used = True  # Don't warn about an event that was never valid.
        check_names(name, namespace)
        self._is_used = False
        self._emitter = emitter
        self._name = name
        self._namespace = namespace
        self._payload = payload
        self._sent = False

    def __repr__(self) -> str:
        return f"<Emission of {self._name!r}>"

    def __await__(self) -> Generator[Any, Any, None]:
        """Send the event without waiting for a reply.

        Raises:
            PeerClosedError: the connection has ended.
            PayloadTooLargeError: the event is too large; it wasn't sent.
            LbmEncodeError: the data cannot be encoded.
            FormatError: the data cannot be encoded in the format.
        """
        self._is_used = True
        return self._send().__await__()

    def __del__(self) -> None:
        if not self._is_used:
            text = f"the event {self._name!r} was never sent: await it, or use reply() or replies()"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    async def reply(self, timeout: float | None = REPLY_TIMEOUT) -> Reply:
        """Send the event and return its first reply, within `timeout` seconds.

        Later replies are discarded. If no handler replies, a native peer's reply is empty: its
        `data` is None.

        Raises:
            CallTimeout: no reply arrived in time.
            CallRefused: the handler failed (code 500) or refused the event.
            ParleyError: other errors are those of awaiting the event.
        """
        self._is_used = True
        emitter = self._emitter
        if not emitter.can_send:
            timeout = await emitter.wait_writable(timeout)
        waiter = emitter.backend.waiter()
        emit = OutgoingEmit(waiter.wake)
        self._ask(emit, timeout)
        try:
            await waiter
        except BaseException:
            emitter.cancel(emit)  # A reply may have arrived at the same time; discard it.
            emit.drop_replies()
            raise
        if emit.replies:
            emitter.stop_waiting(emit)
            reply: Reply = emit.take()
            emit.drop_replies()
            return reply
        return last_reply(emit) or Reply(None, Format.LBM, last=True)

    def replies(self, timeout: float | None = None) -> "Replies":
        """Send the event and iterate over its replies, for at most `timeout` seconds in total.

        Leaving its `async with` block early cancels the handler if the dialect supports it. By
        default, there is no timeout if the peer marks the last reply, otherwise it is 30 s;
        `math.inf` waits forever.

        Example:

            async with peer.emit("order", {"id": 7}).replies(timeout=5) as replies:
                async for reply in replies:
                    print(reply.data)
        """
        self._is_used = True
        if timeout is None and not self._emitter.marks_end:
            timeout = REPLY_TIMEOUT
        return Replies(self, timeout)

    async def _send(self) -> None:
        emitter = self._emitter
        if not emitter.can_send:
            await emitter.wait_writable(None)
        self._once()
        try:
            emitter.send(self._name, self._namespace, self._payload)
        except ConnectionClosedError as error:
            raise emitter.closed_error() from error

    def _ask(self, emit: OutgoingEmit, timeout: float | None) -> None:
        self._once()
        try:
            self._emitter.ask(emit, self._name, self._namespace, self._payload, timeout)
        except ConnectionClosedError as error:
            raise self._emitter.closed_error() from error

    def _once(self) -> None:
        if self._sent:
            raise ParleyError(f"the event {self._name!r} was already emitted; call emit again")
        self._sent = True


class Replies:
    """The replies to an event, in order; made by `Emission.replies`. One task can read at a time.

    If the peer doesn't mark the last reply (the crate's versions 0.14 to 0.17), iteration ends with
    the timeout or with `close`.

    Example:

        async with peer.emit("order", {"id": 7}).replies(timeout=5) as replies:
            print([reply.data async for reply in replies])
    """

    def __init__(self, emission: Emission, timeout: float | None) -> None:
        self._emission = emission
        self._emitter = emission._emitter
        self._timeout = timeout
        self._changes = Condition(self._emitter.backend.waiter)
        self._emit = OutgoingEmit(self._changes.notify)
        self._begun = False
        self._closed = False
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<Replies to {self._emission!r}>"

    async def __aenter__(self) -> Self:
        """Send the event; raises as for awaiting it."""
        await self._begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Reply]:
        return self

    async def __anext__(self) -> Reply:
        """Return the next reply; the first call sends the event.

        Raises:
            CallTimeout: the last reply did not arrive in time.
            CallRefused: the handler failed (code 500) or refused the event.
            UnreadRepliesError: too many replies were unread.
            PeerClosedError: the connection has ended.
            BusyResourceError: another task is reading.
        """
        with self._reading:
            await self._begin()
            emit = self._emit
            await self._changes.until(lambda: bool(emit.replies) or emit.done or self._closed)
            if emit.replies and not self._closed:
                return cast("Reply", emit.take())
            last = None if self._closed else self._last()
            self._closed = True
            if last is None:
                raise StopAsyncIteration
            return last

    def close(self) -> None:
        """Discard further replies and end a waiting reader."""
        if self._begun and not self._emit.done:
            self._emitter.cancel(self._emit)
        self._closed = True
        self._emit.drop_replies()
        self._changes.notify()

    async def aclose(self) -> None:
        """Discard further replies, for `contextlib.aclosing`."""
        self.close()

    async def _begin(self) -> None:
        if not self._begun:
            timeout = await self._emitter.wait_writable(self._timeout)
            if not self._closed:
                self._emission._ask(self._emit, timeout)
                self._begun = True

    def _last(self) -> Reply | None:
        emit = self._emit
        if emit.code == ResultCode.DEADLINE_EXCEEDED and not self._emitter.marks_end:
            return None
        return last_reply(emit)


def last_reply(emit: OutgoingEmit) -> Reply | None:
    """Return the last reply of a finished event, if any; raise the error of its code."""
    code = emit.code
    if not code:
        reply: Reply | None = emit.data
        return reply
    if code == LOST:
        raise PeerClosedError(emit.close_code, emit.close_text)
    if code == UNREAD:
        raise UnreadRepliesError
    raise received_refusal(code, emit.data)
