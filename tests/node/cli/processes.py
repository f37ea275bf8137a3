"""Start and control real `parley` processes in tests.

All processes end with the test, even if it fails, and each wait has a timeout.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.node.cli.warm import WarmProcess, warm

PARLEY = (sys.executable, "-m", "parley")
# `parley` with topics that wait, refuse and misbehave; see there.
PARLEY_WITH_TOPICS = (sys.executable, str(Path(__file__).with_name("serve_topics.py")))
TIMEOUT = 25.0


class Finished(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines that it printed with `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        """The last of these."""
        return self.lines[-1]


class Running:
    """A process whose standard output is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes] | WarmProcess, errors: Path) -> None:
        self.process = process
        self._errors = errors
        self._buffer = b""
        self._lines: list[str] = []

    def line(self) -> str:
        """Return the next line of its standard output; AssertionError after a timeout."""
        while b"\n" not in self._buffer:
            piece = self._read(time.monotonic() + TIMEOUT)  # noqa: TID251  # a test's own clock
            if not piece:
                raise AssertionError(f"it ended: {self._buffer!r} {self._errors.read_text()}")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        self._lines.append(line.decode() + "\n")
        return line.decode()

    def event(self, kind: str) -> dict[str, Any]:
        """The next JSON line of this kind, skipping others."""
        while True:
            event: dict[str, Any] = json.loads(self.line())
            if event["event"] == kind:
                return event

    def type(self, text: str) -> None:
        """Give it more standard input; it was started with `typing`."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Its standard input ends here."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        self.process.send_signal(number)

    def finish(self) -> Finished:
        """Wait for its end."""
        deadline = time.monotonic() + TIMEOUT  # noqa: TID251  # a test's own clock
        rest = self._buffer
        while piece := self._read(deadline):
            rest += piece
        code = self.process.wait(TIMEOUT)
        out = "".join(self._lines) + rest.decode()
        return Finished(code, out, self._errors.read_text())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Finished:
        """Signal it and wait for its end."""
        self.send(number)
        return self.finish()

    def end(self) -> None:
        """Be rid of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, deadline: float) -> bytes:
        stdout = self.process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(deadline - time.monotonic()):  # noqa: TID251  # as above
                raise AssertionError(f"nothing came in {TIMEOUT} s: {self._errors.read_text()}")
        return os.read(stdout.fileno(), 65_536)


class Processes:
    """Starts processes with a temporary home directory, and ends them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self._running: list[Running] = []

    def start(
        self,
        *args: str,
        command: Sequence[str] = PARLEY,
        data: bytes | None = None,
        typing: bool = False,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Running:
        """Start `parley` with these arguments; `data` is its whole standard input, `typing`
        leaves that open. Unless another `command` or Python's own variables are given, it is
        forked from a process that has imported it."""
        errors = self.directory / f"stderr-{len(self._running)}"
        own = {"PARLEY_HOME": str(self.home), "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
        variables = {**os.environ, **own, **(environment or {})}
        place = cwd or self.directory
        asked = typing or data is not None
        process: subprocess.Popen[bytes] | WarmProcess
        with errors.open("wb") as stderr:
            if command in (PARLEY, PARLEY_WITH_TOPICS) and "PYTHONPATH" not in (environment or ()):
                process = warm([*command[1:], *args], variables, place, stderr, typing=asked)
            else:
                process = subprocess.Popen(
                    [*command, *args],
                    stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=variables,
                    cwd=place,
                )
        running = Running(process, errors)
        self._running.append(running)
        if process.stdin is not None and not typing:
            process.stdin.write(data or b"")
            process.stdin.close()
        return running

    def run(self, *args: str, data: bytes | None = None) -> Finished:
        """Run `parley` to its end."""
        return self.start(*args, data=data).finish()

    def serve(
        self, *args: str, topics: bool = False, listen: Sequence[str] = ("tcp://127.0.0.1:0",)
    ) -> tuple[Running, list[str]]:
        """Start `parley serve --json`; returns it and its addresses once it is ready."""
        places = [part for address in listen for part in ("--listen", address)]
        command = PARLEY_WITH_TOPICS if topics else PARLEY
        running = self.start("serve", "--json", *places, *args, command=command)
        addresses: list[str] = running.event("ready")["addresses"]
        return running, addresses

    def end(self) -> None:
        """End whatever still runs."""
        for running in self._running:
            running.end()
