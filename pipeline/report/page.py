"""The report as one HTML page, rendered from the figures that `pipeline.report.queries` collects.

The template `page.html` escapes every value. The page loads nothing. Its only script sorts, filters
and paginates tables. A content security policy blocks all loading, and all scripts except this one,
which it identifies by hash.
"""

import os
import tempfile
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from parley._node.errors import FileError, os_reason
from parley._pipeline.errors import NoTablesError
from parley._pipeline.gold.finding_texts import FAULT, NOTICE, UNCHECKED, WEIGHTS
from parley._pipeline.gold.refresh import newest, read_all_gold
from parley._pipeline.gold.store import GoldStore
from parley._pipeline.report import cells
from parley._pipeline.report import format as units
from parley._pipeline.report.cells import NODE_ID, Nodes
from parley._pipeline.report.plots import BARS, graph_plot, latency_plot, topics_plot, traffic_plot
from parley._pipeline.report.queries import collect
from parley._pipeline.report.report_data import (
    EVENT_ROWS,
    LISTED,
    ROWS,
    TOP_NODES,
    Figures,
    FindingRow,
)

_HERE: Final = Path(__file__).parent
# Both files are part of this package; no other value is inserted without escaping.
_STYLE: Final = Markup((_HERE / "style.css").read_text(encoding="utf-8"))  # noqa: S704
_SCRIPT: Final = Markup((_HERE / "tables.js").read_text(encoding="utf-8"))  # noqa: S704
_HASH: Final = b64encode(sha256(_SCRIPT.encode()).digest()).decode()
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_HERE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals |= {
    "units": units,
    "WEIGHTS": WEIGHTS,
    "BARS": BARS,
    "EVENT_ROWS": EVENT_ROWS,
    "TOP_NODES": TOP_NODES,
    "LISTED": LISTED,
    "title": "Parley: report of the journals",
    "style": _STYLE,
    "script": _SCRIPT,
    "policy": (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_HASH}'"
    ),
} | {
    function.__name__: function
    for function in (
        cells.closed_name,
        cells.description,
        cells.claimed_time,
        cells.ending,
        cells.error_codes,
        cells.first_of,
        cells.kind_id,
        cells.meaning,
        cells.page_id,
        cells.place_of,
        cells.result_name,
        cells.visible,
    )
}
_BUCKETS: Final = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day", 604_800: "week"}
_SECOND: Final = 1_000_000


