"""Docstrings as Markdown: paragraphs as they are, their sections as lists.

It reads the one form that docstrings have here (`Raises:` with several errors to a
paragraph, `Returns:`, `Attributes:`) and changes no word.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Final

_SECTION: Final = re.compile(r"^(Raises|Returns|Attributes):$", re.MULTILINE)
# `NotFound: why.` begins an entry, several to a paragraph; so does `name, other: what`.
_RAISED: Final = re.compile(r"(?:^|(?<=\. ))([A-Z]\w+(?:, [A-Z]\w+)*): ")
_ATTRIBUTE: Final = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?<=[\w`)\]\"'])[.:](?= [A-Z`]|$)")


def summary(docstring: str) -> str:
    """The first sentence."""
    first = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
    end = _SENTENCE.search(first)
    return (first[: end.start()] if end else first) + "."


def paragraphs(docstring: str) -> Iterator[str]:
    """All of a docstring."""
    before, *sections = _SECTION.split(inspect.cleandoc(docstring))
    if before.strip():
        yield before.strip()
    for kind, body in zip(sections[::2], sections[1::2], strict=True):
        body, _, after = body.strip("\n").partition("\n\n")
        body = textwrap.dedent(body)
        if kind == "Returns":
            yield f"Returns: {body[:1].lower()}{body[1:]}"
        elif kind == "Attributes":
            yield _list(_ATTRIBUTE.split(body), "")
        else:
            yield _list(_RAISED.split(body.replace("\n", " ")), "Raises:\n\n")
        if after.strip():
            yield after.strip()


def _list(parts: list[str], heading: str) -> str:
    """Entries of names and what is said of them; what has no name stands alone."""
    alone, *rest = parts
    if not rest:
        return f"Raises {alone.strip()}"
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return heading + "\n".join(
        f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {' '.join(text.split())}"
        for names, text in pairs
    )
