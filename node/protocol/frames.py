"""Splits a byte stream into frames, `u32 length || event` (docs/protocol.md section 2).

An oversized frame is rejected by its length, before its body is buffered.
"""

from struct import Struct
from typing import Final

from parley._node.protocol.errors import too_large
from parley._node.protocol.limits import FRAME_HEADER_SIZE

_LENGTH: Final = Struct(">I")
_unpack_length: Final = _LENGTH.unpack_from
_SMALL_PIECE: Final = 4_096
# Longer events are returned as views instead of copies.
_LARGE_EVENT: Final = 4_096


def frame(event: bytes) -> bytes:
    return _LENGTH.pack(len(event)) + event


class FrameReader:
    """Splits a byte stream into events. Buffers at most one frame and one received piece.

    `size` is the number of received bytes that `take` hasn't returned yet. If `unread`, `take` may
    return an event or raise.
    """

    __slots__ = ("_at", "_more", "_need", "data", "limit", "size", "unread")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # bytes of the longest event; can be raised between events
        self.data = b""
        self._at = 0  # number of bytes of `data` that were returned
        self._more: list[bytes | bytearray] = []  # received after `data`
        self.size = 0
        self._need = (
            FRAME_HEADER_SIZE  # bytes of the next frame; of its header until the length is known
        )
        self.unread = False

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if not data:
            return
        if not self.size:
            self.data, self._at = data, 0
        elif len(data) >= _SMALL_PIECE:
            self._more.append(data)
        else:
            # Each piece has an overhead, so very small pieces are merged into one.
            more = self._more
            if not more or type(more[-1]) is not bytearray:
                more.append(bytearray())
            more[-1] += data
        self.size += len(data)
        self.unread = self.size >= self._need

    def take(self) -> bytes | memoryview | None:
        """Return the next event if it is complete. A long event is a view, which keeps its buffer
        in memory.

        Raises:
            RemoteProtocolError: `frame-too-large`.
        """
        need, size = self._need, self.size
        if need == FRAME_HEADER_SIZE <= size:
            if len(self.data) - self._at < need:
                self._join_all()
            (length,) = _unpack_length(self.data, self._at)
            if length > self.limit:
                raise too_large(f"{length} bytes where {self.limit} are allowed")
            self._need = need = need + length
        if size < need:
            self.unread = False
            if self._at > len(self.data) // 2:
                # Drop the returned bytes, because the others may wait for a long time.
                self.data, self._at = self.data[self._at :], 0
            return None
        data, start, stop = self.data, self._at + FRAME_HEADER_SIZE, self._at + need
        if stop <= len(data):
            self._at = stop
        else:
            data, start, stop = self._join(need), FRAME_HEADER_SIZE, need
        self.size = size = size - need
        self._need = FRAME_HEADER_SIZE
        self.unread = size >= FRAME_HEADER_SIZE
        if not size:
            self.data, self._at = b"", 0
        return data[start:stop] if stop - start < _LARGE_EVENT else memoryview(data)[start:stop]

    def _join(self, need: int) -> bytes:
        """Remove the next frame of `need` bytes, which is in several pieces. Return bytes that
        begin with it. The pieces are joined only once, without the bytes after the frame.
        """
        last, left = self._more[-1], self.size - need
        if need < _LARGE_EVENT or left > len(last):
            self._join_all()
            self._at = need
            return self.data
        at = len(last) - left
        parts = memoryview(self.data)[self._at :], *self._more[:-1], memoryview(last)[:at]
        self._more = []
        self.data, self._at = (last, at) if isinstance(last, bytes) else (bytes(last[at:]), 0)
        return b"".join(parts)

    def _join_all(self) -> None:
        self.data, self._at, self._more = self.unread_bytes(), 0, []

    def unread_bytes(self) -> bytes:
        """Return the buffered bytes without removing them."""
        return b"".join((memoryview(self.data)[self._at :], *self._more))

    def clear(self) -> None:
        self.data = b""
        self._more = []
        self._at = self.size = 0
        self._need = FRAME_HEADER_SIZE
        self.unread = False


# First bytes of other protocols. Read as a frame, each would have a length above the limit. HTTP
# methods are from RFC 9110 (section 9) and RFC 5789, HTTP/2's preface from RFC 9113 (section 3.4).
# A TLS record has type 22 (handshake) or 21 (alert) and a version that begins with 3 (RFC 8446,
# section 5.1). SSH is RFC 4253, section 4.2.
_BEGINNINGS: Final = (
    *((method, "an HTTP client") for method in (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE")),
    *((method, "an HTTP client") for method in (b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")),
    (b"HTTP", "an HTTP server"),
    (b"\x16\x03", "TLS"),
    (b"\x15\x03", "TLS"),
    (b"SSH-", "SSH"),
)


def sniff_protocol(data: bytes) -> str:
    """Return the name of the other protocol whose traffic begins with `data` (at least 4 bytes), or
    "". Use it only in logs.
    """
    return next((name for beginning, name in _BEGINNINGS if data.startswith(beginning)), "")
