"""The fixed limits of docs/protocol.md, and the negotiated ones (`Limits`).

Sizes are bytes, times are seconds unless the name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._lbm.fields import read_uint
from parley._node.protocol.config_types import setting
from parley._node.protocol.rate_limit import Rate

# Frames (section 2).
FRAME_HEADER_SIZE: Final = 4
HANDSHAKE_EVENT_SIZE: Final = 16_384
RAW_OVERHEAD: Final = 8  # stream, async id, type
ENCRYPTED_OVERHEAD: Final = 24  # stream, async id, type, AEAD tag
CHAIN_OVERHEAD: Final = 17  # form, first 16 bytes of the chain value
RAW_EVENT_MINIMUM: Final = 9
CONNECTION_STREAM_PAYLOAD: Final = 4_096
NODE_INFO_SIZE: Final = 1_024
# Statements that a Proof presents, and their bytes (section 22).
PRESENTED_STATEMENTS: Final = 4
PRESENTED_BYTES: Final = 8_192
# Local limit of the text of Reset and Close in UTF-8, so that the payload stays within the above.
TEXT_SIZE: Final = 1_024

# Handshake (section 5).
HANDSHAKE_TIMEOUT: Final = 10.0
HALF_OPEN_CONNECTIONS: Final = 256

# Sealing (section 6).
SEAL_GRACE: Final = 10.0

# Key updates and rekeys (section 6).
UPDATE_AFTER_EVENTS: Final = 2**24
UPDATE_AFTER_BYTES: Final = 4 * 2**30
UPDATE_AFTER_SECONDS: Final = 3_600.0
REKEY_INTERVAL: Final = 900.0
REKEY_TIMEOUT: Final = 30.0  # for an answer to an offer, and again for the last KeyUpdate
REKEY_RATE_SECONDS: Final = 10.0
# Plain KeyUpdates that the peer may send. The local limit is half of it, so that network delay
# can't make too many of them arrive together.
KEY_UPDATES: Final = Rate(64, 1.0)
OWN_KEY_UPDATES: Final = Rate(32, 2.0)
# For one direction, because an auditor must compute each step to follow the keys.
UPDATES_BETWEEN_REKEYS: Final = 2**14

# Limit of redundant events (sections 6, 8 and 9): Seals that cover no new event, Pongs without a
# Ping, and more Windows and Resets than our events can cause.
IDLE_EVENTS: Final = Rate(64, 1.0)
# Each of our events can cause one Window, and one more for each 512 bytes of its cost. A receiver
# grants less at a time only when it has read everything.
READ_ON: Final = 512
# Limits of events that cost both sides the same: Pings, and events that no handler consumes.
PINGS: Final = Rate(16_384, 1 / 1_024)
OWN_PINGS: Final = Rate(8_192, 1 / 512)
DROPPED_EVENTS: Final = Rate(16_384, 1 / 1_024)

# Streams (section 8).
EVENT_COST: Final = 64
LARGEST_CREDIT: Final = 2**31 - 1
# Limits of one Batch.
BATCH_COUNT: Final = 256
BATCH_SIZE: Final = 32 * 1024
# Memory that the peer can use, and the fraction of it available to all windows of its streams.
PEER_MEMORY: Final = 32 * 2**20
WINDOWS_PART: Final = 2
# Results of handlers that wait to be written: the fraction of that memory, and the longest wait in
# seconds.
UNWRITTEN_PART: Final = 4
ANSWER_PATIENCE: Final = 10.0

# Notes in one Notes event (section 9).
NOTES_COUNT: Final = 4_096

# Stream 1 (section 8) and keep-alive (section 9).
UNANSWERED_REQUESTS: Final = 1_024
IDLE_BEFORE_PING: Final = 15.0
PING_TIMEOUT: Final = 10.0
WAITING_PONGS: Final = 64

# Calls with an idempotency key (section 18): size of the key, longest Result that is stored, how
# long it is stored, and how long after the first attempt a call may be retried.
ONCE_KEY_SIZE: Final = 16
ONCE_RESULT: Final = 64 * 1024
ONCE_KEPT: Final = 600.0
ONCE_AGAIN: Final = 300.0

# Resume (section 17).
RESUME_MS: Final = 600_000
RESUME_BUFFER: Final = 4 * 2**20
LEAST_RESUME_BUFFER: Final = 2**20
RESUME_EXEMPT: Final = 2 * 2**20  # bytes of Opens beyond a full buffer; see also `control_buffer`
TELL_BYTES: Final = 256 * 1024
TELL_INTERVAL: Final = 1.0
TELL_ALONE: Final = 10.0
RESUME_TIMEOUT: Final = 5.0  # for one attempt
RESPONDER_PATIENCE: Final = 30.0  # how much longer the responder stores a suspended session
CLOSED_PATIENCE: Final = 5.0
# Local: after so long without a byte, an overdue seal or rekey may still be on its way.
SILENCE: Final = 5.0

# Closing (section 11).
CLOSE_LINGER: Final = 2.0
# Local: how long a graceful close waits for queued data without credit.
CLOSE_DRAIN: Final = 5.0
# Local: bytes of Pongs, Windows and Resets that may wait while the peer does not read;
# `control_buffer` adds as much for each stream.
CONTROL_BUFFER: Final = 1 << 20
# Bytes of such an event on the wire without its seal, and how many of them a stream can cause
# before its sender reads one: three Windows that use up its credit, and a Reset.
CONTROL_EVENT: Final = 128
CONTROL_EVENTS: Final = 4


@dataclass(frozen=True, slots=True)
class LimitRange:
    """A negotiated limit's key, range and default."""

    key: int
    minimum: int
    maximum: int
    default: int


