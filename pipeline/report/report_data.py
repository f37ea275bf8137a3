"""The data of a report, bounded in size however large the gold tables are.

Each list is limited to a number of rows, or to a number of points by using wider time buckets.
Times (since the epoch) and durations are in microseconds, sizes in bytes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

ROWS: Final = 2_000  # default maximum for a table
SESSIONS: Final = 200  # maximum number of sessions with their own section
EVENT_ROWS: Final = 80  # maximum number of events listed for a session
BEGINNING: Final = 15  # number of places at a session's beginning
NEAR: Final = 5  # number of places before and after a finding's place
TOP_NODES: Final = 24  # maximum number of nodes in the graph
TOP_SENDERS: Final = 5  # maximum number of senders with their own colour
TIME_BUCKETS: Final = 160
LISTED: Final = 8  # maximum number of an ended ID's sessions listed in its row, of each kind


class FindingKind(NamedTuple):
    """The number of findings of one kind."""

    weight: str
    kind: str
    findings: int
    events: int
    journals: int


class FindingRow(NamedTuple):
    """One finding."""

    weight: str
    kind: str
    journal: str | None
    session: str | None
    direction: str | None
    place: int | None
    time: int | None
    segment: str | None
    offset: int | None
    events: int
    evidence: str | None


class EventRow(NamedTuple):
    """An event as recorded in one journal."""

    session: str
    journal: str | None
    direction: str
    place: int
    time: int | None
    stream: int | None
    type: str | None
    topic: str | None
    code: int | None
    payload_size: int | None
    status: str | None
    segment: str | None
    offset: int | None


class TrafficPoint(NamedTuple):
    """The traffic that one node (None: all other nodes) sent in the bucket that begins at
    `time`.
    """

    time: int
    sender: str | None
    events: int
    wire_bytes: int


class CallRow(NamedTuple):
    """The calls of one topic, optionally between one pair of nodes."""

    scope: str
    kind: str
    topic: str | None
    namespace: str | None
    caller: str | None
    callee: str | None
    seen_by: str
    calls: int
    unanswered: int
    errors: int
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    max_us: int | None
    error_codes: dict[int, int] | None


class TopicRow(NamedTuple):
    """A topic of one publisher."""

    topic: str
    publisher: str
    subscriptions: int
    subscribers: int
    notes: int
    payload_bytes: int
    slow_resets: int


class TopicNotes(NamedTuple):
    """The notes of a topic from all its publishers."""

    topic: str
    publishers: int
    notes: int


class SessionSummary(NamedTuple):
    """A session."""

    session: str
    initiator: str | None
    responder: str | None
    suite: str | None
    journals: int
    started: int | None
    duration_us: int | None
    key_updates: int
    rekeys: int
    events: int
    wire_bytes: int
    initiator_code: int | None
    responder_code: int | None


class SessionGroup(NamedTuple):
    """The number of sessions with one value."""

    name: str
    sessions: int


class Edge(NamedTuple):
    """The traffic from one node to another."""

    sender: str
    receiver: str
    sessions: int
    events: int
    wire_bytes: int


class NodeRow(NamedTuple):
    """The traffic of a node and the number of faults in its journal."""

    node: str
    journal: bool
    peers: int
    sent_events: int
    sent_bytes: int
    received_events: int
    received_bytes: int
    faults: int


class TunnelLink(NamedTuple):
    """The traffic between two neighbours in tunnels that were dialled in this direction."""

    before: str
    after: str
    tunnels: int
    forward: int
    back: int


class TunnelSummary(NamedTuple):
    """A tunnel; its path has None where no journal names the node."""

    trace: str
    path: list[str | None]
    hops: int
    tunnels: int
    began: int | None
    duration_us: int | None
    forward: int
    back: int


class StatementSummary(NamedTuple):
    """A presented key statement. `status` is `ok` or the reason why it is invalid."""

    journal: str
    time: int | None
    session: str
    direction: str
    presenter: str
    status: str
    kind: str | None
    origin: str | None
    successor: str | None
    by_recovery: bool | None
    made_ms: int | None


class EndedSummary(NamedTuple):
    """An ended ID in one journal, and the first valid statement that its node received about it.

    `before` and `after` are the first `LISTED` of its sessions that began before and after that.
    """

    origin: str
    journal: str
    time: int | None
    session: str
    presenter: str
    successor: str | None
    by_recovery: bool
    sessions_before: int
    sessions_after: int
    before: list[str]
    after: list[str]


@dataclass(frozen=True, slots=True)
class Figures:
    """All data in a report.

    `rows` is the maximum number of rows in a table and `bucket` the width of a traffic bucket.
    `edges` connect the busiest nodes; `talked` are the rows of the edge table. `servers` are the
    nodes of `links`. `talks` are the sessions with their own section, with some of their events.
    """

    rows: int
    refreshed: int | None
    first: int | None
    last: int | None
    nodes: int
    journals: int
    sessions: int
    both_ends: int
    events: int
    wire_bytes: int
    journaled: int
    verified: int
    has_key: bool
    notes: int
    calls: int
    pairs: int
    topic_count: int
    finding_kinds: list[FindingKind]
    findings: list[FindingRow]
    bucket: int
    traffic: list[TrafficPoint]
    by_topic: list[CallRow]
    by_pair: list[CallRow]
    topics: list[TopicRow]
    topic_notes: list[TopicNotes]
    session_rows: list[SessionSummary]
    talks: dict[SessionSummary, list[EventRow]]
    suites: list[SessionGroup]
    closings: list[SessionGroup]
    edges: list[Edge]
    talked: list[Edge]
    edge_count: int
    node_rows: list[NodeRow]
    tunnels: int
    links: list[TunnelLink]
    servers: list[NodeRow]
    tunnel_rows: list[TunnelSummary]
    statements: int
    statement_rows: list[StatementSummary]
    ended: int
    ended_rows: list[EndedSummary]
