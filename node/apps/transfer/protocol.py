"""What the sender and the receiver of a file say to each other: pure, bytes to values and back.

One stream with the label `parley.file` carries one file, opened by its sender:

    sender                                  receiver
      FileOffer(name, size, sha256) ->
                                   <-         Resume(offset, sha256 of that much)
      Begin(offset)                ->
      the bytes from there, Finish ->
                                   <-         Receipt(sha256, whether it is new), Finish

A message is its size as u16, then that many bytes of LBM (docs/protocol.md section 3) with
the application's cells 64 to 68; unknown cells are ignored. `Begin` names the offset of
`Resume` if the sender's file begins with the same bytes, else 0. A file that is there
already is offered back whole. A side that refuses resets the stream with a `RefusalCode` and a
sentence; after a cut the sender offers again. A decoder raises `MessageError` alone.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self, TypeVar

import anyio
from anyio.abc import ByteReceiveStream

from parley._lbm.codec import decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import read_bool, read_bytes, read_text, read_uint
from parley._lbm.limits import LbmLimits
from parley._node.apps.transfer.names import LONGEST_NAME
from parley._node.errors import ParleyError

LABEL: Final = "parley.file"
LARGEST_FILE: Final = 2**63 - 1  # what file systems count with
LARGEST_MESSAGE: Final = 1_024  # bytes after its size
SIZE_BYTES: Final = 2
SHA256_SIZE: Final = 32

_LIMITS = LbmLimits(max_bytes=LARGEST_MESSAGE, max_items=32, max_depth=2)
_NAME, _SIZE, _SHA256, _OFFSET, _NEW = 64, 65, 66, 67, 68


class RefusalCode(IntEnum):
    """Why a receiver will not have a file: the code of its Reset."""

    MALFORMED = 64  # not what this file says
    UNSAFE_NAME = 65
    EXISTS = 66  # other content has that name
    TOO_LARGE = 67
    BUSY = 68  # now; it may be offered again
    NO_SPACE = 69
    MISMATCH = 70  # what came is not what was offered
    STORAGE = 71  # it cannot be written there
    DECLINED = 72  # whoever receives does not want files from this sender


class MessageError(ParleyError):
    """Bytes that are not the message that was to come."""


@dataclass(frozen=True, slots=True)
class FileOffer:
    """A file as its sender has it. `sha256` is that of the whole content."""

    name: str
    size: int
    sha256: bytes

    def encode(self) -> bytes:
        """The message."""
        return _framed({_NAME: self.name, _SIZE: self.size, _SHA256: self.sha256})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what follows the size; raises MessageError."""
        try:
            cells = decode(data, _LIMITS)
            name = read_text(cells, _NAME)
            size = read_uint(cells, _SIZE, maximum=LARGEST_FILE)
            sha256 = read_bytes(cells, _SHA256, size=SHA256_SIZE)
        except LbmDecodeError as error:
            raise MessageError(f"malformed offer: {error}") from error
        # What else a name must not be is for the receiver to say, in a clear sentence.
        if len(name.encode()) > 2 * LONGEST_NAME:
            raise MessageError(
                f"malformed offer: the name {ascii(name)[:40]}.. has {len(name.encode()):,} bytes"
            )
        return cls(name, size, sha256)


@dataclass(frozen=True, slots=True)
class Resume:
    """How much is there already; `sha256` is that of these first `offset` bytes."""

    offset: int
    sha256: bytes

    def encode(self) -> bytes:
        """The message."""
        return _framed({_OFFSET: self.offset, _SHA256: self.sha256})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what follows the size; raises MessageError."""
        try:
            cells = decode(data, _LIMITS)
            offset = read_uint(cells, _OFFSET, maximum=LARGEST_FILE)
            return cls(offset, read_bytes(cells, _SHA256, size=SHA256_SIZE))
        except LbmDecodeError as error:
            raise MessageError(f"malformed resume: {error}") from error


@dataclass(frozen=True, slots=True)
class Begin:
    """From where the bytes come that follow."""

    offset: int

    def encode(self) -> bytes:
        """The message."""
        return _framed({_OFFSET: self.offset})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what follows the size; raises MessageError."""
        try:
            return cls(read_uint(decode(data, _LIMITS), _OFFSET, maximum=LARGEST_FILE))
        except LbmDecodeError as error:
            raise MessageError(f"malformed begin: {error}") from error


@dataclass(frozen=True, slots=True)
class Receipt:
    """The file is in its place. `new` is false if it had been there before."""

    sha256: bytes
    new: bool

    def encode(self) -> bytes:
        """The message."""
        return _framed({_SHA256: self.sha256, _NEW: self.new})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what follows the size; raises MessageError."""
        try:
            cells = decode(data, _LIMITS)
            return cls(read_bytes(cells, _SHA256, size=SHA256_SIZE), read_bool(cells, _NEW))
        except LbmDecodeError as error:
            raise MessageError(f"malformed receipt: {error}") from error


def message_size(prefix: bytes) -> int:
    """The size that stands before a message; raises MessageError."""
    size = int.from_bytes(prefix, "big")
    if len(prefix) != SIZE_BYTES or not 1 <= size <= LARGEST_MESSAGE:
        raise MessageError(f"a message of {size} bytes; 1 to {LARGEST_MESSAGE} are allowed")
    return size


def _framed(cells: dict[int, str | int | bytes]) -> bytes:
    body = encode(cells)
    return len(body).to_bytes(SIZE_BYTES, "big") + body


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TransferRefused(ParleyError):
    """The sender is told `code` and `text`."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def storage_refusal(error: OSError) -> TransferRefused:
    """What a sender is told when the disk fails."""
    if error.errno in _FULL:
        return TransferRefused(RefusalCode.NO_SPACE, "the disk has no room for it")
    return TransferRefused(RefusalCode.STORAGE, "it cannot be written there")


M = TypeVar("M")


async def read_message(stream: ByteReceiveStream, decode: Callable[[bytes], M]) -> M:
    """The next message.

    Raises:
        MessageError: it is not what was to come, or the stream ended. The stream's own.
    """
    return decode(await _exactly(stream, message_size(await _exactly(stream, SIZE_BYTES))))


async def _exactly(stream: ByteReceiveStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            data += await stream.receive(size - len(data))
        except anyio.EndOfStream:
            raise MessageError(
                f"the stream ended after {len(data):,} of the {size:,} bytes of a message"
            ) from None
    return data
