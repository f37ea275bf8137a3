"""The sections of the report, each made from the figures.

The caption of a table or picture says what it counts, in which units, and what was left out. Of a
finding the report says what `pipeline.gold.meanings` says of its kind, and adds nothing.
"""

from typing import Final

from node.protocol.codes import ResultCode
from pipeline.gold.meanings import FAULT, KINDS, NOTICE, UNCHECKED, WEIGHTS
from pipeline.report import units
from pipeline.report.cells import (
    Nodes,
    closed_cell,
    first_of,
    name_cell,
    node_cell,
    picture,
    session_cell,
    visible,
    weight_cell,
)
from pipeline.report.figures import (
    FINDING_ROWS,
    TOP_NODES,
    TOP_ROWS,
    CallRow,
    Figures,
    FindingRow,
    SessionSummary,
)
from pipeline.report.html import Child, Markup, Number, element, table
from pipeline.report.plots import BARS, graph_plot, latency_plot, topics_plot, traffic_plot

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


_BUCKETS: Final = {60: "minute", 3_600: "hour", 86_400: "day", 604_800: "week"}
_NO_KEY: Final = (
    "Nothing to show: what events are about is encrypted, and these tables were made without "
    "an auditor's key, or there was nothing of this kind."
)


def traffic_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """How much went over the wire, over time."""
    if not figures.traffic:
        return [element("p", "No traffic.")]
    width = _BUCKETS.get(figures.bucket, units.duration(figures.bucket * 1_000_000))
    busiest = max(figures.traffic, key=lambda point: point.wire_bytes)
    alt = (
        f"Two stacked area charts over time, of events and of bytes per second for each sending "
        f"node. In all {units.count(figures.events)} events and {units.size(figures.wire_bytes)}. "
        f"The most that one node sent in a {width} was {units.size(busiest.wire_bytes)}, from "
        f"{units.time(busiest.time)} UTC."
    )
    caption = (
        f"Means over each {width}, by sender; each event once. Sizes are those on the wire, "
        "without the frames' lengths."
    )
    return [picture(traffic_plot(figures.traffic, figures.bucket, nodes), alt, caption)]


def calls_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """Latency and errors."""
    if not figures.by_topic:
        return [element("p", _NO_KEY)]
    parts = []
    seen = "callers'" if figures.by_topic[0].seen_by == "caller" else "callees'"
    answered = [row for row in figures.by_topic if row.p50_us is not None]
    if answered:
        slowest = max(answered, key=lambda row: row.p99_us or 0)
        alt = (
            f"For each of the {min(len(answered), BARS)} topics with the most calls, the 50th, "
            "95th and 99th percentile and the longest time to an answer. The highest 99th is "
            f"{units.duration(slowest.p99_us)}, of the topic {visible(slowest.topic or '')}."
        )
        caption = f"Time to the answer by topic, over all pairs of nodes, from the {seen} journals."
        parts.append(picture(latency_plot(figures.by_topic), alt, caption))
    columns = (
        Number("Calls"), Number("Unanswered"), Number("Errors"), Number("p50"), Number("p95"),
        Number("p99"), Number("Longest"), "Codes of errors",
    )  # fmt: skip
    rows = [
        (name_cell(row.topic), _namespace(row), row.kind, *_call(row)) for row in figures.by_topic
    ]
    caption = first_of(f"Calls by topic, from the {seen} journals", len(rows), None, TOP_ROWS)
    parts.append(table(caption, ("Topic", "Namespace", "Kind", *columns), rows))
    pairs = [
        (
            name_cell(row.topic),
            _namespace(row),
            node_cell(row.caller, nodes),
            node_cell(row.callee, nodes),
            *_call(row),
        )
        for row in figures.by_pair
    ]
    caption = first_of(
        f"Calls by topic and pair, from the {seen} journals", len(pairs), None, TOP_ROWS
    )
    parts.append(table(caption, ("Topic", "Namespace", "Caller", "Callee", *columns), pairs))
    return parts


def _namespace(row: CallRow) -> Child:
    return units.NOTHING if row.namespace is None else name_cell(row.namespace)


def topics_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """Who publishes how much to how many."""
    if not figures.topics:
        return [element("p", _NO_KEY)]
    most = figures.topic_notes[0]
    alt = (
        f"Bars of the notes of the {min(len(figures.topic_notes), BARS)} topics with the most; the "
        f"first is {visible(most.topic)} with {units.count(most.notes)}."
    )
    rows = [
        (
            name_cell(row.topic),
            node_cell(row.publisher, nodes),
            Number(units.count(row.subscribers)),
            Number(units.count(row.subscriptions)),
            Number(units.count(row.notes)),
            Number(units.size(row.payload_bytes)),
            Number(units.count(row.slow_resets)),
        )
        for row in figures.topics
    ]
    head = (
        "Topic", "Publisher", Number("Subscribers"), Number("Subscriptions"), Number("Notes"),
        Number("Size"), Number("Too slow"),
    )  # fmt: skip
    caption = first_of(
        "Topics by notes; a note that went to three subscribers counts three times. Size is that "
        "of the notes' payloads; too slow are subscriptions that were reset for it",
        len(rows),
        None,
        TOP_ROWS,
    )
    plot = picture(topics_plot(figures.topic_notes), alt, "Notes by topic, of all publishers.")
    return [plot, table(caption, head, rows)]


