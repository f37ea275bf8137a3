"""A small disk that only one process can see, and that disappears with it.

Tests that use it are marked `mounts`; they are skipped where mounting is not allowed.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

UNSHARE: Final = (
    ["unshare", "--mount"],  # As root.
    ["unshare", "--mount", "--user", "--map-root-user"],
)
MOUNT: Final = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'


def on_small_disk(directory: Path, size: int, command: list[str]) -> list[str]:
    """Return the command that runs `command` with a disk of `size` bytes at `directory`."""
    mount = ["sh", "-c", MOUNT, str(size), str(directory)]
    if shutil.which("unshare") is not None:
        for unshare in UNSHARE:
            if not subprocess.run([*unshare, *mount, "true"], capture_output=True).returncode:
                return [*unshare, *mount, *command]
    pytest.skip("no disk can be mounted here")
