"""Lightbus 1.1.2, in a process and an environment of its own, on the same redis-server.

It is measured where a Python 3.9 runs it, and left out with the reason elsewhere. What it does
there is `lightbus_child.py`.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.bus.sides import TEXT, Done, NoWorkError
from benchmarks.process import ChildError, LineProcess

PACKAGES: Final = ("lightbus==1.1.2", "aioredis==1.3.1", "setuptools<80")
_CHILD: Final = Path(__file__).with_name("lightbus_child.py")
# Seconds that a Python may take to say its version.
_PATIENCE: Final = 10.0


class NoLightbusError(Exception):
    """It cannot be measured here; the text says why."""


def find_python() -> str:
    """A Python 3.9 that runs: `python3.9`, pyenv's, or whichever uv has or fetches."""
    tried = [shutil.which("python3.9"), *map(str, _pyenv())]
    return next((path for path in tried if path is not None and _runs(path)), "3.9")


def _pyenv() -> Iterator[Path]:
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False)
        yield from sorted(Path(root.stdout.strip()).glob("versions/3.9*/bin/python"))


def _runs(path: str) -> bool:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.startswith("Python 3.9")


class Lightbus:
    """A process of Lightbus's: measured as any other side."""

    def __init__(self, child: LineProcess, pids: tuple[int, ...]) -> None:
        self._child = child
        self._pids = pids

    @property
    def pids(self) -> tuple[int, ...]:
        """Its own, and the redis-server's."""
        return self._pids

    async def publish(self, publishers: int, seconds: float) -> Done:
        """`fire_async`, again and again."""
        return self._done("publish", publishers=publishers, seconds=seconds)

    async def publish_batches(self, size: int, seconds: float) -> Done:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def consume(self, consumers: int, count: int) -> Done:
        """A listener that does nothing, in as many buses as there are consumers."""
        return self._done("consume", consumers=consumers, count=count)

    async def handle(self, concurrency: int, count: int) -> Done:
        """Never asked of it: its listeners are what `consume` measures; raises NoWorkError."""
        raise NoWorkError

    async def latencies(self, count: int) -> list[float]:
        """To a listener."""
        return self._ask("latencies", count=count)

    def _done(self, what: str, **order: Any) -> Done:
        count, seconds = self._ask(what, **order)
        return Done(int(count), seconds)

    def _ask(self, what: str, **order: Any) -> list[float]:
        self._child.say({"what": what, "consumers": 1, "text": TEXT, **order})
        found: list[float] = self._child.hear()["found"]
        return found


@contextmanager
def running_lightbus(url: str, server_pid: int) -> Iterator[Lightbus]:
    """One that answers, on the redis-server at `url`.

    Raises:
        NoLightbusError: Lightbus is not installed here.
    """
    if shutil.which("uv") is None:
        raise NoLightbusError("uv is not installed")
    packages = [word for package in PACKAGES for word in ("--with", package)]
    python = find_python()
    command = ["uv", "run", "--quiet", "--no-project", "--python", python, *packages, "python"]
    with LineProcess([*command, str(_CHILD), url]) as child:
        try:
            pid = child.hear()["pid"]
        except ChildError as error:
            raise NoLightbusError(f"Python {python} does not run {PACKAGES[0]}") from error
        yield Lightbus(child, (pid, server_pid))
