"""Output of commands: text for people, or one JSON object on each line.

With `--json`, standard output has only JSON lines, of which the last one is `done` or `error`. Logs
and other text for people go to standard error. Text of another node cannot control a terminal.
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from parley._node.errors import FileError, os_reason
from parley._node.logs import one_line, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from parley._node.cli.terminal import TextConsole
    from parley._node.trust.petnames import Petnames


@dataclass(frozen=True)
class CommandFailure:
    """How a command failed. `code` is a code of the protocol, or else the exit code; `kind` is the
    kind of the code, as in `parley errors`.
    """

    exit: int
    code: int
    name: str
    text: str
    kind: Literal["close", "result", "exit"] = "exit"
    data: object = None  # data of a refusal
    shown: str = ""  # text for people to print instead of `text`
    fields: Mapping[str, str] = field(default_factory=dict)  # further fields for JSON


class Output:
    """The output of a command. `console` is for people and silent with JSON. `petnames` are the
    user's names for nodes; without `follow`, only successors that a person accepted have those of
    ended IDs. `effect` describes a change that was made, such as "1 event removed", for the error
    message if the output cannot be written."""

    def __init__(self, as_json: bool, *, follow: bool = True) -> None:
        self.as_json = as_json
        self.follow = follow
        self.effect = ""

    @cached_property
    def console(self) -> "TextConsole":
        """The rich console, imported on first use."""
        from parley._node.cli.terminal import TextConsole

        return TextConsole(self.as_json)

    @cached_property
    def petnames(self) -> "Petnames":
        from parley._node.trust.petnames import Petnames

        return Petnames.of_home(follow=self.follow)

    def bar(self, *columns: "ProgressColumn", kept: bool = False) -> "Progress":
        """Return a progress bar for people at a terminal. Log lines appear above it. With `kept`,
        the final state is also printed if there is no terminal.
        """
        return self.console.bar(*columns, kept=kept)

    def table(self, *tables: "Table") -> None:
        """Print tables at a terminal, and tab-separated lines otherwise."""
        for table in tables:
            self.console.table(table)

    def event(self, kind: str, /, **fields: Any) -> None:
        """Print a JSON line, if JSON is enabled."""
        if self.as_json:
            called = self.petnames.known_by(fields.get("node_id"))
            self._print(_json_line(kind, {**fields, **called}))

    def print(self, text: str) -> None:
        """Print a line for people, without control characters if it goes to a terminal."""
        if not self.as_json:
            self._print(_for_people(text))

    def line(self, text: str, kind: str, /, **fields: Any) -> str:
        """Return the line that `event` or `print` would print."""
        return (_json_line(kind, fields) if self.as_json else _for_people(text)) + "\n"

    def remark(self, text: str) -> None:
        """Print a line for people on standard error."""
        if not self.as_json:
            print(one_line(text), file=sys.stderr, flush=True)

    def done(self, **fields: Any) -> None:
        """Print the last JSON line of a successful command."""
        self.event("done", **fields)

    def fail(self, failure: CommandFailure) -> None:
        """Print the last line of a failed command."""
        self.event(
            "error",
            code=failure.code,
            kind=failure.kind,
            name=failure.name,
            exit=int(failure.exit),
            text=failure.text,
            **({} if failure.data is None else {"data": failure.data}),
            **failure.fields,
        )
        if not self.as_json:
            text = visible(self.petnames.in_text(failure.shown or failure.text))
            print(f"parley: {text}", file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        with stdout_errors(self.effect):
            print(line, flush=True)


def to_json_value(value: Any) -> Any:
    """Convert any LBM value to JSON: bytes to UTF-8 text or hex, keys to text, and the floats that
    JSON lacks to "nan", "inf" and "-inf"."""
    if isinstance(value, bytes | bytearray):
        return decode_or_hex(bytes(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item) for item in value]
    return value


def decode_or_hex(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def format_value(value: Any) -> str:
    """Format a value for people: text and bytes as text, other bytes as hex, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return decode_or_hex(value)
    return json.dumps(to_json_value(value), ensure_ascii=False)


def discard_stdout() -> None:
    """Discard all output, including what the interpreter flushes at exit, because its reader has
    closed.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


@contextmanager
def ignore_lost_output() -> Iterator[None]:
    """Discard output if writing fails, so that a server continues when its terminal or reader
    closes.
    """
    try:
        yield
    except OSError:
        discard_stdout()


@contextmanager
def stdout_errors(effect: str = "") -> Iterator[None]:
    """Add "standard output" to an OSError, such as a full disk.

    Raises:
        FileError: the same error, if the command has had an `effect`.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = "standard output"
        if not effect:
            raise
        text = (
            f"cannot write to standard output: {os_reason(error)}; {effect}: do not repeat the "
            "command"
        )
        raise FileError(text) from error


def _json_line(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"event": kind, **to_json_value(fields)})


def _for_people(text: str) -> str:
    return visible(text) if sys.stdout.isatty() else text


def format_time(nanoseconds: int | None) -> str | None:
    """Format nanoseconds as ISO 8601 with milliseconds, for JSON."""
    if nanoseconds is None:
        return None
    when = _when(nanoseconds)
    if when is None:
        return f"{nanoseconds} ns"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_brief_time(nanoseconds: int | None) -> str:
    """Format nanoseconds with seconds, for a table; empty for None."""
    if nanoseconds is None:
        return ""
    when = _when(nanoseconds)
    return f"{nanoseconds} ns" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def pluralise(number: int, word: str) -> str:
    """Return "1 file" or "2 files"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _when(nanoseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None
