"""The cells of the report's tables: names made fit to be shown, nodes, sessions, codes, pictures.

Every text that a stranger chose goes through `visible`. What comes out of it has no control, format
or private characters and a bounded length; it is still text, to be escaped on its way into a page.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final
from unicodedata import category

from node.protocol.codes import code_name
from pipeline.gold.meanings import FAULT, WEIGHTS
from pipeline.report import units
from pipeline.report.html import Child, Markup, element

NAME_LIMIT: Final = 80  # characters that are shown of a name
MARKS: Final = 2  # combining marks in a row, of which more pile up over other lines
NODE_SIZE: Final = 8  # characters of a node id, at least

# Controls, formats (among them those that turn text around), surrogates, private and
# unassigned ones, and separators of lines and paragraphs.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARK: Final = frozenset({"Mn", "Me"})


def visible(text: str, limit: int = NAME_LIMIT) -> str:
    """At most `limit` characters of `text`, then how many there are; unseen ones as `\\uXXXX`."""
    shown = []
    marks = 0
    for character in islice(text, limit):
        kind = category(character)
        marks = marks + 1 if kind in _MARK else 0
        unseen = kind in _UNSEEN or (kind == "Zs" and character != " ") or marks > MARKS
        shown.append(f"\\u{{{ord(character):x}}}" if unseen else character)
    if len(text) > limit:
        shown.append(f"… ({len(text):,} characters)")
    return "".join(shown)


class Nodes:
    """Short forms of node ids, as long as tells them apart."""

    __slots__ = ("_short",)

    def __init__(self, ids: Iterable[str]) -> None:
        known = sorted(set(ids))
        self._short: dict[str, str] = {}
        for at, node in enumerate(known):
            beside = known[max(at - 1, 0) : at] + known[at + 1 : at + 2]
            size = max([NODE_SIZE, *(_common(node, other) + 1 for other in beside)])
            self._short[node] = node[:size] + ("…" if len(node) > size else "")

    def short(self, node: str) -> str:
        """The short form; of a node that was not named before, the id as it is."""
        return self._short.get(node, node)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    size = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        size += 1
    return size


_SESSION_SIZE: Final = 12


def closed_cell(code: int | None) -> str:
    """The name of what ended a session."""
    return "no end in the journal" if code is None else code_name(code)


def weight_cell(weight: str) -> Markup:
    """A finding's weight, in its colour and in a word."""
    known = weight if weight in WEIGHTS else FAULT
    return element("span", known, class_=f"weight {known}")


def name_cell(name: str | None) -> Markup:
    """A stranger's name; apart from what surrounds it, whichever way it is written."""
    if not name:
        return element("em", "none" if name is None else "empty")
    return element("bdi", visible(name), class_="name")


def node_cell(node: str | None, nodes: Nodes) -> Child:
    """A node's short id; the whole one is told on pointing at it."""
    if node is None:
        return units.NOTHING
    return element("code", visible(nodes.short(node)), class_="nowrap", title=visible(node))


def session_cell(session: str | None) -> Child:
    """The beginning of a session's id; the whole one is told on pointing at it."""
    if session is None:
        return units.NOTHING
    short = visible(session[:_SESSION_SIZE]) + ("…" if len(session) > _SESSION_SIZE else "")
    return element("code", short, class_="nowrap", title=visible(session))


def picture(address: str, alt: str, caption: str) -> Markup:
    """An image with a caption; `alt` describes it to readers who cannot see it."""
    return element("figure", element("img", src=address, alt=alt), element("figcaption", caption))


def first_of(what: str, shown: int, of: int | None, limit: int) -> str:
    """A caption that says how much of all there is stands in a table of at most `limit` rows."""
    if of is None:
        return f"{what}. The first {limit}." if shown == limit else f"{what}."
    return f"{what}. The first {shown} of {units.count(of)}." if shown < of else f"{what}."
