"""The user's directory of files (key, known peers, accounts, contexts), and small files that
several processes change.

These files are replaced atomically, under a lock, and keep their owners and modes. Root changes
none in a directory of another user, who could redirect the change, and could not use new files.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Final

from parley._crypto import files
from parley._node.errors import ConfigError, ParleyError, os_reason


def home_directory() -> Path:
    """Return `$PARLEY_HOME` or ~/.config/parley.

    Raises:
        ConfigError: the home directory cannot be found.
    """
    home = os.environ.get("PARLEY_HOME")
    try:
        return Path(home or "~/.config/parley").expanduser()
    except RuntimeError as error:
        raise ConfigError("cannot find the home directory; set PARLEY_HOME") from error


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file without symbolic links: otherwise a link would be
    replaced, and have a separate lock.

    Links that another user could change are not followed for root, for which `locked` refuses them.
    """
    absolute = Path(path).absolute()
    try:
        files.check_owners(absolute)
    except OSError:
        return absolute
    return Path(os.path.realpath(absolute))


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, accessible to the owner only.

    Raises:
        OSError: one can't be created, or this process is root and another user owns one of them.
    """
    files.check_owners(directory)
    # `Path.mkdir(parents=True)` applies its mode to the last level only.
    missing = [level for level in (directory, *directory.parents) if not level.exists()]
    for level in reversed(missing):
        level.mkdir(0o700, exist_ok=True)


LOCK_TIMEOUT: Final = 5.0  # seconds to wait for another process
LOCK_PAUSE: Final = 0.01


@contextmanager
def locked(path: Path, error: type[ParleyError], *, timeout: float | None = None) -> Iterator[None]:
    """Lock a file while the context is active, creating its directory if needed.

    The lock is a separate file, because the file itself is replaced. Raises `error` if locking
    fails or takes longer than `timeout` seconds (5 by default).
    """
    lock = path.with_name(path.name + ".lock")
    try:
        make_directories(path.parent)
        # Not through a link, which could lead to any file.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(lock, flags, 0o600)
    except OSError as cause:
        raise error(f"cannot open {lock}: {os_reason(cause)}") from cause
    try:
        try:
            _lock(descriptor, LOCK_TIMEOUT if timeout is None else timeout)
        except OSError as cause:
            raise error(f"cannot lock {lock}: {os_reason(cause)}") from cause
        yield
    finally:
        # Closing unlocks. If the file were removed, two processes could each have a lock.
        os.close(descriptor)


def replace_file(path: Path, data: bytes, error: type[ParleyError]) -> os.stat_result:
    """Replace a file with `data`, or create it with mode 0600. Return the status of the new file.

    The caller must have locked it. Raises `error` if it cannot be written.
    """
    try:
        return files.replace_file(path, data, keep_access=True)
    except OSError as cause:
        raise error(f"cannot write {path}: {os_reason(cause)}") from cause


# Device, inode, size, times of modification and change: identifies a state of a file.
FileStamp = tuple[int, int, int, int, int]


def file_stamp(status: os.stat_result) -> FileStamp:
    """Return what identifies the state of a file."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def current_stamp(path: Path, error: type[ParleyError]) -> FileStamp | None:
    """Return the stamp of a file without reading it, or None without a file.

    Raises `error` if it cannot be found.
    """
    try:
        return file_stamp(os.stat(path))
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise error(f"cannot read {path}: {os_reason(cause)}") from cause


def read_file(
    path: Path, max_size: int, error: type[ParleyError]
) -> tuple[bytes, FileStamp | None]:
    """Return the content of a file, and its stamp from before it was read; a missing file is empty
    and has none.

    Raises `error` if it cannot be read, is not a regular file, or has more than `max_size` bytes.
    """
    try:
        # Non-blocking: a pipe at that path would otherwise block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            # `open` raises for a directory, and leaves its descriptor open.
            if not stat.S_ISREG(status.st_mode):
                raise error(f"cannot read {path}: it is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(max_size + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return b"", None
    except OSError as cause:
        raise error(f"cannot read {path}: {os_reason(cause)}") from cause
    if len(data) > max_size:
        raise error(f"cannot read {path}: it is longer than {max_size:,} bytes")
    return data, file_stamp(status)


def to_seconds(time: datetime) -> datetime:
    """Return a time in UTC without the fraction of its second."""
    return time.astimezone(UTC).replace(microsecond=0)


def utc_text(time: datetime) -> str:
    """Return a time in UTC as text, with seconds and `Z` at its end."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def read_utc(text: str, what: str, error: type[ParleyError]) -> datetime:
    """Return the time in a file; raise `error` if the text is not a time in UTC. `what` names it in
    the error.
    """
    shown = ascii(text)[:40]
    try:
        time = datetime.fromisoformat(text)
    except ValueError as cause:
        raise error(f"invalid {what} {shown}: expected ISO 8601") from cause
    if time.utcoffset() != timedelta(0):
        raise error(f"invalid {what} {shown}: expected UTC, with Z at its end")
    return time


def _lock(descriptor: int, timeout: float) -> None:
    """Lock a file, or raise BlockingIOError after `timeout` seconds."""
    for _ in range(round(timeout / LOCK_PAUSE)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(LOCK_PAUSE)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
