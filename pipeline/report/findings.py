"""The report's findings: the verdict, their kinds with what they mean, and each of them.

Of a finding the report says what `pipeline.gold.meanings` says of its kind, and adds nothing.
"""

from collections.abc import Container
from typing import Final

from pipeline.gold.meanings import FAULT, KINDS, NOTICE, UNCHECKED
from pipeline.report import units
from pipeline.report.cells import (
    Nodes,
    count_cell,
    first_of,
    node_cell,
    session_cell,
    time_cell,
    visible,
    weight_cell,
)
from pipeline.report.figures import Figures, FindingRow
from pipeline.report.html import Child, Markup, Number, element, table

NODE_ID: Final = 52  # of a node id, which segments' names begin with
_SEGMENT_LIMIT: Final = 120
_EVIDENCE_LIMIT: Final = 600


def findings_section(figures: Figures, nodes: Nodes, pages: Container[str]) -> list[Markup]:
    """The verdict, the kinds that were found, and each finding."""
    parts = [_verdict(figures)]
    if not figures.finding_kinds:
        return parts
    kinds: list[tuple[Child, ...]] = [
        (
            element("span", _kind(row.kind), id=kind_id(row.kind)),
            weight_cell(row.weight),
            count_cell(row.findings),
            count_cell(row.events),
            count_cell(row.journals),
            *_meaning(row.kind),
        )
        for row in figures.finding_kinds
    ]
    head = (
        "Kind", "Weight", Number("Findings"), Number("Events"), Number("Journals"),
        "What it means", "What it does not prove", "What to do",
    )  # fmt: skip
    parts.append(table("What was found, by kind.", head, kinds))
    found = sum(row.findings for row in figures.finding_kinds)
    what = "Each finding: faults first, then by time; a session leads to its events"
    caption = first_of(what, len(figures.findings), found, figures.rows)
    return [*parts, findings_table(caption, figures.findings, nodes, pages)]


def findings_table(
    caption: str, findings: list[FindingRow], nodes: Nodes, pages: Container[str]
) -> Markup:
    """A table of findings, with a link from each to its kind and its session."""
    columns = (
        "Kind", "Weight", "Journal", "Session", "Direction", Number("Place"), Number("Events"),
        "Time (UTC)", "Evidence",
    )  # fmt: skip
    return table(caption, columns, [_finding(row, nodes, pages) for row in findings])


def kind_id(kind: str) -> str:
    """Where in the page a kind is explained; as hexadecimal, whatever it is named."""
    return f"kind-{kind if kind in KINDS else kind.encode(errors='backslashreplace').hex()}"


def _verdict(figures: Figures) -> Markup:
    sums = dict.fromkeys((FAULT, UNCHECKED, NOTICE), 0)
    for row in figures.finding_kinds:
        sums[row.weight if row.weight in sums else FAULT] += row.findings
    others = []
    if sums[UNCHECKED]:
        others.append(f"{units.counted(sums[UNCHECKED], 'thing')} that could not be checked")
    if sums[NOTICE]:
        others.append(units.counted(sums[NOTICE], "notice"))
    beside = f" Besides: {' and '.join(others)}." if others else ""
    checked = (
        f"{units.count(figures.verified)} of {units.counted(figures.journaled, 'record')} of "
        f"events in {units.counted(figures.journals, 'journal')} "
        f"{'was' if figures.verified == 1 else 'were'} verified."
    )
    if sums[FAULT]:
        return _banner("fault", f"{units.counted(sums[FAULT], 'fault')} found.", checked, beside)
    if not figures.journaled:
        return _banner("unchecked", "There was nothing to check.", "", beside)
    if sums[UNCHECKED]:
        return _banner("unchecked", "No faults found in what could be checked.", checked, beside)
    return _banner("good", "No faults found.", checked, beside)


def _banner(weight: str, verdict: str, checked: str, beside: str) -> Markup:
    text = f" {checked}{beside}"
    return element("p", element("strong", verdict), text, class_=f"verdict {weight}")


def _finding(row: FindingRow, nodes: Nodes, pages: Container[str]) -> tuple[Child, ...]:
    evidence: list[Child] = [visible(row.evidence or "", _EVIDENCE_LIMIT)]
    if row.segment is not None:
        named = nodes.short(row.segment[:NODE_ID]) + row.segment[NODE_ID:]
        at = "" if row.offset is None else f" at {row.offset}"
        where = visible(named, _SEGMENT_LIMIT) + at
        evidence += [" ", element("code", where, class_="soft")]
    return (
        element("a", _kind(row.kind), href=f"#{kind_id(row.kind)}"),
        weight_cell(row.weight),
        node_cell(row.journal, nodes),
        session_cell(row.session, pages),
        row.direction or units.NOTHING,
        count_cell(row.place),
        count_cell(row.events),
        time_cell(row.time),
        element("div", *evidence, class_="evidence"),
    )


def _kind(kind: str) -> Markup:
    return element("code", visible(kind), class_="nowrap")


def _meaning(kind: str) -> list[Markup]:
    known = KINDS.get(kind)
    none = "This version does not know it.", units.NOTHING, "Read it with a newer version."
    sentences = (known.proves, known.proves_not, known.advice) if known else none
    return [element("div", text, class_="prose") for text in sentences]
