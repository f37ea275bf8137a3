"""Find an environment for Lightbus 1.1.2: a Python 3.9 that uv provides together with its packages.

Each possible Python 3.9 is tried by importing Lightbus with it, and its output is kept as the
reason for skipped tests. It leaves the system unchanged. `python -m
tests.interop.lightbus_environment` downloads everything ahead of the tests.
"""

import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import which
from typing import Final

# With newer ones its import fails; so it does on Python 3.10.
PACKAGES: Final = ("lightbus==1.1.2", "aioredis==1.3.1", "setuptools<80")
# Seconds to find a Python, and to download packages or a Python.
PATIENCE: Final = 20.0
FETCHING: Final = 120.0

_WHERE: Final = "import sys; assert sys.version_info[:2] == (3, 9); print(sys.executable)"


class NotAvailableError(Exception):
    """Lightbus cannot run on this machine. Text: the attempts and their output."""


@cache
def lightbus_command() -> tuple[str, ...]:
    """Return the command prefix that runs a program with Lightbus: `uv run ... --with ...`.

    Raises:
        NotAvailableError: Lightbus cannot be imported with any Python 3.9 found.
    """
    uv = os.environ.get("UV") or which("uv")
    if uv is None:
        raise NotAvailableError("there is no uv")
    said = []
    for place, find in _PLACES.items():
        try:
            return _working(uv, find())
        except NotAvailableError as error:
            said.append(f"{place}: {error}")
    raise NotAvailableError("; ".join(said))


def environment() -> dict[str, str]:
    """Return this process's environment variables except those that lead to its own packages."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "UV_RUN_RECURSION_DEPTH")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _on_the_path() -> str:
    return _run(PATIENCE, "python3.9", "-c", _WHERE)


def _of_pyenv() -> str:
    root = Path(_run(PATIENCE, "pyenv", "root"))
    failed = NotAvailableError(f"there is no {root}/versions/3.9*/bin/python")
    for python in sorted(root.glob("versions/3.9*/bin/python"), reverse=True):
        try:
            return _run(PATIENCE, str(python), "-c", _WHERE)
        except NotAvailableError as error:
            failed = error
    raise failed


def _of_uv() -> str:
    return "3.9"


_PLACES: Final[dict[str, Callable[[], str]]] = {
    "python3.9": _on_the_path,
    "pyenv": _of_pyenv,
    "uv's own": _of_uv,
}


def _working(uv: str, python: str) -> tuple[str, ...]:
    """The command with this Python, once it has worked."""
    packages = [word for package in PACKAGES for word in ("--with", package)]
    command = (uv, "run", "--no-project", "--python", python, *packages)
    _run(FETCHING, *command, "python", "-c", "import lightbus")
    # It has all now: asking the network each time would take longer than Lightbus's own start.
    return (uv, "run", "--offline", *command[2:])


def _run(seconds: float, *command: str) -> str:
    """Return the output of a program.

    Raises:
        NotAvailableError: it is missing, times out or fails; with its last output.
    """
    try:
        done = subprocess.run(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailableError(f"no end after {seconds:g} s") from None
    except OSError as error:
        raise NotAvailableError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip() or f"it ended with {done.returncode}, and said nothing"
        raise NotAvailableError(" | ".join(line.strip() for line in said.splitlines()[-3:]))
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        print(*lightbus_command())
    except NotAvailableError as error:
        print(f"not available: {error}")
