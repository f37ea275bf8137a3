"""The report's first part: what was found, by kind and one by one, and the verdict on it.

One rule: a finding's kind says what it proves and what not; the report adds nothing to it.
"""

from typing import Final

from pipeline.gold.kinds import FAULT, KINDS, NOTICE, UNCHECKED
from pipeline.report import units
from pipeline.report.cells import first_of, node_cell, session_cell, weight_cell
from pipeline.report.figures import FINDING_ROWS, Figures, FindingRow
from pipeline.report.html import Child, Markup, Number, element, table
from pipeline.report.names import Nodes, visible

NODE_ID: Final = 52  # of a node id, which segments' names begin with
_SEGMENT_LIMIT: Final = 120
_EVIDENCE_LIMIT: Final = 600


def findings_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """The verdict, the kinds that were found, and each finding."""
    parts = [_verdict(figures)]
    if not figures.finding_kinds:
        return parts
    kinds = [
        (
            _kind(row.kind),
            weight_cell(row.weight),
            Number(units.count(row.findings)),
            Number(units.count(row.events)),
            Number(units.count(row.journals)),
            *_meaning(row.kind),
        )
        for row in figures.finding_kinds
    ]
    head = (
        "Kind", "Weight", Number("Findings"), Number("Events"), Number("Journals"),
        "What it proves", "What it does not prove",
    )  # fmt: skip
    parts.append(table("Findings by kind.", head, kinds))
    found = sum(row.findings for row in figures.finding_kinds)
    rows = [_finding(row, nodes) for row in figures.findings]
    columns = (
        "Kind", "Weight", "Journal", "Session", "Direction", Number("Place"), Number("Events"),
        "Time (UTC)", "Evidence",
    )  # fmt: skip
    caption = first_of("Each finding: faults first, then by time", len(rows), found, FINDING_ROWS)
    parts.append(table(caption, columns, rows))
    return parts


def _verdict(figures: Figures) -> Markup:
    sums = dict.fromkeys((FAULT, UNCHECKED, NOTICE), 0)
    for row in figures.finding_kinds:
        sums[row.weight if row.weight in sums else FAULT] += row.findings
    others = []
    if sums[UNCHECKED]:
        others.append(f"{units.count(sums[UNCHECKED])} that could not be checked")
    if sums[NOTICE]:
        others.append(units.counted(sums[NOTICE], "notice"))
    beside = f" Besides: {' and '.join(others)}." if others else ""
    checked = (
        f"{units.count(figures.verified)} of {units.count(figures.journaled)} records of events "
        f"in {units.counted(figures.journals, 'journal')} were verified."
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


def _finding(row: FindingRow, nodes: Nodes) -> tuple[Child, ...]:
    evidence: list[Child] = [visible(row.evidence or "", _EVIDENCE_LIMIT)]
    if row.segment is not None:
        named = nodes.short(row.segment[:NODE_ID]) + row.segment[NODE_ID:]
        at = "" if row.offset is None else f" at {row.offset}"
        where = visible(named, _SEGMENT_LIMIT) + at
        evidence += [" ", element("code", where, class_="soft")]
    return (
        _kind(row.kind),
        weight_cell(row.weight),
        node_cell(row.journal, nodes),
        session_cell(row.session),
        row.direction or units.NOTHING,
        Number(units.count(row.place)),
        Number(units.count(row.events)),
        element("span", units.time(row.time), class_="nowrap"),
        element("div", *evidence, class_="evidence"),
    )


def _kind(kind: str) -> Markup:
    return element("code", visible(kind), class_="nowrap")


def _meaning(kind: str) -> tuple[Markup, Markup]:
    known = KINDS.get(kind)
    sentences = (known.proves, known.proves_not) if known else (units.NOTHING, units.NOTHING)
    proves, proves_not = (element("div", text, class_="prose") for text in sentences)
    return proves, proves_not
