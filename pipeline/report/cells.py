"""The cells of the report's tables: names made fit to be shown, nodes, sessions, codes, pictures.

Every text that a stranger chose goes through `visible`. What comes out of it has no control, format
or private characters and a bounded length; it is still text, to be escaped on its way into a page.
"""

from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Final
from unicodedata import category

from node.protocol.codes import ResultCode, code_name
from pipeline.gold.meanings import FAULT, WEIGHTS
from pipeline.report import units
from pipeline.report.html import Child, Markup, Number, element

NAME_LIMIT: Final = 80  # characters that are shown of a name
MARKS: Final = 2  # combining marks in a row, of which more pile up over other lines
NODE_NAME: Final = 24  # characters of the name that a reader gave a node
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
    """Names of nodes where they are known, and short forms of their ids, as long as tells them
    apart."""

    __slots__ = ("_names", "_short")

    def __init__(self, ids: Iterable[str], names: Mapping[str, str] | None = None) -> None:
        self._names = {node: visible(name, NODE_NAME) for node, name in (names or {}).items()}
        known = sorted(set(ids))
        self._short: dict[str, str] = {}
        for at, node in enumerate(known):
            beside = known[max(at - 1, 0) : at] + known[at + 1 : at + 2]
            size = max([NODE_SIZE, *(_common(node, other) + 1 for other in beside)])
            self._short[node] = node[:size] + ("…" if len(node) > size else "")

    def short(self, node: str) -> str:
        """The short form; of a node that was not among them, the id as it is."""
        return self._short.get(node, node)

    def name(self, node: str) -> str | None:
        """The name that the reader knows it by."""
        return self._names.get(node)

    def told(self, node: str) -> str:
        """The name, or else the short form."""
        return self._names.get(node) or self.short(node)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    size = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        size += 1
    return size


_SESSION_SIZE: Final = 12
PAGE_ID: Final = 128  # digits of a page's place: those of a session id of 32 bytes, as text


def closed_cell(code: int | None) -> str:
    """The name of what ended a session."""
    return "no end in the journal" if code is None else code_name(code)


def result_name(code: int) -> str:
    """The name of a result's code; of one without a name, the number."""
    try:
        return ResultCode(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


def weight_cell(weight: str) -> Markup:
    """A finding's weight, in its colour and in a word; sorted by how heavy it is."""
    known = weight if weight in WEIGHTS else FAULT
    made = element("span", known, class_=f"weight {known}")
    return Markup(made.html, list(WEIGHTS).index(known))


def name_cell(name: str | None) -> Markup:
    """A stranger's name; apart from what surrounds it, whichever way it is written."""
    if not name:
        return element("em", "none" if name is None else "empty")
    return element("bdi", visible(name), class_="name")


def node_cell(node: str | None, nodes: Nodes) -> Child:
    """A node's name, if it is known, and its short id; the whole one is told on pointing at it."""
    if node is None:
        return units.NOTHING
    code = element("code", visible(nodes.short(node)), class_="nowrap", title=visible(node))
    name = nodes.name(node)
    return code if name is None else element("span", element("bdi", name), " ", code)


def session_cell(session: str | None, pages: Container[str] = ()) -> Child:
    """The beginning of a session's id, which leads to its page if there is one; the whole one is
    told on pointing at it."""
    if session is None:
        return units.NOTHING
    short = visible(session[:_SESSION_SIZE]) + ("…" if len(session) > _SESSION_SIZE else "")
    code = element("code", short, class_="nowrap", title=visible(session))
    return element("a", code, href=f"#{page_id(session)}") if session in pages else code


def page_id(session: str) -> str:
    """Where in the page a session's own page is; as hexadecimal, whatever it is named."""
    return f"session-{session.encode(errors='backslashreplace').hex()[:PAGE_ID]}"


def count_cell(number: float | None) -> Number:
    """A whole number."""
    return Number(units.count(number), number)


def size_cell(number: float | None) -> Number:
    """Bytes."""
    return Number(units.size(number), number)


def duration_cell(micros: float | None) -> Number:
    """Microseconds."""
    return Number(units.duration(micros), micros)


def time_cell(micros: int | None, *, fine: bool = False) -> Child:
    """Microseconds since the epoch as a time in UTC, to the second or, `fine`, the millisecond."""
    if micros is None:
        return units.NOTHING
    text = units.time(micros) + (f".{micros // 1_000 % 1_000:03}" if fine else "")
    return Markup(element("span", text, class_="nowrap").html, micros)


def picture(address: str, alt: str, caption: str) -> Markup:
    """An image with a caption, as wide as the page; `alt` describes it to readers who cannot see
    it."""
    image = element("img", src=address, alt=alt)
    frame = element("div", image, class_="picture", role="region", tabindex="0", aria_label=caption)
    return element("figure", frame, element("figcaption", caption))


def first_of(what: str, shown: int, of: int | None, limit: int) -> str:
    """A caption that says how much of all there is stands in a table of at most `limit` rows, and
    how to get the rest."""
    cut = shown == limit if of is None else shown < of
    if not cut:
        return f"{what}."
    all_ = "" if of is None else f" of {units.count(of)}"
    return f"{what}. The first {units.count(shown)}{all_}: the option --rows shows more."
