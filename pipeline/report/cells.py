"""What stands in the report's tables: names, nodes, sessions and codes, and figures' frames.

One rule: a text that a stranger chose goes through `visible` here.
"""

from typing import Final

from node.protocol.codes import code_name
from pipeline.gold.kinds import FAULT, WEIGHTS
from pipeline.report import units
from pipeline.report.html import Child, Markup, element
from pipeline.report.names import Nodes, visible

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
    """An image with a caption; `alt` says what it shows to who cannot see it."""
    return element("figure", element("img", src=address, alt=alt), element("figcaption", caption))


def first_of(what: str, shown: int, of: int | None, limit: int) -> str:
    """A caption that says how much of all there is stands in a table of at most `limit` rows."""
    if of is None:
        return f"{what}. The first {limit}." if shown == limit else f"{what}."
    return f"{what}. The first {shown} of {units.count(of)}." if shown < of else f"{what}."
