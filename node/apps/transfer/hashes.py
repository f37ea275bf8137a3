"""SHA-256 of files, computed in threads and in cancellable pieces, cached and rate-limited.

A receiver hashes files at the request of peers, and an offer is only a few bytes. So unchanged
files are hashed only once, and the rate is limited for each peer.
"""

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, Self

import anyio
from anyio.to_thread import run_sync

from parley._node.apps.transfer.files import OpenFile

# Limits per peer: bytes hashed per second, and the burst after a pause.
BYTES_PER_SECOND: Final = 128 * 1024 * 1024  # a tenth of a core
BURST: Final = 32 * 1024 * 1024
# The number of cached hashes; the least recently used is dropped.
REMEMBERED: Final = 4_096
# A recently modified file may change again with the same timestamp, because the timestamps of some
# file systems have a resolution of 2 s.
SETTLED_NS: Final = 2_000_000_000

# Bytes read and hashed per call in a thread, about 5 ms.
HASH_PIECE = 8 * 1024 * 1024
READ_PIECE = 1024 * 1024

_Key = tuple[int, int, int, int, int]


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add data."""

    def digest(self) -> bytes:
        """Return the 32-byte digest of all data so far."""

    def copy(self) -> Self:
        """Return an independent copy."""


async def hash_prefix(
    file: OpenFile, size: int, ration: Callable[[int], Awaitable[None]] | None = None
) -> tuple[Digest, int]:
    """Return the running hash of the first `size` bytes, and the number of bytes that exist of
    them.

    `ration` is awaited before each piece, with the number of its bytes.

    Raises:
        OSError: the file cannot be read.
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


class Hashes:
    """A cache of the running SHA-256 of whole files.

    The key is device, inode, size, mtime and ctime. Programs can set the mtime, but only the system
    sets the ctime.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._known: OrderedDict[_Key, Digest] = OrderedDict()
        # By peer: the time on the loop's clock at which its hashing allowance is full again.
        self._used: dict[str, float] = {}

    async def of(self, file: OpenFile, who: str) -> tuple[Digest, int]:
        """Return the running hash of a whole file and its size, at the request of the peer `who`.

        Raises:
            OSError: the file cannot be read.
        """
        found = file.status()
        key = _key(found)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key].copy(), found.st_size

        async def ration(size: int) -> None:
            await self._ration(who, size)

        digest, size = await hash_prefix(file, found.st_size, ration)
        changed = max(found.st_mtime_ns, found.st_ctime_ns)
        if self._clock() - changed > SETTLED_NS and _key(file.status()) == key:
            self.keep(found, digest)
        return digest, size

    def keep(self, found: os.stat_result, digest: Digest) -> None:
        """Cache the hash of a file that no other program changes."""
        key = _key(found)
        self._known[key] = digest.copy()
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _ration(self, who: str, size: int) -> None:
        """Wait until the rate limit of the peer allows `size` more bytes."""
        now = anyio.current_time()
        fresh = now - BURST / BYTES_PER_SECOND
        for other in [other for other, used in self._used.items() if used <= fresh]:
            del self._used[other]
        self._used[who] = used = self._used.get(who, fresh) + size / BYTES_PER_SECOND
        await anyio.sleep(max(0.0, used - now))


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
