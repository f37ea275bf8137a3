"""Load over raw sockets: as much as answers allow, or one request after another.

A generator writes and counts large pieces and parses nothing, so that the server is what
is measured; more than a window of requests is never under way.
"""

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from benchmarks.dialects.wires import Wire

READ_SIZE = 1 << 18
WRITE_SIZE = 1 << 16
SILENCE = 2.0  # seconds after which what did not come is lost
PATIENCE = 20.0


def connect(address: str, hello: bytes) -> socket.socket:
    """A connection to tcp://host:port or unix:///path."""
    scheme, _, place = address.partition("://")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(place)
    else:
        host, _, port = place.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(PATIENCE)
    connection.sendall(hello)
    return connection


def read_answer(connection: socket.socket, wire: Wire) -> bytes:
    """One whole answer."""
    head = read_exactly(connection, wire.head_size)
    return head + read_exactly(connection, wire.answer_size(head) - len(head))


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes.

    Raises:
        ConnectionError: the server hung up.
    """
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the server hung up")
        parts += part
    return bytes(parts)


class Source:
    """A socket and the requests that are written to it, over and over; all have one size."""

    __slots__ = ("_at", "_block", "_request_size", "_size", "connection")

    def __init__(self, connection: socket.socket, requests: list[bytes]) -> None:
        self.connection = connection
        self._request_size = len(requests[0])
        self._size = len(b"".join(requests))
        repeats = 1 + WRITE_SIZE // self._size
        self._block = memoryview(b"".join(requests) * (repeats + 1))
        self._at = 0

    @property
    def rest(self) -> int:
        """What is missing of a request of which a part is written."""
        return -self._at % self._request_size

    def push(self, most: int) -> int:
        """Write at most so many bytes; how many the socket took."""
        part = self._block[self._at : self._at + min(most, WRITE_SIZE)]
        try:
            taken = self.connection.send(part)
        except BlockingIOError:
            return 0
        self._at = (self._at + taken) % self._size
        return taken


@dataclass(slots=True)
class Pump:
    """Keeps `window` requests under way from all sources together. Each of them is
    answered `copies` times, at whatever connection."""

    sources: list[Source]
    connections: list[socket.socket]
    request_size: int
    answer_size: int
    window: int
    copies: int = 1
    sent: int = 0  # bytes
    received: int = 0

    def run(self, seconds: float) -> tuple[float, float]:
        """For so long: answers a second, and the part of them that never came."""
        poll = select.poll()
        readers: dict[int, Callable[[memoryview], int]] = {}
        for connection in self.connections:
            connection.setblocking(False)
            poll.register(connection, select.POLLIN)
            readers[connection.fileno()] = connection.recv_into
        buffer = memoryview(bytearray(READ_SIZE))
        start = perf_counter()
        end = start + seconds
        while (now := perf_counter()) < end:
            self._read(poll, readers, buffer, 0 if self._write() else 1)
        value = self.received / self.answer_size / (now - start)
        self._finish(poll, readers, buffer)
        wanted = self.sent // self.request_size * self.copies
        return value, 1 - self.received / self.answer_size / (wanted or 1)

    @property
    def operations(self) -> int:
        """Answers up to now."""
        return self.received // self.answer_size

    def _write(self) -> int:
        """Write what the window allows; how many bytes that were."""
        written = 0
        under_way = self.sent - self.received * self.request_size // (
            self.answer_size * self.copies
        )
        room = self.window * self.request_size - under_way
        for source in self.sources:
            if room <= 0:
                break
            taken = source.push(room)
            written += taken
            room -= taken
        self.sent += written
        # Whoever was first has the least left of the window the next time.
        self.sources.append(self.sources.pop(0))
        return written

    def _read(
        self,
        poll: "select.poll",
        readers: dict[int, Callable[[memoryview], int]],
        buffer: memoryview,
        wait: int,
    ) -> None:
        for descriptor, _ in poll.poll(wait):
            size = readers[descriptor](buffer)
            if not size:
                raise ConnectionError("the server hung up")
            self.received += size

    def _finish(
        self,
        poll: "select.poll",
        readers: dict[int, Callable[[memoryview], int]],
        buffer: memoryview,
    ) -> None:
        """Write what is missing of requests, and read what is under way."""
        for source in self.sources:
            while rest := source.rest:
                self.sent += source.push(rest)
                self._read(poll, readers, buffer, 0)
        last, before = perf_counter(), self.received
        wanted = self.sent // self.request_size * self.copies * self.answer_size
        while self.received < wanted and perf_counter() - last < SILENCE:
            self._read(poll, readers, buffer, 50)
            if self.received > before:
                last, before = perf_counter(), self.received


def take_turns(
    request: Callable[[], None], answer: Callable[[], None], seconds: float
) -> list[float]:
    """One request after another: how many microseconds each took, in order of size."""
    taken: list[float] = []
    end = perf_counter() + seconds
    while (start := perf_counter()) < end:
        request()
        answer()
        taken.append((perf_counter() - start) * 1e6)
    return sorted(taken)


def percentile(ordered: list[float], part: float) -> float:
    """The value below which this part of them is."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
