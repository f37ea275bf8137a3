"""The base of the cores of foreign dialects, with a send queue and a frame splitter.

As in the native core, received data never raises: every violation ends in a report. Cores do no
I/O.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import ConnectionClosedError, RemoteProtocolError
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.memory_budget import FRAMES_WEIGHT, MemoryBudget
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.send_queue import Waker

FLUSH_SIZE = 256 * 1024
NEVER = float("inf")
# Bytes that may come after the end before the transport is closed.
MOST_FORGOTTEN = 4 << 20


class ForeignCore(ABC):
    """One connection in a foreign dialect, either side.

    Nothing is read while more than `write_buffer` bytes wait to be written. `account` is charged
    for memory that the other side makes this one use.
    """

    __slots__ = (
        "_forgotten",
        "_last_byte",
        "_linger_until",
        "_write_buffer",
        "account",
        "closing",
        "ended",
        "happened",
        "outbox",
    )

    def __init__(self, now: float, write_buffer: int, account: MemoryBudget) -> None:
        self.account = account
        self.happened: list[object] = []
        self.outbox = ByteQueue(account)
        self.closing = False  # nothing more is asked or answered
        self.ended = False
        self._write_buffer = write_buffer
        self._last_byte = now  # either way
        self._linger_until = NEVER
        self._forgotten = 0  # bytes that came after the end

    # For the driver.

    unread = False  # it takes all that it is given
    is_suspended = holds_back = False  # it ends with its transport

    @property
    def wants_data(self) -> bool:
        return self.outbox.size <= self._write_buffer or self.closing

    @property
    def wants_eof(self) -> bool:
        return self.closing and not self.outbox.count

    @property
    def queued_bytes(self) -> int:
        return self.outbox.size

    def reports(self) -> list[object]:
        """Return the reports since the last call."""
        happened, self.happened = self.happened, []
        return happened

    def receive_data(self, data: bytes, now: float) -> None:
        self._last_byte = now
        if self.closing:
            # Read and forgotten, because unread bytes would have the system reset the
            # connection and lose what we wrote last. A side that goes on and on does not
            # read that anyway.
            self._forgotten += len(data)
            if self._forgotten > MOST_FORGOTTEN:
                self._hang_up()
            return
        try:
            self._receive(data, now)
        except RemoteProtocolError as error:
            self._fail(CloseCode(error.code), error.reason, now)

    def receive_some(self, data: bytes, now: float) -> None:
        self.receive_data(data, now)

    def receive_eof(self, now: float) -> None:
        self._end(CloseCode.CONNECTION_LOST, "the transport ended")
        self._hang_up()

    def data_to_send(self, now: float) -> bytes:
        """Return 256 KiB or more to write, less if that is all."""
        if not self.outbox.count:
            return b""
        self._last_byte = now
        return self.outbox.take(FLUSH_SIZE)

    def next_deadline(self) -> float:
        if self.ended:
            return NEVER
        return self._linger_until if self.closing else self._next_deadline()

    def handle_deadline(self, now: float) -> None:
        if not self.closing:
            self._handle_deadline(now)
        elif now >= self._linger_until:
            self._hang_up()  # the other side had its time to read and hang up

    def close(self, now: float, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then end. These dialects cannot carry a reason."""
        self._end(code, text, remote=False)
        self._shut(now)

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End now because of a violation or a bug."""
        self._end(code, reason, remote=False)
        self._hang_up()

    # For the dialects.

    @abstractmethod
    def _receive(self, data: bytes, now: float) -> None:
        """Process bytes; raises RemoteProtocolError for a violation."""

    @abstractmethod
    def _next_deadline(self) -> float: ...

    @abstractmethod
    def _handle_deadline(self, now: float) -> None: ...

    def _fail(self, code: CloseCode, reason: str, now: float) -> None:
        """End because of a violation, after sending queued data such as the error message."""
        self._end(code, reason, remote=False)
        self._shut(now)

    def _require_open(self) -> None:
        if self.closing:
            raise ConnectionClosedError(CloseCode.NORMAL, "the connection is closing")

    def _hang_up(self) -> None:
        self.ended = True
        self.outbox.clear()

    def _shut(self, now: float) -> None:
        self._linger_until = min(self._linger_until, now + CLOSE_LINGER)

    def _end(self, code: int, reason: str, *, remote: bool = True) -> None:
        """Report the end, once."""
        if not self.closing:
            self.closing = True
            self.happened.append(ConnectionEnded(code, "", remote, reason))


class ByteQueue:
    """Byte strings to be written, charged to `account`: `size` in bytes, `count` in strings.

    Views of received data may be queued; they keep it alive until it is copied into the written
    data.
    """

    __slots__ = ("_account", "_queue", "count", "size", "waker")

    def __init__(self, account: MemoryBudget) -> None:
        self._account = account
        self._queue: deque[bytes | memoryview] = deque()
        self.count = 0
        self.size = 0
        self.waker = Waker()

    def put(self, data: bytes | memoryview) -> None:
        self._queue.append(data)
        self._account.charge(len(data) + FRAMES_WEIGHT)
        self.count += 1
        self.size += len(data)
        waker = self.waker
        if self.count >= waker.count or self.size >= waker.size:
            waker.wake()

    def take(self, limit: int) -> bytes:
        """Return `limit` bytes or a little more, less if that is all."""
        queue = self._queue
        if self.size <= limit:
            data = b"".join(queue)
            self.clear()
            return data
        parts: list[bytes | memoryview] = []
        size = 0
        while size < limit:  # more than that waits, so the queue is not empty
            part = queue.popleft()
            parts.append(part)
            size += len(part)
        self._account.release(size + FRAMES_WEIGHT * len(parts))
        self.count -= len(parts)
        self.size -= size
        return b"".join(parts)

    def clear(self) -> None:
        self._queue.clear()
        self._account.release(self.size + FRAMES_WEIGHT * self.count)
        self.count = self.size = 0


# From what came and where in it a frame begins: the size of the whole frame in bytes.
Measure = Callable[[bytes, int], int]


class FrameSplitter:
    """Splits bytes into frames. `measure` returns a frame's whole length from its first `head_size`
    bytes, or raises as soon as the length is known to be invalid."""

    __slots__ = ("_head_size", "_measure", "_needed", "_pending")

    def __init__(self, head_size: int, measure: Measure) -> None:
        self._head_size = head_size
        self._measure = measure
        self._pending = bytearray()
        self._needed = head_size  # with fewer bytes there is nothing to do

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Add bytes; yields views of the complete frames.

        Raises:
            RemoteProtocolError: as `measure`, after the frames before.
        """
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return
            data = bytes(pending)
            pending.clear()
        view, measure, head_size = memoryview(data), self._measure, self._head_size
        at, end = 0, len(data)
        needed = head_size
        while end - at >= head_size:
            size = measure(data, at)
            if end - at < size:
                needed = size
                break
            yield view[at : at + size]
            at += size
        self._pending += view[at:]
        self._needed = needed

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)
