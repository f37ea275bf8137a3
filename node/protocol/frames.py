"""Frames: `u32 length || event`, cut from whatever pieces the transport brings.

A frame that is too long is refused from its length, before its body is
buffered (docs/protocol.md section 2).
"""

from struct import Struct
from typing import Final

from node.protocol.errors import too_large
from node.protocol.limits import FRAME_HEADER_SIZE

_LENGTH: Final = Struct(">I")
_unpack_length: Final = _LENGTH.unpack_from
_SMALL_PIECE: Final = 4_096
# Longer events are handed out where they are, uncopied.
_LARGE_EVENT: Final = 4_096


def frame(event: bytes) -> bytes:
    """`event` with its length in front."""
    return _LENGTH.pack(len(event)) + event


class FrameReader:
    """Cuts events from a byte stream. Holds at most one frame and one received piece.

    `size` counts the bytes received that belong to no event handed out yet; `unread` says that
    `take` has something to hand out, or to refuse.
    """

    __slots__ = ("_at", "_data", "_more", "_need", "limit", "size", "unread")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # the longest event, bytes; may be raised between events
        self._data = b""
        self._at = 0  # of `_data`, what was handed out
        self._more: list[bytes | bytearray] = []  # what came after it, while nothing is unread
        self.size = 0
        self._need = FRAME_HEADER_SIZE  # bytes of the next frame, as far as is known
        self.unread = False

    def feed(self, data: bytes) -> None:
        """Add what the transport brought; it stays until `take` has handed it out."""
        if not data:
            return
        more = self._more
        if not self.size:
            self._data, self._at = data, 0
        elif len(data) >= _SMALL_PIECE:
            more.append(data)
        else:
            # Each piece has a cost of its own: a frame in crumbs is collected in one.
            if not more or type(more[-1]) is not bytearray:
                more.append(bytearray())
            more[-1] += data
        self.size += len(data)
        if self.size >= self._need:
            self._look()

    def take(self) -> bytes | memoryview | None:
        """The next event, if it is complete; a long one as a view, which keeps what came with
        it alive.

        Raises:
            RemoteProtocolError: `frame-too-large`.
        """
        if self._need == FRAME_HEADER_SIZE:
            self._look()  # the limit may have risen
        if not self.unread:
            return None
        data, start = self._data, self._at + FRAME_HEADER_SIZE
        stop = self._at + self._need
        if start == stop:
            (size,) = _unpack_length(data, self._at)
            if size:
                raise too_large(f"{size} bytes where {self.limit} are allowed")
        self.size -= self._need
        self._at = stop
        self._look()
        if self.size < self._need:  # what is left waits for more: without what was handed out
            self._data, self._at = data[stop:], 0
        return data[start:stop] if stop - start < _LARGE_EVENT else memoryview(data)[start:stop]

    def _look(self) -> None:
        """Find out how long the next frame is, and whether all of it is there."""
        need = FRAME_HEADER_SIZE
        if self.size >= need:
            if self._more:
                # A long frame arrives in many pieces. They are joined once, when it is whole.
                self._data, self._at = self.rest(), 0
                self._more = []
            (size,) = _unpack_length(self._data, self._at)
            if size <= self.limit:  # if not, `take` says so
                need += size
        self._need = need
        self.unread = self.size >= need

    def rest(self) -> bytes:
        """What is buffered, which stays."""
        return b"".join((memoryview(self._data)[self._at :], *self._more))

    def clear(self) -> None:
        """Forget what is buffered."""
        self._data = b""
        self._more = []
        self._at = self.size = 0
        self._need = FRAME_HEADER_SIZE
        self.unread = False
