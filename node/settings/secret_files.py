"""Read small files with a secret: a passphrase, or the key of a private network.

Errors and logs never contain the secret. A file that other users can read causes a warning. Key
files of identities are read by `crypto.keyfile`.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from parley._node.errors import FileError, os_reason

LONGEST: Final = 4_096  # bytes
NETWORK_KEY_SIZE: Final = 32


def read_passphrase(path: Path, warn: Callable[[str], object]) -> bytes:
    """Read a passphrase, without the newline; FileError if it is unreadable or empty.

    `warn` is called if other users can read the file.
    """
    passphrase = _read(path, warn).rstrip(b"\r\n")
    if not passphrase:
        raise FileError(f"cannot read the passphrase in '{path}': the file is empty")
    return passphrase


def read_network_key(path: Path, warn: Callable[[str], object]) -> bytes:
    """Read a network key, 32 bytes raw or as 64 hex digits; raises as `read_passphrase`."""
    key = _read(path, warn)
    if len(key) != NETWORK_KEY_SIZE:
        try:
            key = bytes.fromhex(key.decode("ascii").strip())
        except ValueError:
            key = b""
    if len(key) != NETWORK_KEY_SIZE or not any(key):
        raise FileError(
            f"cannot read the network key in '{path}': expected 32 bytes, raw or as 64 hex "
            "digits, not all 0"
        )
    return key


def _read(path: Path, warn: Callable[[str], object]) -> bytes:
    """Read a regular file, or a pipe from a shell."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise FileError(f"cannot read '{path}': {os_reason(error)}") from error
    if len(data) > LONGEST:
        raise FileError(f"cannot read '{path}': it is longer than {LONGEST:,} bytes")
    if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        warn(f"other users can read {path}; make it private with: chmod 600 {path}")
    return data
