"""The report as one HTML page, of the figures that `pipeline.report.queries` collects.

The page loads nothing and escapes every name. The one script that it has sorts, filters and turns
the pages of tables; a policy in the page forbids every other one, by the script's hash, and all
that might be loaded.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from pipeline.report import units
from pipeline.report.cells import Nodes
from pipeline.report.federation import federation_section
from pipeline.report.figures import Figures
from pipeline.report.findings import NODE_ID, findings_section
from pipeline.report.html import Html, Markup, element
from pipeline.report.sections import (
    calls_section,
    nodes_section,
    reading_section,
    topics_section,
    traffic_section,
)
from pipeline.report.sessions import session_pages, sessions_section

_HERE: Final = Path(__file__).parent
_STYLE: Final = Html((_HERE / "style.css").read_text(encoding="utf-8"))
_SCRIPT: Final = Html((_HERE / "tables.js").read_text(encoding="utf-8"))
_HASH: Final = b64encode(sha256(_SCRIPT.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_HASH}'"
)
_TITLE: Final = "Parley: what the journals say"


def render(figures: Figures, names: Mapping[str, str] | None = None) -> str:
    """The page for figures that were collected.

    `names` are those by which the reader knows nodes, by node id.
    """
    nodes = Nodes(_all_nodes(figures), names)
    pages = {talk.session for talk in figures.talks}
    sections = (
        ("findings", "Findings", findings_section(figures, nodes, pages)),
        ("traffic", "Traffic", traffic_section(figures, nodes)),
        ("calls", "Calls", calls_section(figures, nodes)),
        ("topics", "Topics", topics_section(figures, nodes)),
        ("sessions", "Sessions", sessions_section(figures, nodes, pages)),
        ("nodes", "Nodes", nodes_section(figures, nodes)),
        ("federation", "Federation", federation_section(figures, nodes)),
        ("reading", "How to read this", reading_section()),
    )
    links = [element("li", element("a", title, href=f"#{id}")) for id, title, _ in sections]
    body = element(
        "body",
        element("header", element("h1", _TITLE), *_introduction(figures)),
        element("nav", element("ul", *links), aria_label="Sections"),
        # Before all others: one that is shown stands in front of them.
        *session_pages(figures, nodes, pages),
        element(
            "main",
            *(
                element("section", element("h2", title), *parts, id=id)
                for id, title, parts in sections
            ),
        ),
        element("script", Markup(_SCRIPT)),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", _TITLE),
        element("style", Markup(_STYLE)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en').html}\n"


def _introduction(figures: Figures) -> list[Markup]:
    if figures.first is None:
        return [element("p", "The tables have no events.")]
    when = f"Events from {units.time(figures.first)} to {units.time(figures.last)} UTC."
    if figures.refreshed is not None:
        when += f" Tables made {units.time(figures.refreshed)} UTC."
    verified = units.share(figures.verified, figures.journaled)
    tiles = (
        ("Nodes", units.count(figures.nodes), f"{units.count(figures.journals)} with a journal"),
        (
            "Sessions",
            units.count(figures.sessions),
            f"{units.count(figures.both_ends)} seen from both ends",
        ),
        ("Events", units.count(figures.events), f"{units.size(figures.wire_bytes)} on the wire"),
        ("Verified", verified, f"of {units.counted(figures.journaled, 'record')} of events"),
        ("Calls", units.count(figures.calls), f"between {units.counted(figures.pairs, 'pair')}"),
        ("Notes", units.count(figures.notes), f"in {units.counted(figures.topic_count, 'topic')}"),
    )
    shown = tiles if figures.has_key else tiles[:4]
    return [
        element("p", when, class_="soft"),
        element(
            "dl",
            *(
                element(
                    "div",
                    element("dt", name),
                    element("dd", value),
                    element("dd", note, class_="note"),
                    class_="tile",
                )
                for name, value, note in shown
            ),
            class_="tiles",
        ),
    ]


def _all_nodes(figures: Figures) -> set[str]:
    """Every node id that the page may show."""
    named: set[str | None] = {row.node for row in figures.node_rows}
    named |= {point.sender for point in figures.traffic}
    for finding in figures.findings:
        named |= {finding.journal, finding.segment[:NODE_ID] if finding.segment else None}
    for edge in (*figures.edges, *figures.talked):
        named |= {edge.sender, edge.receiver}
    for link in figures.links:
        named |= {link.before, link.after}
    for tunnel in figures.tunnel_rows:
        named |= set(tunnel.path)
    for call in figures.by_pair:
        named |= {call.caller, call.callee}
    for session in (*figures.session_rows, *figures.talks):
        named |= {session.initiator, session.responder}
    named |= {topic.publisher for topic in figures.topics}
    named |= {event.journal for events in figures.talks.values() for event in events}
    return {node for node in named if node is not None}
