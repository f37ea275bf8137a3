"""HTML from values: every text is escaped unless it was made here.

`Html` is what may stand in a page as it is, and only this module makes it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NewType

Html = NewType("Html", str)

_EMPTY: Final = frozenset({"img", "meta", "br", "hr"})


class Number(str):
    """A table's cell that is a number, or the head of such: set to the right. `key` is what it is
    sorted by; without one it is sorted as nothing."""

    __slots__ = ("key",)

    key: float | None

    def __new__(cls, text: str, key: float | None = None) -> "Number":
        """A cell with this text."""
        made = super().__new__(cls, text)
        made.key = key
        return made


class Markup:
    """A cell or child that is HTML already; one with a `key` is sorted by that."""

    __slots__ = ("html", "key")

    def __init__(self, html: Html, key: float | None = None) -> None:
        self.html = html
        self.key = key


Child = str | Markup


def element(tag: str, *children: Child, **attributes: str) -> Markup:
    """An element; texts and attributes are escaped. `class_` and `aria_label` are named so."""
    names = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
    )
    if tag in _EMPTY:
        return Markup(Html(f"<{tag}{names}>"))
    return Markup(Html(f"<{tag}{names}>{inner(*children)}</{tag}>"))


def inner(*children: Child) -> Html:
    """Children one after another."""
    return Html(
        "".join(child.html if isinstance(child, Markup) else escape(child) for child in children)
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table whose rows are named by their first cells; it scrolls where it is too wide."""
    body = [
        element("tr", *(_cell(cell, first=at == 0) for at, cell in enumerate(row))) for row in rows
    ]
    names = element("tr", *map(_head, head))
    made = element(
        "table",
        element("caption", element("div", caption)),
        element("thead", names),
        element("tbody", *body),
    )
    return element("div", made, class_="wide", role="region", tabindex="0", aria_label=caption)


def _head(name: str) -> Markup:
    if isinstance(name, Number):
        return element("th", name, scope="col", class_="number")
    return element("th", name, scope="col")


def _cell(cell: Child, *, first: bool) -> Markup:
    key = None if isinstance(cell, str) and not isinstance(cell, Number) else cell.key
    by = {} if key is None else {"data_key": str(key)}
    if isinstance(cell, Number):
        by["class_"] = "number"
    return element("th", cell, scope="row", **by) if first else element("td", cell, **by)
