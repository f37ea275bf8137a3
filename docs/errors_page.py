"""Generate the page of errors and codes from the error classes and the error catalogue."""

from collections.abc import Iterator
from inspect import getdoc
from typing import Final

from parley import errors
from parley._node.cli.error_catalogue import EXPLANATIONS
from parley._node.protocol.codes import SENTENCES, CloseCode

PAGE: Final = "docs/reference/errors.md"
_HEAD: Final = """# Errors and codes

This page lists the exceptions of the library, the codes of the protocol, and the exit codes of the
command line. An exception with a protocol code has it as the attribute `code`. `parley errors CODE`
explains a code on the terminal. Section numbers refer to [protocol.md](../protocol.md).

## Errors

All exceptions are in `parley.errors`. Names in brackets are built-in exceptions that an error also
inherits from. If a handler raises any other exception, the node logs it with a traceback, and the
caller receives code 16 with a fixed text.
"""
# The kinds of codes: heading, text before the table and text after it.
_KINDS: Final = {
    "close": (
        "Close codes",
        "Reject, Reset and Close carry these codes (section 11), which are in `parley.CloseCode`. "
        "Applications use codes from 64. Codes below 0 are local and never sent.",
        """Reject carries the text of its code. Close and Reset carry a text only if the
application provides one. Codes 20, 22 and 32 to 35 are used only by Reset.

A node resets a stream with `no-handler` if it has no handler for the label, `not-authorised` or
`wrong-supercategory` if its handler is not for this peer, `refused` if the label is reserved or the
node is closing, `cancelled` if the stream is no longer read or the handler was cancelled,
`overloaded` if its unread data exceeds the limit, and `internal-error` if its handler failed.
""",
    ),
    "result": (
        "Result codes",
        "Result carries these codes (section 9), which are in `parley.ResultCode`. Applications "
        "can return any other code.",
        "",
    ),
    "event": (
        "Error codes of named events",
        "The Error of a named event (section 10) carries a result code, except if its handler "
        "failed:",
        "",
    ),
    "relay": (
        "Relay codes",
        "An event relay sends these codes to its clients (`parley.dialects.RelayCode`). After "
        "code 5, and after code 3 for a message that is too short, the connection stays open; "
        "after the others it is closed.",
        "",
    ),
    "exit": (
        "Exit codes",
        "All commands use these exit codes.",
        """If a signal ends a command, its exit code is 128 plus the signal's number: 130
for SIGINT, 143 for SIGTERM. Commands that run until a signal arrives (`serve`, `run`,
`pipeline follow` and `ping --watch`) exit with 0. On SIGHUP, `serve` and `run` reload their
settings. If the reader of standard output has exited, as in `parley .. | head -1`, the exit code
is 141, without a message.
""",
    ),
}


def build() -> str:
    """Return the page."""
    parts = [_HEAD, *_tree(Exception, 0), ""]
    for kind, (heading, before, after) in _KINDS.items():
        parts += [f"## {heading}\n", f"{before}\n", *_codes(kind), "", *filter(None, [after])]
    return "\n".join(parts).rstrip() + "\n"


def _public() -> list[type]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [each for each in found if isinstance(each, type)]


def _above(error: type) -> type:
    """Return the public class under which the error is listed."""
    return next((each for each in error.__mro__[1:] if each in _public()), Exception)


def _tree(root: type, depth: int) -> Iterator[str]:
    """Yield the errors below `root` as a nested list."""
    for error in (each for each in _public() if _above(each) is root):
        name = error.__name__
        bases = (each for each in error.__bases__ if each is not Exception)
        others = [each.__name__ for each in bases if not each.__module__.startswith("parley.")]
        also = ", ".join(f"`{each}`" for each in others)
        yield (
            f"{'    ' * depth}- [{name}](api/errors.md#parley.errors.{name})"
            + (f" ({also})" if also else "")
            + f": {_summary(error)}"
        )
        yield from _tree(error, depth + 1)


def _summary(error: type) -> str:
    """Return the first paragraph of the docstring, on one line."""
    return " ".join((getdoc(error) or "").partition("\n\n")[0].split())


def _codes(kind: str) -> Iterator[str]:
    sent = kind == "close"
    titles = ["code", "name", *["sent text"] * sent, "meaning", "comes from", "what to do"]
    yield f"| {' | '.join(titles)} |"
    yield f"|{' --- |' * len(titles)}"
    for each in EXPLANATIONS:
        if each.kind == kind:
            name = each.name.replace(" / ", "`, `")
            cells = [str(each.code), f"`{name}`"]
            cells += [SENTENCES[CloseCode(each.code)]] if sent else []
            yield f"| {' | '.join([*cells, each.meaning, each.raised_by, each.mend])} |"
