"""Figures of a report made by hand, with names as a hostile peer would choose them."""

from parley._pipeline.report.report_data import (
    CallRow,
    Edge,
    EndedSummary,
    EventRow,
    Figures,
    FindingKind,
    FindingRow,
    NodeRow,
    SessionGroup,
    SessionSummary,
    StatementSummary,
    TopicNotes,
    TopicRow,
    TrafficPoint,
    TunnelLink,
    TunnelSummary,
)

START = 1_767_355_200_000_000
ONE, OTHER, SILENT = "a" * 52, "b" * 52, "c" * 52
SEGMENT = f"{ONE}-20260102T120000000000Z-00000000"

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "javascript:alert(1)//]]>",
    "$\\frac{1}{0}$ $unclosed",
    "a\u202egnp.exe\u0000\u2028",
    "\ud800 alone",
    "שלום 価格 \U0001f600",
    "x" * 10_000,
    "",
)


def hostile_figures() -> Figures:
    """Every kind of row, with a hostile name wherever a peer's text can appear."""
    calls = [
        CallRow(
            "topic",
            "call",
            name,
            name,
            None,
            None,
            "caller",
            9,
            1,
            2,
            10,
            400,
            5_000,
            10**7,
            {16: 2},
        )
        for name in HOSTILE
    ]
    session = ("5e" * 32, ONE, OTHER)
    talk = SessionSummary(*session, "x ed25519", 2, START, 10**8, 3, 1, 900, 10**6, 0, -1)
    strange = SessionSummary(
        HOSTILE[0], None, None, HOSTILE[0], 1, None, None, 0, 0, 0, 0, None, 12
    )
    return Figures(
        rows=len(HOSTILE),
        refreshed=START,
        first=START,
        last=START + 10**9,
        nodes=3,
        journals=2,
        sessions=2,
        both_ends=1,
        events=1_000,
        wire_bytes=10**6,
        journaled=2_000,
        verified=1_999,
        has_key=True,
        notes=10**6,
        calls=90,
        pairs=1,
        topic_count=len(HOSTILE),
        finding_kinds=[
            FindingKind("fault", "gap", 1, 3, 1),
            FindingKind("fault", HOSTILE[0], 1, 1, 1),
            FindingKind("unchecked", "missing-journal", 1, 1, 1),
            FindingKind("notice", "in-flight", 1, 2, 1),
        ],
        findings=[
            FindingRow(
                "fault", "gap", ONE, session[0], "sent", 7, START, SEGMENT, 99, 3, HOSTILE[1]
            ),
            FindingRow(
                HOSTILE[2],
                HOSTILE[0],
                None,
                None,
                None,
                None,
                None,
                HOSTILE[3],
                None,
                1,
                HOSTILE[8],
            ),
        ],
        bucket=60_000_000,
        traffic=[
            TrafficPoint(START + minute * 60_000_000, sender, 5 * minute, 10**5 * minute)
            for minute in (0, 1, 2, 5)
            for sender in (ONE, OTHER, None)
        ],
        by_topic=calls,
        by_pair=[call._replace(scope="pair", caller=ONE, callee=OTHER) for call in calls],
        topics=[TopicRow(name, ONE, 2, 1, 1_000, 10**6, 1) for name in HOSTILE],
        topic_notes=[TopicNotes(name, 1, 1_000) for name in HOSTILE],
        session_rows=[talk, strange],
        talks={
            talk: [
                EventRow(
                    session[0], ONE, "sent", at, START, 3, "call", name, None, 9, "ok", SEGMENT, 99
                )
                for at, name in enumerate(HOSTILE)
            ],
            strange: [
                EventRow(
                    HOSTILE[0], None, "sent", 1, None, None, None, None, 16, None, None, None, 1
                )
            ],
        },
        suites=[SessionGroup(HOSTILE[0], 2)],
        closings=[SessionGroup("0", 1), SessionGroup("", 1)],
        edges=[
            Edge(ONE, OTHER, 2, 900, 10**6),
            Edge(OTHER, ONE, 2, 100, 10**5),
            Edge(ONE, SILENT, 1, 1, 100),
        ],
        talked=[Edge(ONE, OTHER, 2, 900, 10**6)],
        edge_count=3,
        node_rows=[
            NodeRow(ONE, True, 2, 901, 10**6, 100, 10**5, 1),
            NodeRow(OTHER, True, 1, 100, 10**5, 900, 10**6, 0),
            NodeRow(SILENT, False, 1, 0, 0, 1, 100, 0),
        ],
        tunnels=9,
        links=[TunnelLink(SILENT, ONE, 8, 10**6, 10**5), TunnelLink(ONE, OTHER, 7, 10**5, 0)],
        servers=[NodeRow(ONE, True, 2, 901, 10**6, 100, 10**5, 1)],
        tunnel_rows=[
            TunnelSummary("7a" * 16, [None, SILENT, ONE, OTHER], 1, 2, START, 10**7, 10**6, 9),
            TunnelSummary(HOSTILE[0], [None, HOSTILE[1]], 1, 1, None, None, 2**63 - 1, 0),
        ],
        statements=2,
        statement_rows=[
            StatementSummary(
                ONE,
                START,
                session[0],
                "received",
                OTHER,
                "ok",
                "succession",
                SILENT,
                OTHER,
                True,
                1_700_000_000_000,
            ),
            StatementSummary(
                ONE,
                None,
                HOSTILE[0],
                "sent",
                HOSTILE[1],
                "malformed",
                None,
                None,
                None,
                None,
                2**48 - 1,
            ),
        ],
        ended=1,
        ended_rows=[
            EndedSummary(
                SILENT,
                ONE,
                START,
                session[0],
                OTHER,
                OTHER,
                True,
                1,
                9,
                [session[0]],
                [HOSTILE[0]] * 8,
            ),
        ],
    )


def no_figures() -> Figures:
    """An empty report."""
    return Figures(
        9, None, None, None, 0, 0, 0, 0, 0, 0, 0, 0, False, 0, 0, 0, 0,
        [], [], 60_000_000, [], [], [], [], [], [], {}, [], [], [], [], 0, [], 0, [], [], [],
        0, [], 0, [],
    )  # fmt: skip
