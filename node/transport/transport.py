"""Transports as drivers see them, and the barrier at which they wait for a journal.

While a barrier is closed, the connections behind it neither read nor write. `BufferedTransport`
holds written bytes until the journal has stored the records about them.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
from anyio.abc import ByteStream

from parley._node.transport.loop import Loop, Runner, Waiter

# Bytes of one connection that may wait for the journal before the transport is full.
HELD_SIZE: Final = 256 * 1024
NEVER: Final = 1 << 62


class TransportProtocol(Protocol):
    """The driver, as its transport calls it."""

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None:
        """The transport ended or broke."""

    def resume_writing(self) -> None:
        """The transport accepts bytes again."""


class Attached(TransportProtocol, Protocol):
    """A driver that waits for its transport."""

    def connected(self, transport: "Transport") -> None: ...


class Transport(Protocol):
    """The transport, as its driver calls it."""

    def serve(self, served: TransportProtocol | None) -> None:
        """Pass received bytes to `served` from now on; None discards them."""

    def write(self, data: bytes) -> bool:
        """Queue bytes to send; returns whether more may follow immediately."""

    def write_eof(self) -> None:
        """Shut down the sending side once everything is written."""

    def close(self) -> None:
        """Close both sides now."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class WriteBarrier:
    """One barrier for all connections of a node.

    `recorded` returns the journal's position, `safe` the position up to which it is stored: bytes
    that were encrypted at a position leave once it is safe.
    """

    __slots__ = ("_recorded", "_safe", "_waiting", "holding", "open")

    def __init__(
        self,
        recorded: Callable[[], int] | None = None,
        safe: Callable[[], int] | None = None,
    ) -> None:
        self.open = True
        self._recorded = recorded
        self._safe = safe
        self._waiting: dict[Callable[[], None], None] = {}
        self.holding: dict[BufferedTransport, None] = {}  # the transports that hold bytes

    def shut(self) -> None:
        self.open = False

    def reopen(self) -> None:
        """Resume all waiting connections in the order of their arrival."""
        self.open = True
        waiting, self._waiting = self._waiting, {}
        for resume in waiting:
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when the barrier opens."""
        self._waiting[resume] = None

    def leave(self, resume: Callable[[], None]) -> None:
        """Don't call `resume`."""
        self._waiting.pop(resume, None)

    def guarded(self, transport: Transport, on_room: Callable[[], None]) -> Transport:
        """Return `transport`, or a buffer in front of it if there is a journal; `on_room` is called
        when the buffer accepts bytes again."""
        if self._recorded is None or self._safe is None:
            return transport
        return BufferedTransport(self, transport, on_room)

    def recorded(self) -> int:
        return 0 if self._recorded is None else self._recorded()

    def safe(self) -> int:
        return NEVER if self._safe is None else self._safe()

    def release(self) -> None:
        """Write the bytes that have become safe."""
        for transport in list(self.holding):
            transport.release()

    def retire(self) -> None:
        """Open for good: nothing is recorded any longer."""
        self._recorded = self._safe = None
        self.release()
        self.reopen()


OPEN: Final = WriteBarrier()


class BufferedTransport:
    """A transport whose bytes leave once the records about them are safe."""

    __slots__ = ("_barrier", "_eof", "_full", "_held", "_on_room", "_size", "_transport")

    def __init__(
        self,
        barrier: WriteBarrier,
        transport: Transport,
        on_room: Callable[[], None],
    ) -> None:
        self._barrier = barrier
        self._transport = transport
        self._on_room = on_room
        self._held: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._full = self._eof = False

    def write(self, data: bytes) -> bool:
        barrier = self._barrier
        position = barrier.recorded()
        if not self._held and position <= barrier.safe():
            return self._transport.write(data)
        self._held.append((position, data))
        barrier.holding[self] = None
        self._size += len(data)
        self._full = self._size >= HELD_SIZE
        return not self._full

    def serve(self, served: TransportProtocol | None) -> None:
        """Serve another driver; buffered bytes of the last one are discarded."""
        self._forget()
        if served is not None:
            self._on_room = served.resume_writing
        self._transport.serve(served)

    def write_eof(self) -> None:
        if self._held:
            self._eof = True
        else:
            self._transport.write_eof()

    def close(self) -> None:
        """Close both sides and discard buffered bytes."""
        self._forget()
        self._transport.close()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def release(self) -> None:
        held, safe = self._held, self._barrier.safe()
        writable = True
        while held and held[0][0] <= safe:
            _, data = held.popleft()
            self._size -= len(data)
            writable = self._transport.write(data)
        if not held:
            self._barrier.holding.pop(self, None)
            if self._eof:
                self._eof = False
                self._transport.write_eof()
        if self._full and self._size < HELD_SIZE:
            self._full = False
            if writable:  # otherwise the transport calls `resume_writing` itself
                self._on_room()

    def _forget(self) -> None:
        self._held.clear()
        self._size = 0
        self._full = self._eof = False
        self._barrier.holding.pop(self, None)


