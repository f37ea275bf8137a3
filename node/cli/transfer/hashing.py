"""SHA-256 of what a file begins with, in threads and in pieces that can be cancelled.

One rule: the event loop never waits for a disk, nor for more than one piece's hash.
"""

import hashlib
import os
from typing import Protocol

import anyio.to_thread

# What one thread's turn reads and hashes: some 5 ms.
HASH_PIECE = 8 * 1024 * 1024
READ_PIECE = 1024 * 1024


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes | bytearray, /) -> None:
        """Take more."""

    def digest(self) -> bytes:
        """The 32 bytes for all that was taken."""


async def hash_prefix(fd: int, size: int) -> tuple[Digest, int]:
    """The running hash of the first `size` bytes, and how many there were of them.

    Raises:
        OSError: it cannot be read.
    """
    digest, done = hashlib.sha256(), 0
    while done < size:
        step = min(HASH_PIECE, size - done)
        hashed = await anyio.to_thread.run_sync(_hash, digest, fd, done, step)
        done += hashed
        if hashed < step:
            break
    return digest, done


def read_at(fd: int, offset: int, size: int) -> bytes:
    """The bytes from `offset`: fewer than `size` only at the file's end."""
    pieces, done = [], 0
    while done < size:
        piece = os.pread(fd, min(READ_PIECE, size - done), offset + done)
        if not piece:
            break
        pieces.append(piece)
        done += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _hash(digest: Digest, fd: int, offset: int, size: int) -> int:
    done = 0
    while done < size:
        piece = os.pread(fd, min(READ_PIECE, size - done), offset + done)
        if not piece:
            break
        digest.update(piece)
        done += len(piece)
    return done
