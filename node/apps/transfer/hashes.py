"""SHA-256 of files, in threads and in pieces that can be cancelled; and what a receiver has to hash
because a peer asks for it, remembered and rationed.

An offer is a few bytes, so the file that it names is read once for as long as it stays unchanged,
and no faster for one peer than its ration.
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

# Of one peer: what it may have hashed each second, and at once if it asked for nothing lately.
BYTES_PER_SECOND: Final = 128 * 1024 * 1024  # a tenth of a core
BURST: Final = 32 * 1024 * 1024
# Files whose hashes are remembered; beyond it the one that was not asked for longest is not.
REMEMBERED: Final = 4_096
# A file that changed so lately may change again without another time of change: that of some
# file systems counts in steps of 2 s.
SETTLED_NS: Final = 2_000_000_000

# What one thread's turn reads and hashes: some 5 ms.
HASH_PIECE = 8 * 1024 * 1024
READ_PIECE = 1024 * 1024

_Key = tuple[int, int, int, int, int]


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


class Hashes:
    """The running SHA-256 of whole files, by device, inode, size and both times of change: any
    program can set the mtime, and only the system the ctime."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._known: OrderedDict[_Key, Digest] = OrderedDict()
        # Until when each peer has used up what it may have hashed, on the loop's clock.
        self._used: dict[str, float] = {}

    async def of(self, file: OpenFile, who: str) -> tuple[Digest, int]:
        """The hash of all that is in a file, and how many bytes these are, for the peer `who`.

        Raises:
            OSError: it cannot be read.
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
        """Remember the hash of a file that nobody else changes."""
        key = _key(found)
        self._known[key] = digest.copy()
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _ration(self, who: str, size: int) -> None:
        """Wait until the peer may have `size` bytes more hashed."""
        now = anyio.current_time()
        fresh = now - BURST / BYTES_PER_SECOND
        for other in [other for other, used in self._used.items() if used <= fresh]:
            del self._used[other]
        self._used[who] = used = self._used.get(who, fresh) + size / BYTES_PER_SECOND
        await anyio.sleep(max(0.0, used - now))


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
