"""Child processes that exchange lines of JSON, and meters of processor time.

On a shared machine the processor time of an operation is steadier than operations per second; a
meter also reports how much other processes used at the same time.
"""

import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from threading import Timer
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.task import Order

# Cores used by others from which a measurement counts as disturbed.
NOISE = 0.2
QUIET_WAIT = 4.0
LOOK = 0.25


def process_seconds(pid: int) -> float:
    """Return the user and system time of a process."""
    if platform.system() == "Linux":
        # The process's own clock, in nanoseconds (clock_getcpuclockid(3)): /proc and psutil
        # count in hundredths of a second.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def busy_seconds() -> float:
    """Processor time that the whole machine has used, stolen time included."""
    times = psutil.cpu_times()._asdict()
    guest = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # in user and nice already
    return float(sum(times.values()) - times["idle"] - times.get("iowait", 0.0) - guest)


class Meter:
    """The processor time used by some processes, and by all others, since it was created."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._own = time.process_time()
        self._busy = busy_seconds()
        self._before = [process_seconds(pid) for pid in pids]
        self._start = perf_counter()

    def read(self) -> tuple[list[float], float]:
        """Seconds of each process, and how many cores all others used on average."""
        elapsed = perf_counter() - self._start
        used = [
            process_seconds(pid) - was for pid, was in zip(self._pids, self._before, strict=True)
        ]
        busy = busy_seconds() - self._busy
        others = busy - sum(used) - (time.process_time() - self._own)
        return used, max(0.0, others / elapsed)


def wait_until_quiet(*pids: int, limit: float = QUIET_WAIT) -> None:
    """Wait, up to a limit, until other processes leave the machine idle."""
    end = perf_counter() + limit
    while perf_counter() < end:
        meter = Meter(*pids)
        time.sleep(LOOK)
        if meter.read()[1] < NOISE:
            return


# Seconds that a child may take to write a line (10,000 handshakes take minutes), and to end.
PATIENCE = 600.0
LAST_WORDS = 2.0
# Descriptors of a process in addition to one for each of its connections.
SPARE = 64


class ChildError(Exception):
    """Raised if a child process ended or did not answer in time."""


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(psutil.Process(pid).memory_info().rss)


def most_connections() -> int:
    """As many as a process can have: its limit of descriptors is raised as far as it may be, which
    holds for processes that it starts too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard - SPARE


class LineProcess:
    """A child process that receives and sends lines of JSON."""

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
    """A server or a client, run by the interpreter `python`."""

    def __init__(self, order: Order, python: str = sys.executable) -> None:
        super().__init__([python, "-m", "benchmarks.child", order.to_text()])
