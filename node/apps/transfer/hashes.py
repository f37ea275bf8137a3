"""What a receiver hashes because somebody asks for it: remembered, and rationed.

One rule: an offer is a few bytes, so the file that it names is read once for as long as it
stays as it is, and no faster for one peer than its ration. Knows no streams.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import anyio

from node.apps.transfer.files import OpenFile
from node.apps.transfer.hashing import Digest, hash_prefix

# Of one peer: what it may have hashed each second, and at once if it asked for nothing lately.
BYTES_PER_SECOND: Final = 128 * 1024 * 1024  # a tenth of a core
BURST: Final = 32 * 1024 * 1024
# Files whose hashes are remembered; beyond it the one that was not asked for longest is not.
REMEMBERED: Final = 4_096
# A file that changed so lately may change again without another time of change: that of some
# file systems counts in steps of 2 s.
SETTLED_NS: Final = 2_000_000_000

_Key = tuple[int, int, int, int]


class Hashes:
    """The running SHA-256 of whole files, by device, inode, size and time of change."""

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
        if self._clock() - found.st_mtime_ns > SETTLED_NS and _key(file.status()) == key:
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
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
