"""Frames: `u32 length || event`, cut from whatever pieces the transport brings.

A frame that is too long is refused from its length, before its body is
buffered (docs/protocol.md section 2).
"""

from collections.abc import Iterator
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
    `feed(b"")` has something to look at: a caller stopped in the middle.
    """

    __slots__ = ("_at", "_need", "_pieces", "limit", "size", "unread")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # the longest event, bytes; may be raised between events
        self._pieces: list[bytes | bytearray] = []
        self._at = 0  # of the first piece, what was handed out
        self.size = 0
        self._need = FRAME_HEADER_SIZE
        self.unread = False

    def feed(self, data: bytes) -> Iterator[bytes | memoryview]:
        """Take `data` and yield the events that are complete, one at a time; long ones as
        views, which keep what came with them alive.

        What is not asked for stays buffered: a caller that stops in the middle goes
        on with `feed(b"")`.

        Raises:
            RemoteProtocolError: `frame-too-large`.
        """
        position = 0
        if self.size:
            self.hold(data)
            if self.size < self._need:
                return
            # A long frame arrives in many pieces. They are joined once, when it is whole.
            pieces, position = self._pieces, self._at
            if len(pieces) == 1:
                data = bytes(pieces[0])
            else:
                pieces[0], position = pieces[0][position:], 0
                data = b"".join(pieces)
        end, need = len(data), FRAME_HEADER_SIZE
        try:
            while end - position >= FRAME_HEADER_SIZE:
                (size,) = _unpack_length(data, position)
                if size > self.limit:
                    raise too_large(f"{size} bytes where {self.limit} are allowed")
                start = position + FRAME_HEADER_SIZE
                stop = start + size
                if stop > end:
                    need += size
                    break
                position = stop
                if size < _LARGE_EVENT:
                    yield data[start:stop]
                else:
                    yield memoryview(data)[start:stop]
            if position:  # what is left waits for more: without what was handed out
                data, position, end = data[position:], 0, end - position
        finally:
            # Also when the caller stops asking or an event makes it raise.
            if need == FRAME_HEADER_SIZE <= end - position:
                (size,) = _unpack_length(data, position)
                if size <= self.limit:  # if not, the next `feed` says so
                    need += size
            self._need = need
            self.size = end - position
            self.unread = self.size >= need
            self._pieces, self._at = ([data], position) if position < end else ([], 0)

    def hold(self, data: bytes) -> None:
        """Take `data` and look at it only when `feed` is called next."""
        if not data:
            return
        pieces = self._pieces
        if pieces and len(data) < _SMALL_PIECE:
            # Each piece has a cost of its own: a frame in crumbs is collected in one.
            if type(pieces[-1]) is not bytearray:
                pieces.append(bytearray())
            pieces[-1] += data
        else:
            pieces.append(data)
        self.size += len(data)
        self.unread = self.size >= self._need

    def rest(self) -> bytes:
        """What is buffered, which stays."""
        return b"".join(self._pieces)[self._at :]

    def clear(self) -> None:
        """Forget what is buffered."""
        self._pieces = []
        self._at = self.size = 0
        self._need = FRAME_HEADER_SIZE
        self.unread = False
