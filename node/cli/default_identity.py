"""The user's own identity, created on first use and stored in $PARLEY_HOME.

If it cannot be saved, for example in a read-only home directory, the node gets a temporary identity
and the user is warned. A key file that exists but cannot be used is an error.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from parley._crypto.errors import KeyFileExistsError, KeyFileTooOpenError, KeyFileUnreadableError
from parley._crypto.files import sync_directory
from parley._crypto.identity import Identity
from parley._crypto.keyfile import describe_keyfile, load_identity, save_identity
from parley._node.errors import ConfigError, os_reason
from parley._node.trust.files import home_directory, locked, make_directories

_NAME: Final = "identity.key"
# Errors of file systems without hard links, such as FAT.
_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def default_key_path() -> Path:
    """Return `identity.key` in $PARLEY_HOME or ~/.config/parley; ConfigError without a home."""
    return home_directory() / _NAME


def default_identity(passphrase: bytes | None, warn: Callable[[str], object]) -> Identity:
    """Load the user's key. Create it if it doesn't exist, encrypted with the passphrase if there is
    one. If it cannot be created, call `warn` and return a temporary identity.

    Raises:
        KeyFileError: the key exists and cannot be used.
    """
    try:
        path = default_key_path()
        if not os.path.lexists(path):
            with suppress(KeyFileExistsError):  # another process has just created it
                create_default_key(path, Identity.create(), passphrase)
    except (ConfigError, KeyFileUnreadableError, OSError) as error:
        why = os_reason(error) if isinstance(error, OSError) else str(error)
        warn(
            f"cannot save the key ({why}): using a temporary identity, so peers will not recognise "
            "this node next time"
        )
        return Identity.create()
    return load_identity(path, passphrase)


def create_default_key(path: Path, identity: Identity, passphrase: bytes | None) -> None:
    """Create a key file atomically, because other processes may read it at any time.

    Raises:
        KeyFileExistsError: it exists.
        ConfigError, KeyFileUnreadableError, OSError: it cannot be created.
    """
    make_directories(path.parent)
    with TemporaryDirectory(prefix=".key-", dir=path.parent) as directory:
        fresh = Path(directory, _NAME)
        save_identity(fresh, identity, passphrase)
        try:
            _link(fresh, path)
        except FileExistsError as error:
            raise KeyFileExistsError(
                f"cannot create the key file '{path}': it exists already"
            ) from error
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        sync_directory(descriptor)  # Save the key reliably before anyone learns its ID.
    finally:
        os.close(descriptor)


def _link(fresh: Path, path: Path) -> None:
    """Link the file to `path`; FileExistsError if `path` exists."""
    try:
        os.link(fresh, path)  # never overwrites, unlike a rename
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _move(fresh, path)


def _move(fresh: Path, path: Path) -> None:
    """Rename the file to `path` under a lock, on file systems without hard links."""
    try:
        describe_keyfile(fresh)
    except KeyFileTooOpenError as error:
        raise ConfigError(
            f"cannot create a key file in '{path.parent}': its file system cannot make a file "
            "readable only by its owner"
        ) from error
    with locked(path, ConfigError):
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.rename(fresh, path)
