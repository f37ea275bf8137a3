"""A file while it arrives: locked, written from one place, hashed as it grows.

One rule: one writer at a time, in all processes. Everything but `is_file` may wait for
the disk: it is called in threads. Does not know where it will be placed.
"""

import fcntl
import hashlib
import os
import stat

from node.cli.transfer.hashing import Digest, hash_prefix
from node.cli.transfer.protocol import RefusalCode
from node.cli.transfer.refusal import Refusal


class Partial:
    """`size` bytes are written; the descriptor is its own until `close`."""

    __slots__ = ("_digest", "_fd", "name", "size")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.size = 0
        self._digest: Digest = hashlib.sha256()

    def take_over(self, largest: int) -> None:
        """Lock it and see how much is there; what is longer than the file begins anew.

        Raises:
            Refusal: another process writes it, or it is not a file of ours alone. OSError.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(RefusalCode.BUSY, "the same file is just arriving") from None
        found = os.fstat(self._fd)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        # One that has a second name is somebody's who would see it change.
        if not ours or found.st_nlink != 1:
            raise Refusal(RefusalCode.STORAGE, "it cannot be written there")
        self.size = found.st_size
        if self.size > largest:
            self.restart()

    async def hash(self) -> bytes:
        """The SHA-256 of what is there, from which writing goes on; raises OSError."""
        self._digest, self.size = await hash_prefix(self._fd, self.size)
        return self._digest.digest()

    def restart(self) -> None:
        """Drop what is there; raises OSError."""
        os.ftruncate(self._fd, 0)
        self.size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes | bytearray) -> None:
        """Append; raises OSError, with what was written counted."""
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], self.size + done)
        finally:
            self.size += done
            self._digest.update(bytes(view[:done]) if done < len(view) else data)

    def digest(self) -> bytes:
        """The SHA-256 of what was hashed and written."""
        return self._digest.digest()

    def sync(self) -> None:
        """Have it on the disk; raises OSError."""
        os.fsync(self._fd)

    def is_file(self, found: os.stat_result) -> bool:
        """Whether that is this file."""
        mine = os.fstat(self._fd)
        return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Let others have it."""
        os.close(self._fd)
