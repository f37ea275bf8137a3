"""Any byte stream as an outlet: a task that reads, a task that writes.

It takes any `anyio.abc.ByteStream` on either backend (memory pairs, trio's sockets, tunnels), and
bounds what waits to be sent by telling the driver.
"""

import logging
from collections import deque

import anyio
from anyio.abc import ByteStream

from parley._node.transport.gate import Attached, Served
from parley._node.transport.loop import Loop, Runner, Waiter

logger = logging.getLogger("parley.transport")

READ_SIZE = 256 * 1024
WRITE_BUFFER = 256 * 1024

_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StreamOutlet:
    """Serves a driver over one stream, which ends with it unless it is handed to another."""

    def __init__(self, stream: ByteStream, driver: Attached, loop: Loop) -> None:
        self._stream = stream
        self._served: Served | None = driver
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

    def serve(self, served: Served | None) -> None:
        """Another driver from now on, or none."""
        self._served = served

    def write(self, data: bytes) -> bool:
        """Take bytes; False until `may_write`."""
        if self._closed:
            return False
        self._queue.append(data)
        self._queued += len(data)
        self._full = self._queued >= WRITE_BUFFER
        self._wake_writer()
        return not self._full

    def write_eof(self) -> None:
        """Shut the sending side after what was written."""
        self._eof = True
        self._wake_writer()

    def close(self) -> None:
        """Close both sides now."""
        if not self._closed:
            self._closed = True
            self._reader.cancel()
            # The writer closes the stream. It may wait for ever for a peer that does not
            # read; cancelled before it began, on asyncio, it would never run at all.
            if self._busy:
                self._writer.cancel()
            self._wake_writer()

    def pause_reading(self) -> None:
        """Read no more."""
        self._paused = True

    def resume_reading(self) -> None:
        """Go on reading."""
        self._paused = False
        if self._reader_wakes is not None:
            self._reader_wakes.wake()

    # The tasks.

    async def _read(self) -> None:
        try:
            while not self._closed:
                if self._paused:
                    self._reader_wakes = self._loop.waiter()
                    await self._reader_wakes.wait()
                    continue
                # Foreign streams may give what they use again, of which a part is kept.
                data = bytes(await self._stream.receive(READ_SIZE))
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
                            self._served.may_write()
                elif self._eof:
                    self._eof = False
                    self._busy = True
                    await self._stream.send_eof()
                else:
                    self._busy = False
                    self._writer_wakes = self._loop.waiter()
                    await self._writer_wakes.wait()
        except _BROKEN:
            return
        except Exception:
            logger.exception(
                "writing to a socket failed", extra={"event": "transport.write-failed"}
            )
        finally:
            # Also when the backend is closed: whoever waits on this peer must know.
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
