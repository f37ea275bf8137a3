"""An open file that threads use, and that its owner may close at any time.

A closed descriptor is never used again. An event loop may cancel a task whose thread still writes;
without the lock that thread would write to the next file with the same descriptor. Every method may
wait for the disk, and raises OSError, also once closed.
"""

import errno
import os
import threading


class OpenFile:
    """Owns a descriptor. Its operations come one at a time."""

    __slots__ = ("_fd", "_lock")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; none at the end."""
        with self._lock:
            return os.pread(self._number(), size, offset)

    def write(self, offset: int, data: memoryview) -> int:
        """Write at `offset`; returns how many bytes were."""
        with self._lock:
            return os.pwrite(self._number(), data, offset)

    def truncate(self) -> None:
        """Make it empty."""
        with self._lock:
            os.ftruncate(self._number(), 0)

    def sync(self) -> None:
        """Have it on the disk."""
        with self._lock:
            os.fsync(self._number())

    def status(self) -> os.stat_result:
        """What it is."""
        with self._lock:
            return os.fstat(self._number())

    def close(self) -> None:
        """Give up the number, after the operation that uses it; again does nothing."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _number(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fd
