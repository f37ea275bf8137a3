"""A file while it arrives: locked, written from one place, hashed as it grows.

It has one writer at a time, among all processes. Everything here may wait for the disk and is
called in threads.
"""

import fcntl
import hashlib
import os
import stat
import threading

from parley._node.apps.transfer.files import OpenFile
from parley._node.apps.transfer.hashes import Digest, Hashes
from parley._node.apps.transfer.protocol import Refusal, RefusalCode


class Partial:
    """`size` bytes are written; the file is its own until `close`.

    Raises:
        Refusal: another process writes it, or it is not a file of ours alone. OSError.
            The descriptor is closed then.
    """

    __slots__ = ("_digest", "_file", "_lock", "name", "size")

    def __init__(self, fd: int, name: str) -> None:
        self._file = OpenFile(fd)
        self._lock = threading.Lock()
        self.name = name
        self._digest: Digest = hashlib.sha256()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = self._file.status()
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            # Under a second name, somebody would see it change.
            if not ours or found.st_nlink > 1:
                raise Refusal(
                    RefusalCode.STORAGE, f"{name} is not a regular file of the receiver alone"
                )
        except BlockingIOError:
            self.close()
            raise Refusal(RefusalCode.BUSY, "the same file is just arriving") from None
        except BaseException:
            self.close()
            raise
        self.size = found.st_size

    async def hash(self, hashes: Hashes, who: str) -> bytes:
        """The SHA-256 of what is there, from which writing goes on; raises OSError."""
        self._digest, self.size = await hashes.of(self._file, who)
        return self._digest.digest()

    def keep_hash(self, hashes: Hashes) -> None:
        """Keep it for a sender that goes on, or offers the file again; raises OSError."""
        with self._lock:
            found = self._file.status()
            if found.st_size == self.size:
                hashes.keep(found, self._digest)

    def restart(self) -> None:
        """Drop what is there; raises OSError."""
        self._file.truncate()
        self.size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes | bytearray) -> None:
        """Append; raises OSError, with what was written counted and hashed."""
        rest = memoryview(data)
        with self._lock:  # a task that was cancelled may have left a thread that writes
            while rest:
                done = self._file.write(self.size, rest)
                self._digest.update(rest[:done])
                self.size += done
                rest = rest[done:]

    def digest(self) -> bytes:
        """The SHA-256 of what was hashed and written."""
        return self._digest.digest()

    def sync(self) -> None:
        """Have it on the disk; raises OSError."""
        self._file.sync()

    def is_file(self, found: os.stat_result) -> bool:
        """Whether that is this file."""
        mine = self._file.status()
        return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Let others have it."""
        self._file.close()