logger = logging.getLogger("parley.transport")

READ_SIZE = 256 * 1024
WRITE_BUFFER = 256 * 1024

_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StreamTransport:
    """A transport over an anyio byte stream, with one task that reads and one that writes."""

    def __init__(self, stream: ByteStream, driver: Attached, loop: Loop) -> None:
        self._stream = stream
        # Other streams may return views of a buffer that they reuse.
        self._receive: Callable[[int], Awaitable[bytes | bytearray | memoryview]] = stream.receive
        self._served: TransportProtocol | None = driver
        self._loop = loop
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._full = False
        self._eof = False
        self._closed = False
        self._busy = False
        self._paused = False
        self._writer_wakes: Waiter | None = None
        self._reader_wakes: Waiter | None = None
        self._reader: Runner = loop.spawn(self._read)
        self._writer: Runner = loop.spawn(self._write)
        driver.connected(self)

    # The driver's side.

    def serve(self, served: TransportProtocol | None) -> None:
        self._served = served

    def write(self, data: bytes) -> bool:
        if self._closed:
            return False
        self._queue.append(data)
        self._queued += len(data)
        self._full = self._queued >= WRITE_BUFFER
        self._wake_writer()
        return not self._full

    def write_eof(self) -> None:
        self._eof = True
        self._wake_writer()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.cancel()
            # The writer closes the stream. It may wait forever for a peer that doesn't read, and on
            # asyncio, a task that is cancelled before its first step doesn't run at all.
            if self._busy:
                self._writer.cancel()
            self._wake_writer()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._reader_wakes is not None:
            self._reader_wakes.wake()

    # The two tasks.

    async def _read(self) -> None:
        try:
            while not self._closed:
                if self._paused:
                    self._reader_wakes = self._loop.waiter()
                    await self._reader_wakes
                    continue
                data = bytes(await self._receive(READ_SIZE))
                if self._served is not None:
                    self._served.received(data)
        except _BROKEN:
            self._ended()
        except Exception:
            logger.exception(
                "reading from a socket failed", extra={"event": "transport.read-failed"}
            )
            self._ended()

    async def _write(self) -> None:
        try:
            while not self._closed:
                if self._queue:
                    data = self._queue.popleft()
                    self._busy = True
                    await self._stream.send(data)
                    self._queued -= len(data)
                    if self._full and self._queued < WRITE_BUFFER:
                        self._full = False
                        if self._served is not None:
                            self._served.resume_writing()
                elif self._eof:
                    self._eof = False
                    self._busy = True
                    await self._stream.send_eof()
                else:
                    self._busy = False
                    self._writer_wakes = self._loop.waiter()
                    await self._writer_wakes
        except _BROKEN:
            return
        except Exception:
            logger.exception(
                "writing to a socket failed", extra={"event": "transport.write-failed"}
            )
        finally:
            # Also when the backend is closed, so that callers that wait for this peer are woken.
            self._busy = False
            self._reader.cancel()
            self._ended()
            self._closed = True
            await anyio.aclose_forcefully(self._stream)

    def _ended(self) -> None:
        if not self._closed and self._served is not None:
            self._served.ended()

    def _wake_writer(self) -> None:
        if self._writer_wakes is not None:
            self._writer_wakes.wake()