def sessions_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """The sessions, how they were encrypted and how they ended."""
    if not figures.session_rows:
        return [element("p", "No sessions.")]
    rows = [
        (
            session_cell(row.session),
            node_cell(row.initiator, nodes),
            node_cell(row.responder, nodes),
            element("span", units.time(row.started), class_="nowrap"),
            Number(units.duration(row.duration_us)),
            Number(units.count(row.events)),
            Number(units.size(row.wire_bytes)),
            Number(units.count(row.key_updates)),
            Number(units.count(row.rekeys)),
            Number(units.count(row.journals)),
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
        (element("code", visible(row.name)), Number(units.count(row.sessions)))
        for row in figures.suites
    ]
    closings = [
        (closed_cell(int(row.name) if row.name else None), Number(units.count(row.sessions)))
        for row in figures.closings
    ]
    caption = first_of("Sessions by size on the wire", len(rows), figures.sessions, TOP_ROWS)
    return [
        table("Suites that sessions agreed on.", ("Suite", Number("Sessions")), suites),
        table("How sessions ended.", ("Code", Number("Sessions")), closings),
        table(caption, head, rows),
    ]


def nodes_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """Who talks to whom."""
    if not figures.node_rows:
        return [element("p", "No nodes.")]
    parts = []
    if figures.edges:
        most = figures.edges[0]
        alt = (
            f"A circle of nodes with arrows from each to those that it sent events to. The widest "
            f"is from {nodes.short(most.sender)} to {nodes.short(most.receiver)} with "
            f"{units.count(most.events)} events. The table below has the numbers."
        )
        caption = (
            "Who sends to whom; wider arrows are more events. Filled circles keep a journal, "
            "empty ones do not, red squares have faults in theirs."
        )
        if figures.nodes > TOP_NODES:
            caption += f" The {TOP_NODES} busiest of {units.count(figures.nodes)} nodes."
        arrows = [(edge.sender, edge.receiver, edge.events) for edge in figures.edges]
        plot = graph_plot(arrows, figures.node_rows, nodes)
        parts.append(picture(plot, alt, caption))
    rows = [
        (
            element("span", nodes.short(row.node), class_="nowrap", id=f"node-{row.node}"),
            element("code", visible(row.node)),
            "yes" if row.journal else "no",
            Number(units.count(row.peers)),
            Number(units.count(row.sent_events)),
            Number(units.size(row.sent_bytes)),
            Number(units.count(row.received_events)),
            Number(units.size(row.received_bytes)),
            Number(units.count(row.faults)),
        )
        for row in figures.node_rows
    ]
    head = (
        "Node", "Node id", "Journal", Number("Peers"), Number("Sent events"), Number("Sent"),
        Number("Received events"), Number("Received"), Number("Faults"),
    )  # fmt: skip
    caption = first_of("Nodes by what they sent and received", len(rows), figures.nodes, TOP_ROWS)
    return [*parts, table(caption, head, rows)]


def reading_section() -> list[Markup]:
    """What the words mean."""
    weights = [(weight_cell(weight), meaning) for weight, meaning in WEIGHTS.items()]
    sentences = (
        "Verified is an event whose bytes are in its direction's hash chain, with a valid seal of "
        "its sender at or after it. A seal proves who sent what in which order; it proves neither "
        "time nor delivery.",
        "Times are those of each node's own clock, in UTC, and prove nothing. Durations are never "
        "between two clocks. Percentiles are exact for up to 10,000 calls in a row of a table, and "
        "within 0.01 percent of the rank beyond.",
        "Names of topics were chosen by nodes. What cannot be seen in them is shown as "
        "\\u{number}, and long ones are cut.",
    )
    return [
        *(element("p", sentence) for sentence in sentences),
        table("Weights of findings.", ("Weight", "Meaning"), weights),
    ]


def _ending(row: SessionSummary) -> str:
    """How a session ended; by both ends if they do not say the same."""
    told = [closed_cell(code) for code in (row.initiator_code, row.responder_code)]
    if row.journals < 2:  # one end says nothing
        told = [name for name in told if name != closed_cell(None)] or told[:1]
    return told[0] if len(set(told)) == 1 else f"{told[0]}; responder: {told[1]}"


def _call(row: CallRow) -> tuple[Child, ...]:
    codes = sorted((row.error_codes or {}).items(), key=lambda one: -one[1])
    named = ", ".join(f"{_result_name(code)}: {units.count(number)}" for code, number in codes[:6])
    more = ", …" if len(codes) > 6 else ""
    return (
        Number(units.count(row.calls)),
        Number(units.count(row.unanswered)),
        Number(units.count(row.errors)),
        *(
            Number(units.duration(time))
            for time in (row.p50_us, row.p95_us, row.p99_us, row.max_us)
        ),
        element("div", (named + more) or units.NOTHING, class_="codes"),
    )


def _result_name(code: int) -> str:
    try:
        return ResultCode(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)