NEGOTIATED: Final[dict[str, LimitRange]] = {
    "max_payload": LimitRange(keys.MAX_PAYLOAD, 1 << 10, 64 << 20, 1 << 20),
    "seal_events": LimitRange(keys.SEAL_EVENTS, 1, 65_536, 64),
    "seal_delay_ms": LimitRange(keys.SEAL_DELAY_MS, 0, 60_000, 20),
    "stream_window": LimitRange(keys.STREAM_WINDOW, 1 << 10, 64 << 20, 256 << 10),
    "max_streams": LimitRange(keys.MAX_STREAMS, 0, 65_536, 1_024),
}


def _negotiated(name: str, help_text: str, unit: str = "") -> Meta:
    limit = NEGOTIATED[name]
    return setting(help_text, unit=unit, ge=limit.minimum, le=limit.maximum, reload=True)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that Hello and Reply contain. For each, the smaller value of both sides applies.

    See section 5 of docs/protocol.md; docs/reference/settings.md describes each limit.

    Raises:
        ValueError: a value is not an int, or is outside its range.

    Example:

        from parley import Identity, Limits, Node, NodeConfig

        config = NodeConfig(limits=Limits(max_payload=65_536, max_streams=8))
        small = Node(Identity.create(), config=config)
    """

    max_payload: Annotated[
        int, _negotiated("max_payload", "Longest payload, padding included.", "bytes")
    ] = NEGOTIATED["max_payload"].default
    seal_events: Annotated[
        int, _negotiated("seal_events", "Most events without a signature that covers them.")
    ] = NEGOTIATED["seal_events"].default
    seal_delay_ms: Annotated[
        int, _negotiated("seal_delay_ms", "Longest time until that signature.", "milliseconds")
    ] = NEGOTIATED["seal_delay_ms"].default
    stream_window: Annotated[
        int,
        _negotiated(
            "stream_window",
            "Data on its way on one stream, and 64 bytes for each event.",
            "bytes",
        ),
    ] = NEGOTIATED["stream_window"].default
    max_streams: Annotated[
        int, _negotiated("max_streams", "Streams that each side has open at once.")
    ] = NEGOTIATED["max_streams"].default

    def __post_init__(self) -> None:
        for name, limit in NEGOTIATED.items():
            value = getattr(self, name)
            # 1.0 and True equal 1, and would be mistaken for it in the cache of encodings.
            if type(value) is not int or not limit.minimum <= value <= limit.maximum:
                raise ValueError(f"{name} is {value}; it must be {limit.minimum}..{limit.maximum}")

    def cells(self) -> dict[int, Value]:
        """Return the cells of Hello and Reply."""
        return {limit.key: getattr(self, name) for name, limit in NEGOTIATED.items()}

    @classmethod
    def from_cells(cls, cells: Mapping[int, Value]) -> "Limits":
        """Parse the peer's limits. An absent limit has its default value; one above the maximum
        counts as the maximum.

        Raises:
            LbmDecodeError: a limit is below its minimum, or isn't an unsigned integer.
        """
        values = []
        for limit in NEGOTIATED.values():
            least, most = limit.minimum, limit.maximum
            value = read_uint(cells, limit.key, default=limit.default, minimum=least)
            values.append(value if value < most else most)
        return cls(*values)

    def agreed_with(self, other: "Limits") -> "Limits":
        """Return the minimum of each limit."""
        if other == self:
            return self
        return Limits(
            **{name: min(getattr(self, name), getattr(other, name)) for name in NEGOTIATED}
        )


def control_buffer(limits: Limits, *, sealing: str | None, signature_size: int) -> int:
    """Return how many bytes of Pongs, Windows and Resets may wait for a peer that doesn't read.
    With the agreed limits, a correct peer that reads late does not exceed it.
    """
    seal = signature_size if sealing == "each" else signature_size // limits.seal_events
    each = TEXT_SIZE + CONTROL_EVENTS * (CONTROL_EVENT + seal)
    return CONTROL_BUFFER + 2 * limits.max_streams * each


def frame_limit(max_payload: int, *, sealing: str | None, signature_size: int) -> int:
    """Return the longest event after the handshake, in bytes (section 2). `sealing` is None on an
    unencrypted connection.
    """
    if sealing is None:
        size = max_payload + RAW_OVERHEAD
    else:
        size = max_payload + sealed_overhead(sealing, signature_size)
    return max(HANDSHAKE_EVENT_SIZE, size)


def sealed_overhead(sealing: str, signature_size: int) -> int:
    """Return how much longer a sealed event is than its payload, in bytes (section 6)."""
    chain = CHAIN_OVERHEAD if sealing == "chain" else 0
    return ENCRYPTED_OVERHEAD + chain + signature_size
