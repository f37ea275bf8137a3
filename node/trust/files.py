"""Where a person's files are: their key, whom they know, their accounts and contexts."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Final

from parley._node.errors import ConfigError, ParleyError, os_reason


def home_directory() -> Path:
    """`$PARLEY_HOME` or ~/.config/parley; ConfigError where there is no home."""
    home = os.environ.get("PARLEY_HOME")
    try:
        return Path(home or "~/.config/parley").expanduser()
    except RuntimeError as error:
        raise ConfigError("there is no home directory: set PARLEY_HOME") from error


def make_directories(directory: Path) -> None:
    """Make what is missing of a directory, each level for the owner alone; OSError."""
    # `Path.mkdir(parents=True)` would give its mode to the last level only.
    missing = [level for level in (directory, *directory.parents) if not level.exists()]
    for level in reversed(missing):
        level.mkdir(0o700, exist_ok=True)


LOCK_TIMEOUT: Final = 5.0  # seconds to wait for another process that writes
LOCK_PAUSE: Final = 0.01


@contextmanager
def locked(path: Path, error: type[ParleyError]) -> Iterator[None]:
    """Hold the lock of a file, whose directory is made if need be. It is a file beside the other,
    since that one is replaced. Raises `error`: the lock cannot be had in 5 seconds."""
    lock = path.with_name(path.name + ".lock")
    try:
        make_directories(path.parent)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as cause:
        raise error(f"cannot open {lock}: {os_reason(cause)}") from cause
    try:
        try:
            _lock(descriptor)
        except OSError as cause:
            raise error(f"cannot lock {lock}: {os_reason(cause)}") from cause
        yield
    finally:
        # Closing unlocks. The file stays: to remove it would give the next two
        # processes a lock each.
        os.close(descriptor)


def replace_file(path: Path, data: bytes, error: type[ParleyError]) -> os.stat_result:
    """Replace a file by one of mode 0600 with this data; the caller holds the lock. Returns what
    the system says of the new one. Raises `error`: it cannot be written."""
    # One name is enough under the lock, and a crash leaves no more than one behind.
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(fresh, path)
            status = os.fstat(file.fileno())  # a rename changes the ctime
    except OSError as cause:
        raise error(f"cannot write {path}: {os_reason(cause)}") from cause
    return status


def _lock(descriptor: int) -> None:
    """Lock a file, waiting at most `LOCK_TIMEOUT` for its holder; else BlockingIOError."""
    for _ in range(round(LOCK_TIMEOUT / LOCK_PAUSE)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(LOCK_PAUSE)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