def render(figures: Figures, names: Mapping[str, str] | None = None) -> str:
    """Return the HTML page for these figures.

    `names` maps node IDs to petnames.
    """
    nodes = Nodes(_all_nodes(figures), names)
    findings_about: defaultdict[str | None, list[FindingRow]] = defaultdict(list)
    for finding in figures.findings:
        findings_about[finding.session].append(finding)
    answered = [row for row in figures.by_topic if row.p50_us is not None]
    whole = figures.bucket % _SECOND == 0 and _BUCKETS.get(figures.bucket // _SECOND)
    return _TEMPLATES.get_template("page.html").render(
        figures=figures,
        nodes=nodes,
        pages={talk.session for talk in figures.talks},
        tiles=_tiles(figures),
        verdict=_verdict(figures),
        findings_about=findings_about,
        width=whole or units.duration(figures.bucket),
        answered=min(len(answered), BARS),
        slowest=max(answered, key=lambda row: row.p99_us or 0, default=None),
        pictures=_pictures(figures, nodes),
    )


def _pictures(figures: Figures, nodes: Nodes) -> dict[str, str | None]:
    """Return the image URLs by name; None where there is nothing to draw."""
    arrows = [(edge.sender, edge.receiver, edge.events) for edge in figures.edges]
    by_node: Counter[str] = Counter()
    for link in figures.links:
        by_node.update({link.before: link.tunnels, link.after: link.tunnels})
    busiest = {node for node, _ in by_node.most_common(TOP_NODES)}
    tunnels = [
        (link.before, link.after, link.tunnels)
        for link in figures.links
        if busiest.issuperset((link.before, link.after))
    ]
    has_answers = any(row.p50_us is not None for row in figures.by_topic)
    return {
        "traffic": traffic_plot(figures.traffic, figures.bucket, nodes)
        if figures.traffic
        else None,
        "latency": latency_plot(figures.by_topic) if has_answers else None,
        "topics": topics_plot(figures.topic_notes) if figures.topics else None,
        "nodes": graph_plot(arrows, figures.node_rows, nodes) if arrows else None,
        "federation": graph_plot(tunnels, figures.servers, nodes) if tunnels else None,
    }


def _tiles(figures: Figures) -> list[tuple[str, str, str]]:
    """Return the totals as (name, number, note); totals of calls and notes need an auditor's
    key.
    """
    tiles = [
        ("Nodes", units.count(figures.nodes), f"{units.count(figures.journals)} with a journal"),
        (
            "Sessions",
            units.count(figures.sessions),
            f"{units.count(figures.both_ends)} seen from both ends",
        ),
        ("Events", units.count(figures.events), f"{units.size(figures.wire_bytes)} on the wire"),
        (
            "Verified",
            units.share(figures.verified, figures.journaled),
            f"of {units.counted(figures.journaled, 'event record')}",
        ),
        ("Calls", units.count(figures.calls), f"between {units.counted(figures.pairs, 'pair')}"),
        ("Notes", units.count(figures.notes), f"in {units.counted(figures.topic_count, 'topic')}"),
    ]
    return tiles if figures.has_key else tiles[:4]


def _verdict(figures: Figures) -> dict[str, str]:
    """Return the overall verdict: its style, text and details."""
    sums = dict.fromkeys((FAULT, UNCHECKED, NOTICE), 0)
    for row in figures.finding_kinds:
        sums[row.weight if row.weight in sums else FAULT] += row.findings
    checked = (
        f"{units.count(figures.verified)} of {units.counted(figures.journaled, 'event record')} "
        f"in {units.counted(figures.journals, 'journal')} "
        f"{'was' if figures.verified == 1 else 'were'} verified."
    )
    if sums[FAULT]:
        look, text = "fault", f"{units.counted(sums[FAULT], 'fault')} found."
    elif not figures.journaled:
        look, text, checked = "unchecked", "The tables contain no events to check.", ""
    elif sums[UNCHECKED]:
        look, text = "unchecked", "No faults found in the records that could be checked."
    else:
        look, text = "good", "No faults found."
    others = []
    if sums[UNCHECKED]:
        others.append(f"{units.counted(sums[UNCHECKED], 'item')} that could not be checked")
    if sums[NOTICE]:
        others.append(units.counted(sums[NOTICE], "notice"))
    besides = f" Also found: {' and '.join(others)}." if others else ""
    return {"look": look, "text": text, "details": f"{checked}{besides}".strip()}


def _all_nodes(figures: Figures) -> set[str]:
    """Return every node ID that can appear on the page."""
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
    for statement in figures.statement_rows:
        named |= {statement.journal, statement.presenter, statement.origin, statement.successor}
    for ended in figures.ended_rows:
        named |= {ended.journal, ended.presenter, ended.origin, ended.successor}
    named |= {event.journal for events in figures.talks.values() for event in events}
    return {node for node in named if node is not None}


def write_report(
    store: GoldStore,
    path: Path,
    *,
    names: Mapping[str, str] | None = None,
    rows: int = ROWS,
    without_events: bool = False,
    stage: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the report of the gold tables to one HTML file atomically.

    `names` maps node IDs to petnames. Each table has at most `rows` rows. Events of sessions are
    read unless `without_events` is true. `stage` is called with a description of each step.

    Raises:
        NoTablesError: The tables don't exist or are damaged.
        FileError: The file cannot be written.
    """
    stage("reading the tables")
    gold = read_all_gold(store)
    _, mark = newest(store)
    if gold is None or mark is None:
        raise NoTablesError(
            "cannot read the gold tables: they do not exist; make them with `parley pipeline run`"
        )
    scan = None if without_events else partial(_scan, store, mark.batch)
    stage("selecting the rows to show" if scan is None else "reading the events of sessions")
    figures = collect(gold, scan, rows)
    stage("writing the page")
    page = render(figures, names)
    _to_file(path, page)


def _to_file(path: Path, page: str) -> None:
    """Write a page atomically.

    Raises:
        FileError: The file cannot be written.
    """
    try:
        _replace(path, page)
    except OSError as error:
        raise FileError(
            f"cannot write '{path}': {os_reason(error)}; choose another file with --html"
        ) from error


def _replace(path: Path, page: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        try:
            file.write(page)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _scan(
    store: GoldStore, last: int, columns: Sequence[str], sessions: Sequence[str] | None
) -> Iterator[pa.Table]:
    return store.scan(columns, last, sessions)
