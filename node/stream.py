"""A stream of a connection as bytes: anyio's `ByteStream` over 2/5 Data.

One rule: what is received is given back as credit only once the reader has taken it, so
that a slow reader slows its sender and nobody else. Knows its peer and its stream id.
"""

from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from node.errors import PeerClosedError, StreamResetError
from node.protocol.codes import CloseCode
from node.protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from node.peer import Peer
    from node.transport.loop import Waiter

# One Data event at most, so that no stream's turn is long (section 8).
LARGEST_PIECE = 64 * 1024
# Data events of a stream that may wait before its sender does.
WAITING_PIECES = 4


class Stream(ByteStream):
    """A byte stream to a peer, both ways. Leaving `async with` finishes our direction; by
    an exception, both ways are reset.

    `label` says what it is for. One task may receive and one may send at a time.
    """

    def __init__(self, peer: "Peer", stream_id: int, label: str) -> None:
        self.peer = peer
        self.id = stream_id
        self.label = label
        self._received: deque[tuple[bytes, int]] = deque()
        self._position = 0  # how much of the first piece was taken
        self._eof = False
        self._finished = False
        self._closed = False
        self._error: StreamResetError | PeerClosedError | None = None
        self._receiving = anyio.ResourceGuard("receiving from")
        self._sending = anyio.ResourceGuard("sending to")
        self._reader: Waiter | None = None
        self._writer: Waiter | None = None

    # Reading.

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """1 to `max_bytes` bytes.

        Raises:
            EndOfStream: the other side finished. StreamResetError: it was reset.
            PeerClosedError: the connection is over. BusyResourceError: two receive.
            ClosedResourceError: it was closed here. ValueError: `max_bytes` is below 1.
        """
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            await anyio.lowlevel.checkpoint()
            while not self._received:
                if self._closed:
                    raise anyio.ClosedResourceError
                if self._eof:
                    raise anyio.EndOfStream
                if self._error is not None:
                    raise self._error
                self._reader = self.peer.backend.waiter()
                try:
                    await self._reader.wait()
                finally:
                    self._reader = None
            return self._take(max_bytes)

    def _take(self, max_bytes: int) -> bytes:
        data, cost = self._received[0]
        start = self._position
        piece = data[start : start + max_bytes] if start or len(data) > max_bytes else data
        self._position = start + len(piece)
        if self._position == len(data):
            self._received.popleft()
            self._position = 0
            self.peer.consume(self.id, cost)
            self._forget_if_over()
        return piece

    # Writing.

    async def send(self, item: bytes) -> None:
        """Send all of `item`; returns when it is queued and not much else is.

        Raises:
            StreamResetError, PeerClosedError: it was not sent, or not all of it.
            ClosedResourceError: our direction is finished. BusyResourceError: two send.
        """
        with self._sending:
            await anyio.lowlevel.checkpoint()
            self._require_sendable()
            view = memoryview(item)
            size = min(LARGEST_PIECE, self.peer.limits.max_payload)
            for start in range(0, len(view), size):
                await self._may_send()
                self._queue(bytes(view[start : start + size]))

    async def send_eof(self) -> None:
        """Finish our direction; what was sent before goes first.

        Raises:
            BusyResourceError: another task is sending.
        """
        with self._sending:
            await anyio.lowlevel.checkpoint()
            self._finish()

    def reset(self, code: int = CloseCode.CANCELLED, text: str = "") -> None:
        """End both directions now; the other side gets `code` (section 11).

        Raises:
            ValueError: `code` is not one that Reset may carry, or `text` is too long.
        """
        with suppress(LocalProtocolError):  # the connection is over
            self.peer.core.reset_stream(self.id, code, text)
        self._finished = self._closed = True
        self._drop_received()
        self.peer.streams.forget(self)
        self._wake(self._reader)
        self._wake(self._writer)
        self.peer.touch()

    async def aclose(self) -> None:
        """Finish our direction and read no more; more Data from there is answered by Reset."""
        if not self._closed:
            # All at once: a cancelled close has closed as well.
            self._closed = True
            self._drop_received()
            self._finish()
            self._wake(self._reader)
            self._wake(self._writer)
        await anyio.lowlevel.checkpoint()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self.aclose()
        else:
            self.reset()

    # From the peer.

    def data_received(self, data: bytes, cost: int) -> None:
        """A Data event came."""
        if self._closed:
            self.peer.core.consume(self.id, cost)
            if not self.peer.core.waiting_events(self.id):
                self.reset()  # nobody will ever read it
            return
        self._received.append((data, cost))
        self._wake(self._reader)

    def finished(self) -> None:
        """The other side's direction has ended."""
        self._eof = True
        self._wake(self._reader)
        self._forget_if_over()

    def failed(self, error: StreamResetError | PeerClosedError) -> None:
        """Reset, or the end of the connection; what came before a Finish stays readable."""
        if not self._eof:
            self._drop_received()
        self._error = error
        self._wake(self._reader)
        self._wake(self._writer)

    def writable(self) -> None:
        """Nothing waits to be written any more."""
        self._wake(self._writer)

    # Inside.

    async def _may_send(self) -> None:
        core = self.peer.core
        while True:
            self._require_sendable()
            if core.waiting_events(self.id) < WAITING_PIECES:
                return
            try:
                core.notify_writable(self.id)
            except LocalProtocolError as error:
                raise self.peer.closed_error() from error
            self._writer = self.peer.backend.waiter()
            try:
                await self._writer.wait()
            finally:
                self._writer = None

    def _require_sendable(self) -> None:
        if self._error is not None:
            raise self._error
        if self._finished or self._closed:
            raise anyio.ClosedResourceError

    def _finish(self) -> None:
        if not self._finished and self._error is None:
            self._finished = True
            # It may be reset, or the connection over: then there is nothing to finish.
            with suppress(LocalProtocolError):
                self.peer.core.finish_stream(self.id)
            self.peer.touch()
        self._forget_if_over()

    def _queue(self, data: bytes) -> None:
        try:
            self.peer.core.send_data(self.id, data)
        except LocalProtocolError as error:
            raise self.peer.closed_error() from error
        self.peer.touch()

    def _forget_if_over(self) -> None:
        """Once both directions have ended and all is read, the peer need not know us."""
        if self._eof and self._finished and not self._received:
            self.peer.streams.forget(self)

    def _drop_received(self) -> None:
        for _, cost in self._received:
            self.peer.core.consume(self.id, cost)
        self._received.clear()

    @staticmethod
    def _wake(waiter: "Waiter | None") -> None:
        if waiter is not None:
            waiter.wake()
