"""What a command prints: for people, or one JSON object a line.

One rule: with `--json` standard output carries nothing but JSON lines, and the last one
is `done` or `error`; logs and everything for the eye go to standard error.
"""

import json
import logging
import math
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from node.cli.exits import Failure


class Output:
    """Where a command's words go. `console` is for people; with JSON it is quiet."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(stderr=as_json, quiet=as_json, highlight=False, soft_wrap=True)

    def event(self, kind: str, /, **fields: Any) -> None:
        """A JSON line, if JSON is wanted."""
        if self.as_json:
            print(json.dumps({"event": kind, **plain(fields)}), flush=True)

    def say(self, text: str) -> None:
        """A line for people, printed as it is."""
        if not self.as_json:
            print(text, flush=True)

    def done(self, **fields: Any) -> None:
        """The last JSON line of a command that did what it should."""
        self.event("done", **fields)

    def fail(self, failure: Failure) -> None:
        """The last line of a command that did not."""
        self.event(
            "error",
            code=failure.code,
            name=failure.name,
            exit=int(failure.exit),
            text=failure.text,
        )
        if not self.as_json:
            print(f"parley: {failure.text}", file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Any LBM value as JSON has it: bytes as UTF-8 text or else hex, keys as text.

    Floats that JSON does not know become the strings "nan", "inf" and "-inf".
    """
    if isinstance(value, bytes | bytearray):
        return as_text(bytes(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def as_text(data: bytes) -> str:
    """Bytes that are UTF-8 as text, others as hex."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def show_value(value: Any) -> str:
    """An answer for people: text as text, bytes as text or hex, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return as_text(value)
    return json.dumps(plain(value), ensure_ascii=False)


def set_up_logging(level: str) -> None:
    """Logs go to standard error, from `level` up."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
