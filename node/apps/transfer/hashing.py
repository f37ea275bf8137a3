"""SHA-256 of what a file begins with, in threads and in pieces that can be cancelled.

One rule: the event loop never waits for a disk, nor for more than one piece's hash.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from anyio.to_thread import run_sync

from node.apps.transfer.files import OpenFile

# What one thread's turn reads and hashes: some 5 ms.
HASH_PIECE = 8 * 1024 * 1024
READ_PIECE = 1024 * 1024


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Take more."""

    def digest(self) -> bytes:
        """The 32 bytes for all that was taken."""

    def copy(self) -> Self:
        """Another that has taken the same."""


async def hash_prefix(
    file: OpenFile, size: int, ration: Callable[[int], Awaitable[None]] | None = None
) -> tuple[Digest, int]:
    """The running hash of the first `size` bytes, and how many there were of them.

    `ration` is awaited before each piece, with its size in bytes.

    Raises:
        OSError: it cannot be read.
    """
    digest, done = hashlib.sha256(), 0
    while done < size:
        step = min(HASH_PIECE, size - done)
        if ration is not None:
            await ration(step)
        hashed = await run_sync(_hash, digest, file, done, step)
        done += hashed
        if hashed < step:
            break
    return digest, done


def _hash(digest: Digest, file: OpenFile, offset: int, size: int) -> int:
    done = 0
    while done < size:
        piece = file.read(offset + done, min(READ_PIECE, size - done))
        if not piece:
            break
        digest.update(piece)
        done += len(piece)
    return done
