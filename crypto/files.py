"""Create and replace small private files, so that a crash leaves the old or the new file.

A replacement is written to a hidden file in the same directory, flushed to the disk, and renamed.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from parley._crypto.randomness import random_bytes
from parley._lbm.errors import os_reason

_NAME_SIZE: Final = 8  # random bytes in the name of a temporary file
# Errors of file systems that cannot flush a directory.
_NO_DIRECTORY_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)
_PERMISSIONS: Final = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO


def create_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Create a file of mode 0600 with `data`, flushed to the disk.

    Raises:
        FileExistsError: there is a file, or a symbolic link, at `path`.
        OSError: it can't be written; no file is left behind.
    """
    with _new_file(path, data):
        pass


def replace_file(
    path: Path,
    data: bytes,
    check: Callable[[Path], object] | None = None,
    *,
    keep_access: bool = False,
) -> os.stat_result:
    """Replace a file, or create it, with mode 0600. Return the status of the new file.

    The caller must have locked it: temporary files that killed processes left behind are removed.

    Args:
        path: the file; a symbolic link is replaced, not followed.
        data: the new content.
        check: called with the path of the temporary file before it replaces the old one; if it
            raises, the old file stays.
        keep_access: keep the owner, group and mode of the old file as far as this process may. A
            file that root creates gets the owner and group of its directory. So a service can use a
            file that root has changed. Not for secrets.

    Raises:
        OSError: the file can't be replaced. It is unchanged, unless the error says otherwise, and
            no temporary file is left behind.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove_leftovers(path)
        fresh = path.with_name(f".{path.name}.{random_bytes(_NAME_SIZE).hex()}.new")
        set_access = partial(_keep_access, path) if keep_access else _leave_private
        with _new_file(fresh, data, set_access) as descriptor:
            if check is not None:
                check(fresh)
            os.rename(fresh, path)
            status = os.fstat(descriptor)  # a rename changes the ctime
        try:
            sync_directory(directory)
        except OSError as error:
            reason = (
                "the new file is in place, but its directory cannot be flushed "
                f"({os_reason(error)}), so a power failure can restore the old file"
            )
            raise OSError(error.errno, reason) from error
    finally:
        os.close(directory)
    return status


def sync_directory(descriptor: int) -> None:
    """Flush the names in an open directory to the disk, where the file system supports it; raises
    OSError.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise


def set_owner(descriptor: int, directory: Path) -> None:
    """Give a new file in a directory to the directory's owner and group, if this process is root.

    The descriptor must be of a file that this process has just created: the owner of the directory
    could have put any other file in its place.
    """
    if os.geteuid() != 0:
        return
    owner = os.stat(directory)
    if owner.st_uid != 0:
        # Root may lack the right, for example in a container or on a network file system.
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _leave_private(descriptor: int) -> None:
    """Leave a new file as it is: its owner is this process, and its mode 0600."""


def _keep_access(path: Path, descriptor: int) -> None:
    """Give a new file the owner, group and mode of the file at `path`, which it replaces, as far as
    this process may.
    """
    try:
        old = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        old = None
    if old is None or not stat.S_ISREG(old.st_mode):
        set_owner(descriptor, path.parent)
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            try:
                os.fchown(descriptor, -1, old.st_gid)
            except OSError:
                return  # the permissions of its group are not meant for another one
    os.fchmod(descriptor, old.st_mode & _PERMISSIONS)


@contextmanager
def _new_file(
    path: str | os.PathLike[str],
    data: bytes,
    set_access: Callable[[int], None] = _leave_private,
) -> Iterator[int]:
    """Create a file and yield its open descriptor; remove the file if anything fails. `set_access`
    can change its owner and mode.
    """
    # O_EXCL doesn't follow symbolic links and guarantees that we own the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # a umask may have removed the owner's own permissions
            file.write(data)
            file.flush()
            set_access(descriptor)
            os.fsync(descriptor)
            yield descriptor
    except BaseException:
        with suppress(FileNotFoundError):  # renamed already
            os.unlink(path)
        raise


def _remove_leftovers(path: Path) -> None:
    start, end, size = f".{path.name}.", ".new", 2 * _NAME_SIZE
    for name in os.listdir(path.parent):
        middle = name.removeprefix(start).removesuffix(end)
        if name == f"{start}{middle}{end}" and len(middle) == size and _is_hex(middle):
            with suppress(OSError):  # such as a directory, which isn't ours
                path.with_name(name).unlink()


def _is_hex(text: str) -> bool:
    return not set(text) - set("0123456789abcdef")
