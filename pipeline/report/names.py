"""Strangers' names made fit to be shown: what is invisible or misleading becomes visible.

One rule: what comes out has no control, format or private characters and a bounded length;
it is text still, and escaped by who puts it into a page.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final
from unicodedata import category

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
