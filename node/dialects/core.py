"""The base class of the foreign dialects' cores, with their send queue and frame splitter.

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
# Bytes that are read and discarded after the end before the transport is closed.
MOST_FORGOTTEN = 4 << 20


class ForeignCore(ABC):
    """One connection in a foreign dialect, on either side.

    Reading pauses while more than `write_buffer` bytes wait to be written. `account` is charged for
    the memory that the other side causes.
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
        self.closing = False  # no further requests or responses
        self.ended = False
        self._write_buffer = write_buffer
        self._last_byte = now  # time of the last byte in either direction
        self._linger_until = NEVER
        self._forgotten = 0  # bytes received after the end

    # For the driver.

    unread = False  # it consumes all data immediately
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
            # Read and discard: if bytes stayed unread, the operating system would reset the
            # connection and lose the last data written. A side that sends endlessly doesn't read
            # that data anyway.
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
        """Return at least 256 KiB to write, or everything if less is queued."""
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
            self._hang_up()  # the other side had time to read and close

    def close(self, now: float, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send the queued data, then end. These dialects have no message for a reason."""
        self._end(code, text, remote=False)
        self._shut(now)

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End immediately because of a violation or a bug."""
        self._end(code, reason, remote=False)
        self._hang_up()

    # Subclasses implement these.

    @abstractmethod
    def _receive(self, data: bytes, now: float) -> None:
        """Process received bytes.

        Raises:
            RemoteProtocolError: the bytes violate the protocol.
        """

    @abstractmethod
    def _next_deadline(self) -> float: ...

    @abstractmethod
    def _handle_deadline(self, now: float) -> None: ...

    def _fail(self, code: CloseCode, reason: str, now: float) -> None:
        """End because of a violation, after sending the queued data, such as the error message."""
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
        """Report the end once."""
        if not self.closing:
            self.closing = True
            self.happened.append(ConnectionEnded(code, "", remote, reason))


class ByteQueue:
    """Byte strings to be written, charged to `account`.

    `size` is their total size in bytes and `count` their number. The queue can contain views of
    received data, which stays in memory until it is copied into the written data.
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
        """Remove and return at least `limit` bytes, or everything if less is queued."""
        queue = self._queue
        if self.size <= limit:
            data = b"".join(queue)
            self.clear()
            return data
        parts: list[bytes | memoryview] = []
        size = 0
        while size < limit:  # the queue is longer than `limit`, so it is not empty
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


# Returns the size of the whole frame in bytes, given received data and the frame's index in it.
Measure = Callable[[bytes, int], int]


class FrameSplitter:
    """Splits received bytes into frames.

    `measure` returns the length of a frame from its first `head_size` bytes. It raises as soon as
    the length is known to be invalid.
    """

    __slots__ = ("_head_size", "_measure", "_needed", "_pending")

    def __init__(self, head_size: int, measure: Measure) -> None:
        self._head_size = head_size
        self._measure = measure
        self._pending = bytearray()
        self._needed = head_size  # fewer pending bytes don't complete anything

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Add bytes and yield views of the complete frames.

        Raises:
            RemoteProtocolError: a frame is invalid; raised after the frames before it were yielded.
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
