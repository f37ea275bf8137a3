"""A child process, as the one that started it sees it.

It has ended, in whatever way, when its `with` is left. Knows lines, not their meaning.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from threading import Timer
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.task import Order

# Seconds that a child may take to say a line (10,000 handshakes take minutes), and to end.
PATIENCE = 600.0
LAST_WORDS = 2.0
# Descriptors of a process beside one for each of its connections.
SPARE = 64


class ChildError(Exception):
    """A child process ended, or was silent for too long."""


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(psutil.Process(pid).memory_info().rss)


def most_connections() -> int:
    """As many as a process can have: its limit of descriptors is raised as far as it may be, which
    holds for processes that it starts too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard - SPARE


class LineProcess:
    """A process that is told, and tells, lines of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid

    def hear(self) -> dict[str, Any]:
        """Its next line.

        Raises:
            ChildError: no line came.
        """
        if self._process.stdout is None:
            raise ChildError("no pipe")
        watchdog = Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ChildError("a child process ended before its time")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def say(self, line: dict[str, Any]) -> None:
        """Tell it something.

        Raises:
            ChildError: it has ended.
        """
        if self._process.stdin is None:
            raise ChildError("no pipe")
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
        except OSError as error:
            raise ChildError("a child process ended before its time") from error

    @property
    def memory(self) -> int:
        """Bytes that are resident."""
        return resident(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Child(LineProcess):
    """A server or a client."""

    def __init__(self, order: Order) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.child", order.to_text()])
