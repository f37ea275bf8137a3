"""Follow the tutorial to the letter: write its files, run its commands, compare their output.

A block of Python with a title is a file, and a block `diff` changes one. A block `console` shows a
terminal: lines that begin with `$ ` are commands (continued by `> `), `^C` interrupts the running
command, and all others are its output. Output after `^C` is optional. `...` matches any text
in a line; alone in a line, it matches any lines. A block without a command shows further output of
the terminal's running command. Node IDs, ports and times are replaced by the actual ones.
"""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorial").glob("[0-9]*.md"))
PATIENCE = 30  # seconds without output, on a busy machine

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_NODE_ID = re.compile(r"\b[a-z2-7]{52}\b")
_EVENT_TIME = re.compile(r"\b\d{13}\b")  # in the ID of an event of the bus
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


class Command:
    """A running command with its own pseudo-terminal and process group."""

    def __init__(self, line: str, directory: Path) -> None:
        self.line = line
        self.skipping = False  # the page leaves out the next lines
        self._screen, side = pty.openpty()
        self._text = ""
        with os.fdopen(side, "wb", buffering=0) as output:
            self._process = subprocess.Popen(
                ["bash", "-c", line],
                cwd=directory,
                env={
                    **os.environ,
                    "COLUMNS": "100",
                    "NO_COLOR": "1",
                    "PARLEY_HOME": str(directory / "home"),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "TERM": "dumb",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._screen)

    def lines(self) -> Iterator[str]:
        """Yield further lines of output until the command has ended."""
        while True:
            while "\n" not in self._text:
                readable, _, _ = select.select([self._screen], [], [], PATIENCE)
                if not readable:
                    pytest.fail(f"{self.line!r} prints nothing more in {PATIENCE} s")
                try:
                    data = os.read(self._screen, 65_536)
                except OSError:  # Linux: every process that had the terminal open has ended
                    return
                if not data:
                    return
                self._text += data.decode().replace("\r", "")
            line, _, self._text = self._text.partition("\n")
            yield line

    def interrupt(self) -> None:
        self.skipping = True
        self._signal(signal.SIGINT)

    def finish(self) -> list[str]:
        """Wait for the end, and return output that the page doesn't show."""
        surplus = list(self.lines())
        self._process.wait(timeout=PATIENCE)
        return [] if self.skipping else surplus

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Reader:
    """Follows the pages in a directory, with several terminals."""

    def __init__(self, directory: Path, terminals: ExitStack) -> None:
        self._directory = directory
        self._terminals = terminals
        self._running: dict[str, Command] = {}
        self._actual: dict[str, str] = {}  # node IDs and ports in the pages -> the actual ones

    def follow(self, text: str) -> None:
        for kind, title, block in _BLOCK.findall(text):
            match kind:
                case "python":
                    (self._directory / title).write_text(self._of_this_run(block))
                case "diff":
                    self._patch(self._directory / title, self._of_this_run(block))
                case "console":
                    self._type(title, re.sub(r"\\\n> ", "", block).splitlines())
                case _:
                    assert kind == "text", f"a block that no test runs: {kind}"
        for terminal in list(self._running):
            self._finish(terminal)

    def _patch(self, file: Path, diff: str) -> None:
        text = file.read_text()
        for hunk in diff.split("@@\n"):
            lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
            before = "".join(rest or "\n" for mark, rest in lines if mark != "+")
            after = "".join(rest or "\n" for mark, rest in lines if mark != "-")
            assert text.count(before) == 1, f"{file.name} does not have once:\n{before}"
            text = text.replace(before, after)
        file.write_text(text)

    def _type(self, terminal: str, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("$ "):
                self._finish(terminal)
                command = Command(self._of_this_run(line[2:]), self._directory)
                self._running[terminal] = self._terminals.enter_context(command)
            elif line == "^C":
                self._running[terminal].interrupt()
            elif line == "...":
                self._running[terminal].skipping = True
            else:
                self._read(line, self._running[terminal])

    def _finish(self, terminal: str) -> None:
        if (command := self._running.pop(terminal, None)) is not None:
            assert (command.line, command.finish()) == (command.line, [])

    def _read(self, expected: str, command: Command) -> None:
        new = [name for name in _NODE_ID.findall(expected) if name not in self._actual]
        pattern = re.escape(self._of_this_run(expected)).replace(r"\.\.\.", ".*")
        pattern = _EVENT_TIME.sub(r"\\d+", pattern)
        for name in new:
            pattern = pattern.replace(name, f"({_NODE_ID.pattern})")
        skipped = []
        for line in command.lines():
            if (match := re.fullmatch(pattern, line)) is not None:
                self._actual |= dict(zip(new, match.groups(), strict=True))
                command.skipping = False
                return
            skipped.append(line)
            if not command.skipping:
                break
        pytest.fail(f"{command.line!r} prints {skipped}, not {expected!r}")

    def _of_this_run(self, text: str) -> str:
        for port in _PORT.findall(text):
            if port not in self._actual.values():
                self._actual.setdefault(port, _free_port())
        for name, actual in self._actual.items():
            text = text.replace(name, actual)
        return text


def _free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def test_the_tutorial_works_as_its_pages_show(tmp_path: Path) -> None:
    assert PAGES
    with ExitStack() as terminals:
        reader = Reader(tmp_path, terminals)
        for page in PAGES:
            reader.follow(page.read_text())
