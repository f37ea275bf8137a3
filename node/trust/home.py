"""Where a person's files are: their key, whom they know, their accounts and contexts."""

import os
from pathlib import Path

from parley._node.errors import ConfigError


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
