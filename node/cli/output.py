"""What a command prints: text for people, or one JSON object a line.

With `--json` standard output carries JSON lines alone, and the last one is `done` or `error`; logs
and everything for the eye go to standard error. What came from another node never steers a
terminal.
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
    """How a command failed: `code` is the protocol's if there is one, else the exit code, and
    `kind` says whose it is, as `parley errors` does."""

    exit: int
    code: int
    name: str
    text: str
    kind: Literal["close", "result", "exit"] = "exit"
    data: object = None  # what came with an answer that was a refusal
    shown: str = ""  # for people in place of `text`, where one line does not do
    fields: Mapping[str, str] = field(default_factory=dict)  # more for JSON


class Output:
    """Where a command's words go. `console` is for people; with JSON it is quiet. `petnames` are
    what the person calls the nodes that words are about. A command that has changed something says
    so in `effect`, such as "1 event removed", for the error if its output can't be written."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.effect = ""

    @cached_property
    def console(self) -> "TextConsole":
        """Rich's; it is imported with the first use."""
        from parley._node.cli.terminal import TextConsole

        return TextConsole(self.as_json)

    @cached_property
    def petnames(self) -> "Petnames":
        """Names that the person gave; read with the first use."""
        from parley._node.trust.petnames import Petnames

        return Petnames.of_home()

    def bar(self, *columns: "ProgressColumn", kept: bool = False) -> "Progress":
        """A bar that moves for people at a terminal; one that is `kept` shows its end to others
        too. Log lines to the same terminal stand above it."""
        return self.console.bar(*columns, kept=kept)

    def table(self, *tables: "Table") -> None:
        """Tables for people at a terminal, and tab-separated lines for what reads them else."""
        for table in tables:
            self.console.table(table)

    def event(self, kind: str, /, **fields: Any) -> None:
        """A JSON line, if JSON is wanted."""
        if self.as_json:
            called = self.petnames.known_by(fields.get("node_id"))
            self._print(_json_line(kind, {**fields, **called}))

    def say(self, text: str) -> None:
        """A line for people; to a terminal without what would steer it."""
        if not self.as_json:
            self._print(_for_people(text))

    def line(self, text: str, kind: str, /, **fields: Any) -> str:
        """What `event`, or else `say`, would print, for callers that print it otherwise."""
        return (_json_line(kind, fields) if self.as_json else _for_people(text)) + "\n"

    def remark(self, text: str) -> None:
        """A line for people on standard error, where standard output is for something else."""
        if not self.as_json:
            print(one_line(text), file=sys.stderr, flush=True)

    def done(self, **fields: Any) -> None:
        """The last JSON line of a command that did what it should."""
        self.event("done", **fields)

    def fail(self, failure: CommandFailure) -> None:
        """The last line of a command that did not."""
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
    """Any LBM value as JSON has it: bytes as UTF-8 text or else hex, keys as text.

    Floats that JSON does not know become the strings "nan", "inf" and "-inf".
    """
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
    """Bytes that are UTF-8 as text, others as hex."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def format_value(value: Any) -> str:
    """An answer for people: text as text, bytes as text or hex, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return decode_or_hex(value)
    return json.dumps(to_json_value(value), ensure_ascii=False)


def discard_stdout() -> None:
    """Drop what is printed, also what the interpreter flushes at its end: its reader has left."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


@contextmanager
def ignore_lost_output() -> Iterator[None]:
    """What is printed here may be lost, with all that follows: a server does not end because its
    terminal was closed, or because whoever read its address has left."""
    try:
        yield
    except OSError:
        discard_stdout()


@contextmanager
def stdout_errors(effect: str = "") -> Iterator[None]:
    """Name standard output in an OSError, such as that of a full disk.

    Raises:
        FileError: the same error, where the command has had an `effect`.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = "standard output"
        if not effect:
            raise
        text = f"cannot write to standard output: {os_reason(error)}; {effect}: do not repeat it"
        raise FileError(text) from error


def _json_line(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"event": kind, **to_json_value(fields)})


def _for_people(text: str) -> str:
    return visible(text) if sys.stdout.isatty() else text


def format_time(nanoseconds: int | None) -> str | None:
    """ISO 8601 to the millisecond, for JSON; None for None."""
    if nanoseconds is None:
        return None
    when = _when(nanoseconds)
    if when is None:
        return f"{nanoseconds} ns"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_brief_time(nanoseconds: int | None) -> str:
    """To the second, for a table; empty for None."""
    if nanoseconds is None:
        return ""
    when = _when(nanoseconds)
    return f"{nanoseconds} ns" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def pluralise(number: int, word: str) -> str:
    """As in "1 file" and "2 files"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _when(nanoseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None
