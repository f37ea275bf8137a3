"""Secrets in files that a command is given by their paths."""

import sys
from collections.abc import Callable
from pathlib import Path

from parley._node.settings import secret_files


def read_passphrase(path: Path | None) -> bytes | None:
    """The passphrase in a file, without the line's end.

    Raises:
        FileError: it cannot be read, or is empty.
    """
    return None if path is None else _secret(secret_files.read_passphrase, path)


def read_network_key(path: Path | None) -> bytes | None:
    """A network key: 32 bytes, raw or as 64 hex digits.

    Raises:
        FileError: it cannot be read, or does not hold a network key.
    """
    return None if path is None else _secret(secret_files.read_network_key, path)


def _secret(read: Callable[[Path, Callable[[str], object]], bytes], path: Path) -> bytes:
    return read(path, warn)


def warn(sentence: str) -> None:
    """Say something on standard error that does not end the command."""
    print(f"parley: warning: {sentence}", file=sys.stderr)
