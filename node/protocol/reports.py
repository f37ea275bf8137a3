"""The reports of the protocol core, one class for each kind.

A report contains all the information about its event.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parley._crypto.identity import PublicIdentity
from parley._lbm.codec import Value
from parley._node.protocol.codes import SENTENCES, code_name
from parley._node.protocol.event import Event
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.resumption import ResumeRequest


@dataclass(frozen=True, slots=True)
class PeerIdentified:
    """The peer proved its identity. Call `accept_peer` or `refuse_peer`; until then the connection
    doesn't process further bytes, and the deadline of the handshake still applies.

    `statements` are the key statements that the peer presented, unchecked (section 22).
    """

    identity: PublicIdentity
    role: str
    info: Mapping[str, Value]
    statements: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class HandshakeCompleted:
    """The connection is open."""

    agreed: Agreed


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opened a stream."""

    stream: int
    label: str


@dataclass(frozen=True, slots=True)
class StreamFinished:
    """The peer has finished sending on this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The peer ended both directions of a stream."""

    stream: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class StreamWritable:
    """The queue of this stream is empty (`notify_writable`)."""

    stream: int


@dataclass(frozen=True, slots=True)
class WindowReceived:
    """Credit for the Chunks of the call `request` on `stream` (section 8), in bytes."""

    stream: int
    request: int
    credit: int


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The answer to `ping`; `round_trip` is in seconds."""

    async_id: int
    round_trip: float


@dataclass(frozen=True, slots=True)
class KeysUpdated:
    """A direction (`sent` or received) continues in `epoch`; `rekey` is the number of its rekey, or
    0.
    """

    sent: bool
    epoch: int
    rekey: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The session lost its transport and waits for another one; `reason` is for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The `number`-th resumption of the session, over a new transport."""

    number: int


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """The peer asks to resume a session over a new transport.

    Find the session by its tag and call its `accept_resume`. Then call `hand_over` or
    `refuse_resume` of this connection.
    """

    resume: ResumeRequest


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The last report of a `ResumeAttempt`: "resumed", "rejected" with the peer's `code`, or
    "failed".
    """

    outcome: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The last report: the connection has ended.

    `remote` means that the peer's Close or Reject ended it. `reason` is for the log.
    """

    code: int
    text: str
    remote: bool
    reason: str

    def __str__(self) -> str:
        sentence = self.text or SENTENCES.get(self.code, "closed by the peer")
        return f"{sentence} ({code_name(self.code)})"


Report = (
    PeerIdentified
    | HandshakeCompleted
    | Event
    | StreamOpened
    | StreamFinished
    | StreamReset
    | StreamWritable
    | WindowReceived
    | PongReceived
    | KeysUpdated
    | Suspended
    | Resumed
    | ResumeRequested
    | AttemptEnded
    | ConnectionEnded
)
