"""What the core tells its caller: one small class for each thing that happened.

A report is complete in itself; nobody has to ask the connection back to
understand it. (An *event* is the wire's unit; these are not events.)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parley._crypto.identity import PublicIdentity
from parley._lbm.codec import Value
from parley._node.protocol.codes import SENTENCES, code_name
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.resumption import ResumeRequest


@dataclass(frozen=True, slots=True)
class PeerIdentified:
    """The other side proved who it is. Answer with `accept_peer` or `refuse_peer`.

    Until then nothing is read; the handshake's deadline goes on.
    """

    identity: PublicIdentity
    role: str
    info: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class HandshakeCompleted:
    """The connection is open; from here on events may be sent and come."""

    agreed: Agreed


class EventReceived(NamedTuple):
    """An event for the application, categories 2/5 and 3 up; no payload is empty bytes.

    `cost` is what to give back with `consume` once it is used (0: nothing).
    """

    stream: int
    async_id: int
    category: int
    subcategory: int
    payload: bytes
    cost: int


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The other side opened a stream."""

    stream: int
    label: str


@dataclass(frozen=True, slots=True)
class StreamFinished:
    """The other side will send no more on this stream; all it sent came before."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The other side ended both directions of a stream at once."""

    stream: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class StreamWritable:
    """Nothing waits to be written on this stream any more; `notify_writable` asked."""

    stream: int


@dataclass(frozen=True, slots=True)
class WindowReceived:
    """Credit for the Chunks of the call `request` on `stream` (section 8), in bytes."""

    stream: int
    request: int
    credit: int


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The answer to `ping`; `round_trip` in seconds."""

    async_id: int
    round_trip: float


@dataclass(frozen=True, slots=True)
class KeysUpdated:
    """A direction (`sent` or received) goes on in `epoch`; `rekey` is its number, or 0."""

    sent: bool
    epoch: int
    rekey: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The session lost its transport, and waits for another; `reason` is for the local log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The session goes on over a new transport; `number` is that of its resumptions."""

    number: int


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """On a new transport the other side asks for a session that it has with us. Find it by the
    tag, and ask it to `accept_resume`; then `hand_over` this connection, or `refuse_resume`."""

    resume: ResumeRequest


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt to resume is over: "resumed", "rejected" with the other side's `code`, or
    "failed"; the report of an `ResumeAttempt`, and its last."""

    outcome: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection is over; the last report.

    `remote` says whether the other side's Close or Reject ended it. `reason` is for the
    local log only.
    """

    code: int
    text: str
    remote: bool
    reason: str

    def __str__(self) -> str:
        sentence = self.text or SENTENCES.get(self.code, "closed by the other side")
        return f"{sentence} ({code_name(self.code)})"


Report = (
    PeerIdentified
    | HandshakeCompleted
    | EventReceived
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
