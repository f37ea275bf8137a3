"""The protocol between the sender and the receiver of a file: parsing and encoding, without I/O.

One stream with the label `parley.file`, opened by the sender, transfers one file:

    sender                                  receiver
      FileOffer(name, size, sha256) ->
                                   <-         Resume(offset, sha256 of these bytes)
      Begin(offset)                ->
      the bytes from there, Finish ->
                                   <-         Receipt(sha256, whether it is new), Finish

A message is its size as u16, then that many bytes of LBM (docs/protocol.md section 3) with
the application's cells 64 to 68; unknown cells are ignored. `Begin` repeats the offset of
`Resume` if the sender's file begins with the same bytes; otherwise its offset is 0. If the
receiver already has the file, the offset is its size. A side that refuses resets the stream
with a `RefusalCode` and a text. After an interruption the sender offers the file again.
Decoders only raise `MessageError`.
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
LARGEST_FILE: Final = 2**63 - 1  # the maximum size in file systems
LARGEST_MESSAGE: Final = 1_024  # bytes, excluding the size field
SIZE_BYTES: Final = 2
SHA256_SIZE: Final = 32

_LIMITS = LbmLimits(max_bytes=LARGEST_MESSAGE, max_items=32, max_depth=2)
_NAME, _SIZE, _SHA256, _OFFSET, _NEW = 64, 65, 66, 67, 68


class RefusalCode(IntEnum):
    """The reasons for refusing a file: the codes of the Reset."""

    MALFORMED = 64  # protocol violation
    UNSAFE_NAME = 65
    EXISTS = 66  # the name belongs to other content
    TOO_LARGE = 67
    BUSY = 68  # temporary; the sender can retry
    NO_SPACE = 69
    MISMATCH = 70  # the received content differs from the offer
    STORAGE = 71  # it cannot be written
    DECLINED = 72  # the receiver doesn't accept files from this sender


class MessageError(ParleyError):
    """Raised for bytes that are not the expected message."""


@dataclass(frozen=True, slots=True)
class FileOffer:
    """An offered file; `sha256` is the hash of the whole content."""

    name: str
    size: int
    sha256: bytes

    def encode(self) -> bytes:
        """Return the encoded message."""
        return _framed({_NAME: self.name, _SIZE: self.size, _SHA256: self.sha256})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the bytes after the size field; raise MessageError if they are invalid."""
        try:
            cells = decode(data, _LIMITS)
            name = read_text(cells, _NAME)
            size = read_uint(cells, _SIZE, maximum=LARGEST_FILE)
            sha256 = read_bytes(cells, _SHA256, size=SHA256_SIZE)
        except LbmDecodeError as error:
            raise MessageError(f"malformed offer: {error}") from error
        # Names that are only slightly too long pass, because the receiver explains all other rules.
        if len(name.encode()) > 2 * LONGEST_NAME:
            raise MessageError(
                f"malformed offer: the name {ascii(name)[:40]}.. has {len(name.encode()):,} bytes"
            )
        return cls(name, size, sha256)


@dataclass(frozen=True, slots=True)
class Resume:
    """The bytes that the receiver already has; `sha256` is the hash of the first `offset` bytes."""

    offset: int
    sha256: bytes

    def encode(self) -> bytes:
        """Return the encoded message."""
        return _framed({_OFFSET: self.offset, _SHA256: self.sha256})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the bytes after the size field; raise MessageError if they are invalid."""
        try:
            cells = decode(data, _LIMITS)
            offset = read_uint(cells, _OFFSET, maximum=LARGEST_FILE)
            return cls(offset, read_bytes(cells, _SHA256, size=SHA256_SIZE))
        except LbmDecodeError as error:
            raise MessageError(f"malformed resume: {error}") from error


@dataclass(frozen=True, slots=True)
class Begin:
    """The offset of the bytes that follow."""

    offset: int

    def encode(self) -> bytes:
        """Return the encoded message."""
        return _framed({_OFFSET: self.offset})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the bytes after the size field; raise MessageError if they are invalid."""
        try:
            return cls(read_uint(decode(data, _LIMITS), _OFFSET, maximum=LARGEST_FILE))
        except LbmDecodeError as error:
            raise MessageError(f"malformed begin: {error}") from error


@dataclass(frozen=True, slots=True)
class Receipt:
    """The confirmation that the file is complete; `new` is False if the receiver already had it."""

    sha256: bytes
    new: bool

    def encode(self) -> bytes:
        """Return the encoded message."""
        return _framed({_SHA256: self.sha256, _NEW: self.new})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the bytes after the size field; raise MessageError if they are invalid."""
        try:
            cells = decode(data, _LIMITS)
            return cls(read_bytes(cells, _SHA256, size=SHA256_SIZE), read_bool(cells, _NEW))
        except LbmDecodeError as error:
            raise MessageError(f"malformed receipt: {error}") from error


def message_size(prefix: bytes) -> int:
    """Parse the size field of a message; raise MessageError if it is invalid."""
    size = int.from_bytes(prefix, "big")
    if len(prefix) != SIZE_BYTES or not 1 <= size <= LARGEST_MESSAGE:
        raise MessageError(f"a message of {size} bytes; 1 to {LARGEST_MESSAGE} are allowed")
    return size


def _framed(cells: dict[int, str | int | bytes]) -> bytes:
    body = encode(cells)
    return len(body).to_bytes(SIZE_BYTES, "big") + body


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TransferRefused(ParleyError):
    """Raised to refuse a file; the sender receives `code` and `text`."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def storage_refusal(error: OSError) -> TransferRefused:
    """Return the refusal to send when the disk fails."""
    if error.errno in _FULL:
        return TransferRefused(RefusalCode.NO_SPACE, "the disk has no room for it")
    return TransferRefused(RefusalCode.STORAGE, "it cannot be written there")


M = TypeVar("M")


async def read_message(stream: ByteReceiveStream, decode: Callable[[bytes], M]) -> M:
    """Receive and parse the next message.

    Raises:
        MessageError: it is not the expected message, or the stream ended. Also the stream's errors.
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
