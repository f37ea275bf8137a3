"""Create and replace small private files, so that a crash leaves the old or the new file.

A replacement is written to a hidden file in the same directory, flushed to the disk, and renamed.
As root, this works only where no other user can redirect it.
"""

import errno
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from parley._crypto.randomness import random_bytes
from parley._lbm.errors import os_reason

_NAME_SIZE: Final = 8  # random bytes in the name of a temporary file
# Errors of file systems that cannot flush a directory.
_NO_DIRECTORY_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)
_MOST_LINKS: Final = 40  # on the way to a file, as Linux allows
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
        keep_access: keep the owner, group and mode of the old file as far as this process may. Not
            for secrets.

    Raises:
        OSError: the file can't be replaced, or this process is root and another user could redirect
            it (`check_owners`). The file is unchanged, unless the error says otherwise, and no
            temporary file is left behind.
    """
    check_owners(path.parent)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove_leftovers(path)
        fresh = path.with_name(f".{path.name}.{random_bytes(_NAME_SIZE).hex()}.new")
        with _new_file(fresh, data, access_of=path if keep_access else None) as descriptor:
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


def check_owners(path: Path) -> None:
    """Return if this process is not root, or no other user owns a directory or symbolic link on the
    way to `path`.

    The owner could put a link in its place at any moment, and so have root change files elsewhere.
    Files that root creates there could not be used by the owner anyway.

    Raises:
        PermissionError: another user owns one of them.
        OSError: the path can't be examined. A missing part of it is no error.
    """
    if os.geteuid() != 0:
        return
    # The owner of the root directory can change everything, and is not 0 in some containers.
    trusted = (0, os.stat("/").st_uid)
    path = path.absolute()
    for _ in range(_MOST_LINKS):
        for level in (*reversed(path.parents), path):
            try:
                status = os.lstat(level)
            except FileNotFoundError:
                return
            if status.st_uid not in trusted and not stat.S_ISREG(status.st_mode):
                user = _user_name(status.st_uid)
                reason = (
                    f"'{level}' belongs to the user {user}, who could redirect what root changes; "
                    f"run this as that user: sudo -u {user}"
                )
                raise PermissionError(errno.EPERM, reason)
            if stat.S_ISLNK(status.st_mode):
                path = level.parent / os.readlink(level) / path.relative_to(level)
                break
        else:
            return
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"'#{uid}'"


def _keep_access(path: Path, descriptor: int) -> None:
    """Give a new file the owner, group and mode of the file at `path`, which it replaces, as far as
    this process may.
    """
    try:
        old = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(old.st_mode):
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
    path: str | os.PathLike[str], data: bytes, access_of: Path | None = None
) -> Iterator[int]:
    """Create a file and yield its open descriptor; remove the file if anything fails. Its mode is
    0600, or it has the owner, group and mode of the file `access_of`.
    """
    # O_EXCL doesn't follow symbolic links and guarantees that we own the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # a umask may have removed the owner's own permissions
            file.write(data)
            file.flush()
            if access_of is not None:
                _keep_access(access_of, descriptor)
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
