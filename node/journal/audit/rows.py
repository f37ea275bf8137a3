"""The rows that an audit returns: events, sessions, tunnels, statements, findings and spans.

A row is a tuple in the order of its columns, because there are millions of rows. docs/pipeline.md
has their meanings and units. Times are in ns since the epoch.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# Status of an event.
OK: Final = "ok"
BAD_CHAIN: Final = "bad-chain"
BAD_SEAL: Final = "bad-seal"
UNSEALED: Final = "unsealed"
UNDECRYPTABLE: Final = "undecryptable"
MALFORMED: Final = "malformed"
GAP: Final = "gap"
DUPLICATE: Final = "duplicate"

DIRECTIONS: Final = ("received", "sent")

# The columns that many rows of events have in common.
HEAD_COLUMNS: Final = ("journal", "segment", "session", "direction", "sender", "receiver")
EVENT_COLUMNS: Final = (
    *HEAD_COLUMNS,
    "offset",
    "place",
    "time_ns",
    "stream",
    "wire_size",
    "blob_size",
    "digest",
    "async_id",
    "category",
    "subcategory",
    "type",
    "topic",
    "namespace",
    "label",
    "code",
    "opens",
    "request",
    "payload_size",
    "payload",
    "inside",
    "item",
    "items",
    "status",
    "seal_delay_us",
)
STATUS_AT: Final = EVENT_COLUMNS.index("status")

EventRow = tuple[Any, ...]


class SessionRow(NamedTuple):
    """A change of a session. `what` is start, live, key-update, parted, resumed or end.

    `suite` is the five names separated by spaces. The places are the last ones of each direction.
    """

    journal: str
    segment: str
    session: str
    offset: int
    time_ns: int
    what: str
    initiator: bool
    local_node: str
    remote_node: str
    local_role: str
    remote_role: str
    address: str
    suite: str
    started_ns: int
    direction: str | None = None
    epoch: int | None = None
    generation: int | None = None
    code: int | None = None
    text: str | None = None
    remote: bool | None = None
    received_place: int | None = None
    sent_place: int | None = None
    resumption: int | None = None


class TunnelRow(NamedTuple):
    """A tunnel that the journal's node joined, and its neighbours in the path.

    `trace` is hexadecimal, `before` and `after` are node IDs, `forward` and `back` are bytes.
    """

    journal: str
    segment: str
    offset: int
    time_ns: int
    trace: str
    hop: int
    length: int
    before: str
    after: str
    began_ns: int
    ended_ns: int
    forward: int
    back: int


class StatementRow(NamedTuple):
    """A key statement that a side of a session presented in its Proof (section 22).

    `direction` is `received` if the peer presented it to the journal's node. `time_ns` is when the
    session began, `number` the statement's index in the Proof. `status` is `ok` or the reason why
    the statement is invalid; the columns after it are then unproven claims, or None. Without
    `by_recovery` the primary key of `origin` signed. `made_ms` is the signer's claim.
    """

    journal: str
    segment: str
    session: str
    offset: int
    time_ns: int
    direction: str
    presenter: str
    number: int
    status: str
    kind: str | None
    origin: str | None
    successor: str | None
    by_recovery: bool | None
    made_ms: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: its position, how many events it affects, and the evidence."""

    kind: str
    journal: str
    segment: str
    session: str | None
    direction: str | None
    place: int | None
    time_ns: int | None
    offset: int
    count: int
    evidence: str


class Span(NamedTuple):
    """A direction over records that were read in one pass: its state at the start and end.

    Consecutive spans fit if the first ends with the chain value and place with which the second
    begins. The first valid seal of the second then covers the `pending` events of the first.

    `unplaced` counts events at its end to which the chain did not lead. `start_state` and
    `end_state` are digests (32 bytes) of the other fields of a checkpoint, and must match as well.
    `ended`: the session ended in the span. `lost`: damaged records follow, which may include the
    session's.
    """

    journal: str
    segment: str
    offset: int
    session: str
    direction: str
    start_chain: bytes
    start_place: int
    end_segment: str
    end_offset: int
    end_chain: bytes
    end_place: int
    pending: int
    unplaced: int
    sealed_ns: int | None
    start_state: bytes
    end_state: bytes
    started: bool
    ended: bool
    lost: bool
