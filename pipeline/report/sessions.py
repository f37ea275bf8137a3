"""The report's sessions: the table of them, and a page for each of some, with its findings and
events. Such a page is shown when the reader follows a link to it."""

from collections.abc import Container

from pipeline.report import units
from pipeline.report.cells import (
    Nodes,
    closed_cell,
    count_cell,
    duration_cell,
    first_of,
    name_cell,
    node_cell,
    page_id,
    result_name,
    session_cell,
    size_cell,
    time_cell,
    visible,
)
from pipeline.report.figures import EVENT_ROWS, EventRow, Figures, FindingRow, SessionSummary
from pipeline.report.findings import findings_table
from pipeline.report.html import Child, Markup, Number, element, table

_RESULT = "result"


def sessions_section(figures: Figures, nodes: Nodes, pages: Container[str]) -> list[Markup]:
    """The sessions, how they were encrypted and how they ended."""
    if not figures.session_rows:
        return [element("p", "No sessions.")]
    rows = [
        (
            session_cell(row.session, pages),
            node_cell(row.initiator, nodes),
            node_cell(row.responder, nodes),
            time_cell(row.started),
            duration_cell(row.duration_us),
            count_cell(row.events),
            size_cell(row.wire_bytes),
            count_cell(row.key_updates),
            count_cell(row.rekeys),
            count_cell(row.journals),
            _ending(row),
        )
        for row in figures.session_rows
    ]
    head = (
        "Session", "Initiator", "Responder", "Start (UTC)",
        Number("Duration"), Number("Events"), Number("Size"), Number("Key updates"),
        Number("Rekeys"), Number("Journals"), "End",
    )  # fmt: skip
    suites = [
        (element("code", visible(row.name)), count_cell(row.sessions)) for row in figures.suites
    ]
    closings = [
        (closed_cell(int(row.name) if row.name else None), count_cell(row.sessions))
        for row in figures.closings
    ]
    caption = first_of("Sessions by size on the wire", len(rows), figures.sessions, figures.rows)
    return [
        table("Suites that sessions agreed on.", ("Suite", Number("Sessions")), suites),
        table("How sessions ended.", ("Code", Number("Sessions")), closings),
        table(caption, head, rows),
    ]


def session_pages(figures: Figures, nodes: Nodes, pages: Container[str]) -> list[Markup]:
    """A page for each of `talks`."""
    about: dict[str | None, list[FindingRow]] = {}
    for finding in figures.findings:
        about.setdefault(finding.session, []).append(finding)
    return [
        _page(talk, events, about.get(talk.session, []), nodes, pages)
        for talk, events in figures.talks.items()
    ]


def _page(
    talk: SessionSummary,
    events: list[EventRow],
    findings: list[FindingRow],
    nodes: Nodes,
    pages: Container[str],
) -> Markup:
    parts: list[Child] = [
        element(
            "p",
            element("a", "← Findings", href="#findings"),
            " · ",
            element("a", "All sessions", href="#sessions"),
        ),
        element("h2", "Session ", element("code", visible(talk.session))),
        element(
            "p",
            node_cell(talk.initiator, nodes),
            " dialled ",
            node_cell(talk.responder, nodes),
            _told(talk),
        ),
    ]
    if findings:
        what = f"{units.counted(len(findings), 'finding')} about this session."
        parts.append(findings_table(what, findings, nodes, pages))
    else:
        parts.append(element("p", "No findings about this session."))
    if events:
        parts.append(_events(talk, events, nodes))
    return element("section", *parts, id=page_id(talk.session), class_="page")


def _told(talk: SessionSummary) -> str:
    """What there was of it, in a sentence."""
    when = "" if talk.started is None else f" on {units.time(talk.started)} UTC"
    long = "" if talk.duration_us is None else f", for {units.duration(talk.duration_us)}"
    suite = "" if talk.suite is None else f", with {visible(talk.suite)}"
    return (
        f"{when}{long}{suite}: {units.counted(talk.events, 'event')}, "
        f"{units.size(talk.wire_bytes)} on the wire. "
        f"{units.counted(talk.journals, 'journal')} {'has' if talk.journals == 1 else 'have'} it. "
        f"It ended with: {_ending(talk)}."
    )


def _events(talk: SessionSummary, events: list[EventRow], nodes: Nodes) -> Markup:
    rows = [
        (
            count_cell(row.place),
            row.direction,
            node_cell(row.journal, nodes),
            time_cell(row.time, fine=True),
            count_cell(row.stream),
            element("code", visible(row.type or "encrypted")),
            name_cell(row.topic) if row.topic is not None else units.NOTHING,
            _code(row),
            size_cell(row.payload_size),
            row.status or "unsealed",
            element("code", f"at {units.count(row.offset)}", class_="soft nowrap"),
        )
        for row in events
    ]
    head = (
        Number("Place"), "Direction", "Journal", "Time (UTC)", Number("Stream"), "Event", "Topic",
        "Code", Number("Payload"), "Status", "In the segment",
    )  # fmt: skip
    most = "" if len(events) < EVENT_ROWS else f" At most {EVENT_ROWS}: the table “events” has all."
    caption = (
        f"Events around findings, then those at the beginning, as each journal has them.{most}"
    )
    return table(caption, head, rows)


def _code(row: EventRow) -> str:
    """The code of a Result or an end, with its name."""
    if row.code is None:
        return units.NOTHING
    return result_name(row.code) if row.type == _RESULT else closed_cell(row.code)


def _ending(row: SessionSummary) -> str:
    """How a session ended; by both ends if they do not say the same."""
    told = [closed_cell(code) for code in (row.initiator_code, row.responder_code)]
    if row.journals < 2:  # one end says nothing
        told = [name for name in told if name != closed_cell(None)] or told[:1]
    return told[0] if len(set(told)) == 1 else f"{told[0]}; responder: {told[1]}"
