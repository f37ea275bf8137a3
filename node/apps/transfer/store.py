"""The directory for received files, which is opened once.

Every name has passed `names.require_safe`, and is opened relative to the directory without
following links. Methods may block on the disk. They are called in threads, one at a time, even
while the store is being closed.
"""

import errno
import fcntl
import hashlib
import math
import os
import stat
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from parley._node.apps.transfer.files import OpenFile
from parley._node.apps.transfer.hashes import Digest, Hashes
from parley._node.apps.transfer.names import is_partial, partial_name, sender_key, split_partial
from parley._node.apps.transfer.protocol import FileOffer, RefusalCode, TransferRefused
from parley._node.fair_slots import FairSlots


class Partial:
    """A partial file with `size` bytes, locked until `close`.

    Raises:
        TransferRefused: another process is writing it, or it is not exclusively ours.
        OSError: it cannot be locked or read. In all cases the descriptor is closed.
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
            # Another name of the file would show its changes.
            if not ours or found.st_nlink > 1:
                raise TransferRefused(
                    RefusalCode.STORAGE, f"{name} is not a regular file of the receiver alone"
                )
        except BlockingIOError:
            self.close()
            raise TransferRefused(RefusalCode.BUSY, "the same file is just arriving") from None
        except BaseException:
            self.close()
            raise
        self.size = found.st_size

    async def hash(self, hashes: Hashes, who: str) -> bytes:
        """Return the SHA-256 of the current content, to which data is appended; raise OSError."""
        self._digest, self.size = await hashes.of(self._file, who)
        return self._digest.digest()

    def keep_hash(self, hashes: Hashes) -> None:
        """Cache the hash, for a sender that resumes or offers the file again; raise OSError."""
        with self._lock:
            found = self._file.status()
            if found.st_size == self.size:
                hashes.keep(found, self._digest)

    def restart(self) -> None:
        """Truncate the file; raise OSError."""
        self._file.truncate()
        self.size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes | bytearray) -> None:
        """Append data. If it raises OSError, the bytes written so far are counted and hashed."""
        rest = memoryview(data)
        with self._lock:  # a cancelled task may have left a thread that is still writing
            while rest:
                done = self._file.write(self.size, rest)
                self._digest.update(rest[:done])
                self.size += done
                rest = rest[done:]

    def digest(self) -> bytes:
        """Return the SHA-256 of all data hashed and written."""
        return self._digest.digest()

    def sync(self) -> None:
        """Flush the file to disk; raise OSError."""
        self._file.sync()

    def is_file(self, found: os.stat_result) -> bool:
        """Return whether a status belongs to this file."""
        mine = self._file.status()
        return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Close and unlock the file."""
        self._file.close()


