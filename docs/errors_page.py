"""Generate the page of errors and codes: the errors from their classes, the codes from what
`parley errors` shows."""

from collections.abc import Iterator
from inspect import getdoc
from typing import Final

from parley import errors
from parley._node.cli.error_catalogue import EXPLANATIONS
from parley._node.protocol.codes import SENTENCES, CloseCode

PAGE: Final = "docs/reference/errors.md"
_HEAD: Final = """# Errors and codes

What programs catch, the codes of the wire, and the exit codes of the command line. An error that
has a code carries it as `code`; `parley errors CODE` explains one on the terminal. Sections are
those of [protocol.md](../protocol.md).

## Errors

All of them are in `parley.errors`. In brackets: other classes that catch the error as well. If a
handler raises something else, it is logged with a traceback, and the caller gets code 16 and a
fixed sentence.
"""
# The kinds of codes: heading, what to know before the table, and after it.
_KINDS: Final = {
    "close": (
        "Close codes",
        "Of Reject, Reset and Close (section 11). `parley.CloseCode` has them; applications use 64 "
        "and above. A code below 0 is local and never sent.",
        """Reject carries the sentence as its text; Close and Reset leave it to the reader, and
carry a text only if the application gave one. 20, 22 and 32 to 35 are for Reset alone.

A node resets a stream with `no-handler` if it has no handler for the label, `not-authorised` or
`wrong-supercategory` if its handler is not for this peer, `refused` if the label is reserved or the
node is closing, `cancelled` if the stream is not read any more or the handler was cancelled,
`overloaded` if too much is unread, and `internal-error` if its handler failed.
""",
    ),
    "result": (
        "Result codes",
        "Of Result (section 9). `parley.ResultCode` has them; an application may answer with any "
        "other.",
        "",
    ),
    "event": (
        "Error codes of named events",
        "The Error of a named event (section 10) carries a code of results, except if its handler "
        "failed:",
        "",
    ),
    "relay": (
        "Relay codes",
        "What an event relay sends to its clients (`parley.dialects.RelayCode`). After 5, and "
        "after 3 for a message that is too short, the connection stays open; after the others it "
        "is closed.",
        "",
    ),
    "exit": (
        "Exit codes",
        "Of every command.",
        """A signal ends a command with 128 and its number: 130 for SIGINT, 143 for SIGTERM.
Commands that run until one of them comes (`serve`, `run`, `pipeline follow` and `ping --watch`)
exit with 0. At SIGHUP `serve` and `run` read their settings again. If the reader of standard
output has left, as in `parley .. | head -1`, the code is 141, without a message.
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
    """The public class that the error is listed below."""
    return next((each for each in error.__mro__[1:] if each in _public()), Exception)


def _tree(root: type, depth: int) -> Iterator[str]:
    """A list of the errors below `root`."""
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
