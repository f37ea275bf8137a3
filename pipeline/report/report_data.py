"""What the report shows: small, however large the gold tables are.

Each list has a bound, either of rows by rank or of points by coarser buckets of time. Times (since
the epoch) and durations are microseconds, sizes are bytes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

ROWS: Final = 2_000  # of a table, by default
SESSIONS: Final = 200  # that have a page of their own
EVENT_ROWS: Final = 80  # of a session
BEGINNING: Final = 15  # places of a session's beginning
NEAR: Final = 5  # places before and behind that of a finding
TOP_NODES: Final = 24  # of the picture of the graph
TOP_SENDERS: Final = 5  # that have a colour of their own
TIME_BUCKETS: Final = 160


class FindingKind(NamedTuple):
    """How often one kind was found."""

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
    """An event as one journal has it."""

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
    """What one node (None: all others) sent in a bucket of time that begins at `time`."""

    time: int
    sender: str | None
    events: int
    wire_bytes: int


class CallRow(NamedTuple):
    """Calls of one topic, or of one pair of nodes with it."""

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
    """A topic of all its publishers."""

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
    """How many sessions have one value."""

    name: str
    sessions: int


class Edge(NamedTuple):
    """What one node sent to another."""

    sender: str
    receiver: str
    sessions: int
    events: int
    wire_bytes: int


class NodeRow(NamedTuple):
    """A node: what it sent and got, and how many faults its journal has."""

    node: str
    journal: bool
    peers: int
    sent_events: int
    sent_bytes: int
    received_events: int
    received_bytes: int
    faults: int


class TunnelLink(NamedTuple):
    """What went between two neighbours in tunnels that were dialled in this direction."""

    before: str
    after: str
    tunnels: int
    forward: int
    back: int


class TunnelSummary(NamedTuple):
    """A tunnel. Where no journal says which node it was, its path has None."""

    trace: str
    path: list[str | None]
    hops: int
    tunnels: int
    began: int | None
    duration_us: int | None
    forward: int
    back: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All that stands in a report. `rows` is how many a table has at the most, `bucket` the width
    of a point of traffic. `edges` are those between the busiest nodes, `talked` those of the table,
    `servers` the nodes of `links`; `talks` are the sessions that have a page of their own, with
    some of their events."""

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
