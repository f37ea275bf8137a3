"""The report's sections on traffic, calls, topics and nodes, each made from the figures.

The caption of a table or picture says what it counts, in which units, and what was left out.
"""

from typing import Final

from pipeline.gold.meanings import WEIGHTS
from pipeline.report import units
from pipeline.report.cells import (
    Nodes,
    count_cell,
    duration_cell,
    first_of,
    name_cell,
    node_cell,
    picture,
    result_name,
    size_cell,
    visible,
    weight_cell,
)
from pipeline.report.figures import TOP_NODES, CallRow, Figures
from pipeline.report.html import Child, Markup, Number, element, table
from pipeline.report.plots import BARS, graph_plot, latency_plot, topics_plot, traffic_plot

_BUCKETS: Final = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day", 604_800: "week"}
_SECOND: Final = 1_000_000
_NO_KEY: Final = (
    "Nothing to show: what events are about is encrypted, and these tables were made without "
    "an auditor's key, or there was nothing of this kind."
)


def traffic_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """How much went over the wire, over time."""
    if not figures.traffic:
        return [element("p", "No traffic.")]
    whole = figures.bucket % _SECOND == 0 and _BUCKETS.get(figures.bucket // _SECOND)
    width = whole or units.duration(figures.bucket)
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
    caption = first_of(f"Calls by topic, from the {seen} journals", len(rows), None, figures.rows)
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
        f"Calls by topic and pair, from the {seen} journals", len(pairs), None, figures.rows
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
            count_cell(row.subscribers),
            count_cell(row.subscriptions),
            count_cell(row.notes),
            size_cell(row.payload_bytes),
            count_cell(row.slow_resets),
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
        figures.rows,
    )
    plot = picture(topics_plot(figures.topic_notes), alt, "Notes by topic, of all publishers.")
    return [plot, table(caption, head, rows)]


def nodes_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """Who talks to whom."""
    if not figures.node_rows:
        return [element("p", "No nodes.")]
    parts = []
    if figures.edges:
        most = figures.edges[0]
        alt = (
            f"A circle of nodes with arrows from each to those that it sent events to. The widest "
            f"is from {nodes.told(most.sender)} to {nodes.told(most.receiver)} with "
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
            element("span", nodes.told(row.node), class_="nowrap", id=f"node-{row.node}"),
            element("code", visible(row.node)),
            "yes" if row.journal else "no",
            count_cell(row.peers),
            count_cell(row.sent_events),
            size_cell(row.sent_bytes),
            count_cell(row.received_events),
            size_cell(row.received_bytes),
            count_cell(row.faults),
        )
        for row in figures.node_rows
    ]
    head = (
        "Node", "Node id", "Journal", Number("Peers"), Number("Sent events"), Number("Sent"),
        Number("Received events"), Number("Received"), Number("Faults"),
    )  # fmt: skip
    what = "Nodes by what they sent and received"
    caption = first_of(what, len(rows), figures.nodes, figures.rows)
    parts.append(table(caption, head, rows))
    pairs = [
        (
            node_cell(edge.sender, nodes),
            node_cell(edge.receiver, nodes),
            count_cell(edge.sessions),
            count_cell(edge.events),
            size_cell(edge.wire_bytes),
        )
        for edge in figures.talked
    ]
    columns = ("From", "To", Number("Sessions"), Number("Events"), Number("Size"))
    caption = first_of("Who sent how much to whom", len(pairs), figures.edge_count, figures.rows)
    return [*parts, table(caption, columns, pairs)]


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
        "Every table can be sorted by a column (press its head), filtered by words and turned page "
        "by page. All of it is in this file; nothing is loaded, and nothing leaves it.",
    )
    return [
        *(element("p", sentence) for sentence in sentences),
        table("Weights of findings.", ("Weight", "Meaning"), weights),
    ]


def _call(row: CallRow) -> tuple[Child, ...]:
    codes = sorted((row.error_codes or {}).items(), key=lambda one: -one[1])
    named = ", ".join(f"{result_name(code)}: {units.count(number)}" for code, number in codes[:6])
    more = ", …" if len(codes) > 6 else ""
    return (
        count_cell(row.calls),
        count_cell(row.unanswered),
        count_cell(row.errors),
        *(duration_cell(time) for time in (row.p50_us, row.p95_us, row.p99_us, row.max_us)),
        element("div", (named + more) or units.NOTHING, class_="codes"),
    )
