"""Start `parley` quickly by forking a process that has already imported it.

Importing the commands takes half a second, and the tests start about two hundred processes. A
forked process has its own process ID, signals and files. Environment variables that Python reads at
startup (`PYTHONPATH` and so on) have no effect on it; start a new Python for these.
"""

import atexit
import contextlib
import gc
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from parley._node.cli.commands.framework import load
from parley._node.cli.commands.root import PARLEY
from parley._node.cli.main import main

# Bytes of the arguments and the environment of a process: what fits into one message.
_LONGEST: Final = 1 << 17
_STEP: Final = 0.005
_ROOT: Final = Path(__file__).parents[3]


class WarmProcess:
    """What tests use of `subprocess.Popen`, for a program that `warm` started."""

    def __init__(self, status: socket.socket, stdin: IO[bytes] | None, stdout: IO[bytes]) -> None:
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self._status = status
        told = status.recv(64)
        assert told, "what forks could not be asked"
        self.pid = int(told)
        status.setblocking(False)

    def poll(self) -> int | None:
        """How it ended, as `subprocess` has it; None while it runs."""
        with contextlib.suppress(BlockingIOError):
            if self.returncode is None:
                self.returncode = int(self._status.recv(64))
                self._status.close()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end; `subprocess.TimeoutExpired` if that takes longer."""
        deadline = time.monotonic() + timeout  # noqa: TID251  # a test's own clock
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:  # noqa: TID251  # as above
                raise subprocess.TimeoutExpired("parley", timeout)
            time.sleep(_STEP)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def warm(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    stderr: IO[bytes],
    *,
    typing: bool,
) -> WarmProcess:
    """Start the program given after `python`: `-m` and a module, or a file; then its arguments.

    Its standard output is a pipe. Its standard input is a pipe with `typing`, otherwise empty.
    """
    sys.audit("tests.warm", arguments)  # the same attributes as `subprocess.Popen`
    status, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, out = os.pipe()
    into, writing = os.pipe() if typing else (os.open(os.devnull, os.O_RDONLY), None)
    job = json.dumps([list(arguments), dict(environment), str(directory)]).encode()
    files = [into, out, stderr.fileno(), given.fileno()]
    try:
        assert len(job) <= _LONGEST
        socket.send_fds(_parent(), [job], files)
    finally:
        given.close()
        os.close(into)
        os.close(out)
    stdin = None if writing is None else open(writing, "wb")  # noqa: SIM115  # kept
    return WarmProcess(status, stdin, open(reading, "rb"))


@cache
def _parent() -> socket.socket:
    """Where jobs are sent; what reads them ends with this process, which closes it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(ours.close)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
    with its:
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=_ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            pass_fds=[its.fileno()],
        ).returncode = 0  # it ends with this process, so no wait is needed
    return ours


def _next(jobs: socket.socket) -> list[Any]:
    """Read jobs, and fork for each; returns in the process that is to do it."""
    while True:
        message, files, _, _ = socket.recv_fds(jobs, _LONGEST, 4)
        if not message:
            os._exit(0)
        if not os.fork():
            break
        for file in files:
            os.close(file)
    jobs.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *files, status = files
    pid = os.fork()
    for number, file in enumerate(files):
        if not pid:
            os.dup2(file, number)
        os.close(file)
    if pid:
        _watch(pid, status)
    os.close(status)
    job: list[Any] = json.loads(message)
    return job


def _watch(pid: int, status: int) -> None:
    """Tell of a process' id, and then of its end, as two messages."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.write(status, b"%d" % pid)
    _, code = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the test process has ended
        os.write(status, b"%d" % os.waitstatus_to_exitcode(code))
    os._exit(0)


def _become(arguments: list[str], environment: dict[str, str], directory: str) -> None:
    """Be what `python` with these arguments would be."""
    # Those that there are took the measure of other files; they are as `PYTHONUNBUFFERED` has it.
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        was, raw = getattr(sys, name), io.FileIO(number, mode, closefd=False)
        buffer = io.BufferedReader(raw) if mode == "r" else raw
        stream = io.TextIOWrapper(buffer, was.encoding, was.errors, write_through=mode == "w")
        setattr(sys, name, stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def import_all(group: Any = PARLEY) -> None:
    """Import the functions of all commands of a group, and of those below them."""
    for command in group.commands.values():
        if hasattr(command, "commands"):
            import_all(command)
        else:
            load(command.target)


def _warm_up() -> None:
    """Import all that commands import."""
    import anyio

    import_all()
    sys.argv[:] = ["parley", "errors", "1"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
    anyio.run(anyio.sleep, 0)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    jobs = socket.socket(fileno=int(sys.argv[1]))
    _warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _become(*_next(jobs))
