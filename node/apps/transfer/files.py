"""An open file that several threads can use and that its owner can close at any time.

A lock prevents the use of a closed descriptor. The event loop may cancel a task while its thread is
still writing; without the lock, that thread could write to another file with the same descriptor.
Every method may block on the disk, and raises OSError, also after closing.
"""

import errno
import os
import threading


class OpenFile:
    """An owned file descriptor, whose operations run one at a time."""

    __slots__ = ("_fd", "_lock")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; empty at the end."""
        with self._lock:
            return os.pread(self._number(), size, offset)

    def write(self, offset: int, data: memoryview) -> int:
        """Write at `offset` and return the number of written bytes."""
        with self._lock:
            return os.pwrite(self._number(), data, offset)

    def truncate(self) -> None:
        """Truncate the file to zero bytes."""
        with self._lock:
            os.ftruncate(self._number(), 0)

    def sync(self) -> None:
        """Flush the file to disk."""
        with self._lock:
            os.fsync(self._number())

    def status(self) -> os.stat_result:
        """Return the status of the file."""
        with self._lock:
            return os.fstat(self._number())

    def close(self) -> None:
        """Close the descriptor after the operation in progress; further calls do nothing."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _number(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fd
