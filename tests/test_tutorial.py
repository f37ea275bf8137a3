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

    def __init__(
        self, line: str, directory: Path, home: Path, *, is_answered: bool = False
    ) -> None:
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
                    "PARLEY_HOME": str(home),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "TERM": "dumb",
                },
                stdin=output if is_answered else subprocess.DEVNULL,
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
                if not self._read():
                    return
            line, _, self._text = self._text.partition("\n")
            yield line

    def answer(self, text: str) -> None:
        """Wait for a question and type the answer."""
        while not self._text.endswith("[yes/no] "):
            assert self._read(), f"{self.line!r} ends without a question: {self._text!r}"
        os.write(self._screen, text.encode() + b"\n")

    def _read(self) -> bool:
        """Read further output; return False if the command has ended."""
        readable, _, _ = select.select([self._screen], [], [], PATIENCE)
        if not readable:
            pytest.fail(f"{self.line!r} prints nothing more in {PATIENCE} s")
        try:
            data = os.read(self._screen, 65_536)
        except OSError:  # Linux: every process that had the terminal open has ended
            return False
        self._text += data.decode().replace("\r", "")
        return bool(data)

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
        self.directory = directory
        self.running: dict[str, Command] = {}
        self._terminals = terminals
        self.actual: dict[str, str] = {}  # node IDs and ports in the pages -> the actual ones

    def follow(self, text: str) -> None:
        """Do what a page shows."""
        self.run_blocks(text)
        for terminal in list(self.running):
            self._finish(terminal)

    def run_blocks(self, text: str) -> None:
        """Write the files and run the commands of a page; the last of each terminal still run."""
        for kind, title, block in _BLOCK.findall(text):
            match kind:
                case "python":
                    (self.directory / title).write_text(self._of_this_run(block))
                case "diff":
                    self._patch(self.directory / title, self._of_this_run(block))
                case "console":
                    self._type(title, re.sub(r"\\\n> ", "", block).splitlines())
                case _:
                    assert kind == "text", f"a block that no test runs: {kind}"

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
                command = self.start(terminal, self._of_this_run(line[2:]))
                self.running[terminal] = self._terminals.enter_context(command)
            elif line == "^C":
                self.running[terminal].interrupt()
            elif line == "...":
                self.running[terminal].skipping = True
            else:
                self.read(line, self.running[terminal])

    def _finish(self, terminal: str) -> None:
        if (command := self.running.pop(terminal, None)) is not None:
            assert (command.line, command.finish()) == (command.line, [])

    def start(self, terminal: str, line: str) -> Command:
        """Start a command line in a terminal."""
        return Command(line, self.directory, self.directory / "home")

    def read(self, expected: str, command: Command) -> None:
        """Read the output of a command up to a line as the page shows it."""
        new = [name for name in _NODE_ID.findall(expected) if name not in self.actual]
        pattern = re.escape(self._of_this_run(expected)).replace(r"\.\.\.", ".*")
        pattern = _EVENT_TIME.sub(r"\\d+", pattern)
        for name in new:
            pattern = pattern.replace(name, f"({_NODE_ID.pattern})")
        skipped = []
        for line in command.lines():
            if (match := re.fullmatch(pattern, line)) is not None:
                self.actual |= dict(zip(new, match.groups(), strict=True))
                command.skipping = False
                return
            skipped.append(line)
            if not command.skipping:
                break
        pytest.fail(f"{command.line!r} prints {skipped}, not {expected!r}")

    def _of_this_run(self, text: str) -> str:
        for port in _PORT.findall(text):
            if port not in self.actual.values():
                self.actual.setdefault(port, _free_port())
        for name, actual in self.actual.items():
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