# Maximum number of partial files of interrupted transfers, of all senders.
MOST_PARTIALS: Final = 256
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_WRITE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OWNER_ONLY = 0o600
# Errors of file systems without hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class FileStore:
    """A directory for received files.

    `force` allows a file to replace another with the same name. `max_size` is the maximum size of a
    file in bytes; with None, only the disk limits it.

    Example:

        from pathlib import Path
        from parley.transfer import FileReceiver, FileStore

        Path("inbox").mkdir()
        with FileStore(Path("inbox"), max_size=1_000_000) as store:
            FileReceiver(store).offer_on(node)

    Raises:
        OSError: it is not a writable directory.
    """

    def __init__(
        self, directory: Path, *, force: bool = False, max_size: int | None = None
    ) -> None:
        self.directory = directory
        self.force = force
        self.max_size = max_size
        self._lock = threading.RLock()  # for the same reason as in `OpenFile`
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not os.access(directory, os.W_OK | os.X_OK):
            os.close(self._fd)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def open_existing(self, offer: FileOffer) -> OpenFile | None:
        """Open the file with the offered name if its size is as offered, else return None.

        Raises:
            TransferRefused: the name belongs to other content, which must not be replaced.
            OSError: the file cannot be opened.
        """
        with self._lock:
            found = self._status(offer.name)
            if found is None:
                return None
            if stat.S_ISREG(found.st_mode) and found.st_size == offer.size:
                return OpenFile(os.open(offer.name, _READ, dir_fd=self._fd))
            self.require_replaceable(offer.name)
            return None

    def require_replaceable(self, name: str) -> None:
        """Raise TransferRefused if a file or directory with this name must not be replaced."""
        found = self._status(name)
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise TransferRefused(RefusalCode.EXISTS, "a directory has that name")
        if found is not None and not self.force:
            raise TransferRefused(RefusalCode.EXISTS, "another file has that name")

    def open_partial(self, offer: FileOffer, sender: str = "") -> Partial:
        """Open the partial file of an offer, begun by any sender, or create one; the caller closes
        it.

        If there are too many partial files, one is deleted: the oldest idle one of the sender with
        the most.

        Raises:
            TransferRefused: it is too large, the disk is full, or another process is writing it.
            OSError: it cannot be opened.
        """
        if self.max_size is not None and offer.size > self.max_size:
            raise TransferRefused(RefusalCode.TOO_LARGE, f"at most {self.max_size} bytes are taken")
        with self._lock:
            name = self._partial_name(offer, sender)
            partial = Partial(os.open(name, _READ_WRITE, _OWNER_ONLY, dir_fd=self._fd), name)
            try:
                self._require_usable(partial, offer.size)
            except BaseException:
                partial.close()
                raise
        return partial

    def place(self, partial: Partial, name: str) -> None:
        """Move a complete file to its final name, after flushing it to disk.

        Raises:
            TransferRefused: another file got the name meanwhile.
            OSError: it cannot be moved.
        """
        partial.sync()
        with self._lock:
            self.require_replaceable(name)
            if self.force:
                os.replace(partial.name, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            else:
                self._place_new(partial.name, name)
            os.fsync(self._fd)

    def discard(self, partial: Partial) -> None:
        """Delete a useless partial file, if it still exists."""
        with self._lock:
            if self._is_there(partial):
                os.unlink(partial.name, dir_fd=self._fd)

    def _require_usable(self, partial: Partial, size: int) -> None:
        if not self._is_there(partial):
            raise TransferRefused(RefusalCode.BUSY, "the same file has just arrived")
        if partial.size > size:
            partial.restart()
        room = os.fstatvfs(self._fd)
        if size - partial.size > room.f_bavail * room.f_frsize:
            if not partial.size:
                self.discard(partial)
            raise TransferRefused(
                RefusalCode.NO_SPACE,
                f"the disk has no room for {size - partial.size:,} bytes",
            )

    def _place_new(self, partial: str, name: str) -> None:
        try:
            # Unlike a rename, this fails if the name exists, even in other case.
            os.link(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
            os.unlink(partial, dir_fd=self._fd)
        except FileExistsError:
            raise TransferRefused(RefusalCode.EXISTS, "another file has that name") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._place_over_claim(partial, name)

    def _place_over_claim(self, partial: str, name: str) -> None:
        """Replace a new empty file, which reserves the name, on file systems without hard links."""
        claim = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(name, claim, _OWNER_ONLY, dir_fd=self._fd))
        except FileExistsError:
            raise TransferRefused(RefusalCode.EXISTS, "another file has that name") from None
        os.replace(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _is_there(self, partial: Partial) -> bool:
        """Return whether the name still belongs to this file; another process may have moved it."""
        found = self._status(partial.name)
        return found is not None and partial.is_file(found)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _partial_name(self, offer: FileOffer, sender: str) -> str:
        """Return the name of the partial file of an offer, after deleting others if there are too
        many.
        """
        names = list(filter(is_partial, os.listdir(self._fd)))
        content = split_partial(partial_name(offer.name, offer.size, offer.sha256))[0]
        for name in names:
            if split_partial(name)[0] == content:
                return name
        self._make_room(names, sender_key(sender) if sender else "")
        return partial_name(offer.name, offer.size, offer.sha256, sender)

    def _make_room(self, names: list[str], owner: str) -> None:
        partials: FairSlots[str] = FairSlots(self._changed_at, idle=0.0)
        for name in names:
            partials.add(name, split_partial(name)[1])
        excess = len(names) + 1 - MOST_PARTIALS
        while excess > 0:
            oldest = partials.evict_for(owner, math.inf)
            if oldest is None:
                raise TransferRefused(
                    RefusalCode.NO_SPACE, "too many transfers were begun and not finished"
                )
            excess -= self._discard_idle(oldest)

    def _changed_at(self, name: str) -> float:
        found = self._status(name)
        return 0.0 if found is None else found.st_mtime

    def _discard_idle(self, name: str) -> bool:
        """Delete a partial file; return False if it is being written or is not exclusively ours."""
        try:
            partial = Partial(os.open(name, _READ_WRITE, _OWNER_ONLY, dir_fd=self._fd), name)
        except (TransferRefused, OSError):
            return False
        try:
            self.discard(partial)
        finally:
            partial.close()
        return True
