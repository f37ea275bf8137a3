"""Figures from gold tables."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from parley._pipeline.gold.arrow import TIME
from parley._pipeline.gold.build import SCHEMAS
from parley._pipeline.report import queries
from parley._pipeline.report.page import render
from parley._pipeline.report.queries import collect
from parley._pipeline.report.report_data import (
    CallRow,
    Edge,
    EndedSummary,
    FindingKind,
    NodeRow,
    SessionGroup,
    TopicNotes,
    TrafficPoint,
    TunnelLink,
    TunnelSummary,
)
from tests.pipeline.silver_frames import START

LATER = START + timedelta(days=1)
MICROS = int(START.timestamp()) * 1_000_000
DAY = 86_400_000_000


def tables() -> dict[str, pa.Table]:
    """Three nodes in two sessions, of which c keeps no journal."""
    minute = {"minute": START, "payload_bytes": 9, "refreshed": LATER}
    call = {"kind": "call", "topic": "<script>", "calls": 2, "unanswered": 0, "errors": 1}
    call |= {"p50_us": 5, "p95_us": 7, "p99_us": 7, "max_us": 7, "error_codes": {16: 1}}
    pair = {"scope": "pair", "caller": "a", "callee": "b"}
    topic = {"topic": "news", "subscriptions": 1, "subscribers": 1, "payload_bytes": 1}
    session = {"initiator": "a", "journals": 1, "events": 9, "wire_bytes": 900}
    session |= {"key_updates": 0, "rekeys": 0}
    statement = {"journal": "a", "time": START, "session": "1", "direction": "received"}
    statement |= {"presenter": "b", "number": 0, "status": "ok", "origin": "d"}
    statement |= {"by_recovery": True, "made_ms": 5}
    tunnel = {"hops": 1, "tunnels": 1, "began": START, "duration_us": 9}
    when = {"first": START, "last": LATER}
    rows: dict[str, list[dict[str, Any]]] = {
        "traffic": [
            minute | {"node": node, "peer": peer, "direction": direction, "events": events}
            | {"ok": events - 1, "wire_bytes": 100 * events}
            for node, peer, direction, events in (
                ("a", "b", "sent", 6),
                ("b", "a", "received", 5),
                ("a", "c", "received", 2),
            )
        ]
        + [minute | {"minute": LATER, "node": "b", "peer": "a", "direction": "sent"}
           | {"events": 1, "ok": 1, "wire_bytes": 100}],
        "calls": [
            call | {"scope": "topic", "seen_by": "caller"},
            call | {"scope": "topic", "seen_by": "callee"},
            call | pair | {"seen_by": "caller"},
            call | pair | {"seen_by": "callee"},
        ],
        "topics": [topic | {"publisher": one, "notes": 4, "slow_resets": 0} for one in "ab"],
        "sessions": [
            session | {"session": "1", "responder": "b", "journals": 2, "initiator_code": 0},
            session | {"session": "2", "responder": "c", "started": START},
        ],
        "findings": [
            {"weight": "notice", "kind": "torn", "journal": "a", "count": 0, "time": START},
            {"weight": "fault", "kind": "gap", "journal": "a", "count": 2, "time": LATER},
        ],
        "tunnels": [
            tunnel | {"trace": "1", "path": ["c", "a", None], "forward": 2**63 - 1, "back": 5},
            tunnel | {"trace": "2", "path": ["c", "a", "b", "d"], "forward": 7, "back": 6},
        ],
        "statements": [
            statement | {"before": [], "after": [str(number) for number in range(9)]},
            statement | {"number": 1, "origin": "e", "before": ["7"], "after": []},
            statement | {"number": 2, "status": "signature"},
        ],
        "graph": [
            when | {"sender": "a", "receiver": "b", "sessions": 1, "events": 6, "wire_bytes": 600},
            when | {"sender": "b", "receiver": "a", "sessions": 1, "events": 1, "wire_bytes": 100},
            when | {"sender": "c", "receiver": "a", "sessions": 1, "events": 2, "wire_bytes": 200},
        ],
    }  # fmt: skip
    return {
        name: pa.Table.from_pylist(rows[name], schema.append(pa.field("refreshed", TIME)))
        for name, schema in SCHEMAS.items()
    }


def test_figures_of_small_tables() -> None:
    figures = collect(tables())
    assert (figures.refreshed, figures.first, figures.last) == (MICROS + DAY, MICROS, MICROS + DAY)
    assert (figures.nodes, figures.journals) == (3, 2)
    assert (figures.sessions, figures.both_ends) == (2, 1)
    assert (figures.events, figures.wire_bytes) == (9, 900)
    assert (figures.journaled, figures.verified, figures.has_key) == (14, 11, True)
    assert (figures.calls, figures.pairs, figures.notes, figures.topic_count) == (2, 1, 8, 1)
    assert figures.finding_kinds == [
        FindingKind("fault", "gap", 1, 2, 1),
        FindingKind("notice", "torn", 1, 0, 1),
    ]
    assert [finding.kind for finding in figures.findings] == ["gap", "torn"]
    # A day in quarters of an hour; what c sent is known from a.
    assert figures.bucket == 900_000_000
    assert figures.traffic == [
        TrafficPoint(MICROS, "a", 6, 600),
        TrafficPoint(MICROS, "c", 2, 200),
        TrafficPoint(MICROS + DAY, "b", 1, 100),
    ]
    by_topic = CallRow(
        "topic", "call", "<script>", None, None, None, "caller", 2, 0, 1, 5, 7, 7, 7, {16: 1}
    )
    assert figures.by_topic == [by_topic]
    assert figures.by_pair == [by_topic._replace(scope="pair", caller="a", callee="b")]
    assert figures.topic_notes == [TopicNotes("news", 2, 8)]
    assert [session.started for session in figures.session_rows] == [None, MICROS]
    assert figures.closings == [SessionGroup("", 1), SessionGroup("0", 1)]
    assert figures.edges[0] == Edge("a", "b", 1, 6, 600)
    assert figures.node_rows == [
        NodeRow("a", True, 2, 6, 600, 3, 300, 1),
        NodeRow("b", True, 1, 1, 100, 6, 600, 0),
        NodeRow("c", False, 1, 2, 200, 0, 0, 0),
    ]
    assert figures.tunnels == 2
    assert figures.links == [
        TunnelLink("c", "a", 2, 2**63 - 1, 11),
        TunnelLink("a", "b", 1, 7, 6),
        TunnelLink("b", "d", 1, 7, 6),
    ]
    assert figures.servers == figures.node_rows  # No other data about `d` exists.
    assert figures.tunnel_rows == [
        TunnelSummary("1", ["c", "a", None], 1, 1, MICROS, 9, 2**63 - 1, 5),
        TunnelSummary("2", ["c", "a", "b", "d"], 1, 1, MICROS, 9, 7, 6),
    ]
    assert figures.statements == 3
    assert [(row.origin, row.status) for row in figures.statement_rows] == [
        ("d", "ok"),
        ("e", "ok"),
        ("d", "signature"),
    ]
    ended = ("a", MICROS, "1", "b", None, True)
    assert figures.ended_rows == [
        EndedSummary("d", *ended, 0, 9, [], [str(number) for number in range(8)]),
        EndedSummary("e", *ended, 1, 0, ["7"], []),
    ]
    assert "&lt;script&gt;" in render(figures)


def test_every_list_has_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"ROWS": 1, "TOP_NODES": 2, "TOP_SENDERS": 1, "TIME_BUCKETS": 1, "SESSIONS": 1}
    for name, bound in bounds.items():
        monkeypatch.setattr(queries, name, bound)
    figures = queries.collect(tables(), most=1)
    cut = ["finding_kinds", "findings", "by_topic", "by_pair", "topics", "topic_notes"]
    cut += ["session_rows", "suites", "closings", "node_rows", "tunnel_rows", "links"]
    cut += ["talks", "talked", "statement_rows", "ended_rows"]
    assert {name: len(getattr(figures, name)) for name in cut} == dict.fromkeys(cut, 1)
    # Truncated rows are still counted.
    assert (figures.sessions, figures.nodes, figures.events) == (2, 3, 9)
    assert (figures.tunnels, figures.statements, figures.ended) == (2, 3, 2)
    assert figures.edges == [Edge("a", "b", 1, 6, 600), Edge("b", "a", 1, 1, 100)]
    week = 604_800_000_000
    start = MICROS // week * week
    assert figures.bucket == week
    assert figures.traffic == [TrafficPoint(start, None, 3, 300), TrafficPoint(start, "a", 6, 600)]
