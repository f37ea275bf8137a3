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
# Ours: the text of Reset and Close, UTF-8, so that their payload stays within the above.
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
# Plain KeyUpdates of the other side. Ours are half as many, so that no delay on the way makes
# too many of them come at once.
KEY_UPDATES: Final = Rate(64, 1.0)
OWN_KEY_UPDATES: Final = Rate(32, 2.0)
# Of one direction, so that whoever follows its keys need not follow any number of steps.
UPDATES_BETWEEN_REKEYS: Final = 2**14

# What answers nothing and changes nothing (section 6, 8 and 9): Seals that seal nothing, Pongs
# without a Ping, Windows and Resets beyond those that what we sent can be the reason of.
IDLE_EVENTS: Final = Rate(64, 1.0)
# An event of ours is one reason, and another for each 512 bytes that it costs. A reader grants
# fewer at a time only when it has read everything.
READ_ON: Final = 512
# What costs the other side as much as us: its Pings, and its events that nobody takes.
PINGS: Final = Rate(16_384, 1 / 1_024)
OWN_PINGS: Final = Rate(8_192, 1 / 512)
DROPPED_EVENTS: Final = Rate(16_384, 1 / 1_024)

# Streams (section 8).
EVENT_COST: Final = 64
LARGEST_CREDIT: Final = 2**31 - 1
# What one Batch may be.
BATCH_COUNT: Final = 256
BATCH_SIZE: Final = 32 * 1024
# All that a connection makes us hold, and of that, what the windows of its streams may add up to.
PEER_MEMORY: Final = 32 * 2**20
WINDOWS_PART: Final = 2
# What handlers have made in answer and have no room to write yet: so many times that, and seconds.
UNWRITTEN_PART: Final = 4
ANSWER_PATIENCE: Final = 10.0

# Notes in one Notes event (section 9).
NOTES_COUNT: Final = 4_096

# Stream 1 (section 8) and keep-alive (section 9).
UNANSWERED_REQUESTS: Final = 1_024
IDLE_BEFORE_PING: Final = 15.0
PING_TIMEOUT: Final = 10.0
WAITING_PONGS: Final = 64

# Calls that are made once (section 18): their key, the longest Result that is remembered, how long
# it is, and until when after it was first sent such a call may be asked again.
ONCE_KEY_SIZE: Final = 16
ONCE_RESULT: Final = 64 * 1024
ONCE_KEPT: Final = 600.0
ONCE_AGAIN: Final = 300.0

# Resume (section 17).
RESUME_MS: Final = 600_000
RESUME_BUFFER: Final = 4 * 2**20
LEAST_RESUME_BUFFER: Final = 2**20
RESUME_EXEMPT: Final = 2 * 2**20  # Opens beyond a full buffer; see also `control_buffer`
TELL_BYTES: Final = 256 * 1024
TELL_INTERVAL: Final = 1.0
TELL_ALONE: Final = 10.0
RESUME_TIMEOUT: Final = 5.0  # of one attempt
RESPONDER_PATIENCE: Final = 30.0  # how much longer the responder keeps a suspended session
CLOSED_PATIENCE: Final = 5.0
# Ours: nothing came for so long, so that a seal or a rekey that is overdue may be on its way.
SILENCE: Final = 5.0

# Closing (section 11).
CLOSE_LINGER: Final = 2.0
# Ours: how long a graceful close waits for queued data that has no credit.
CLOSE_DRAIN: Final = 5.0
# Ours: Pongs, Windows and Resets that wait because the other side does not read, and as much for
# each stream as `control_buffer` adds.
CONTROL_BUFFER: Final = 1 << 20
# Bytes of such an event on the wire, without its seal; and how many of them a stream can cause
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
    """What Hello and Reply state: the minimum of both sides applies (section 5).

    docs/reference/settings.md describes each limit.

    Raises:
        ValueError: a value is not an int, or is outside its range in `NEGOTIATED`.
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
            # 1.0 and True equal 1, and would stand for it where its encoding is kept.
            if type(value) is not int or not limit.minimum <= value <= limit.maximum:
                raise ValueError(f"{name} is {value}; it must be {limit.minimum}..{limit.maximum}")

    def cells(self) -> dict[int, Value]:
        """Return the cells of Hello and Reply."""
        return {limit.key: getattr(self, name) for name, limit in NEGOTIATED.items()}

    @classmethod
    def from_cells(cls, cells: Mapping[int, Value]) -> "Limits":
        """Read the peer's limits. Absent means the default; above the greatest counts as the
        greatest.

        Raises:
            LbmDecodeError: a limit is below its least value, or no unsigned integer.
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
    """Return how many bytes of Pongs, Windows and Resets may wait for a peer that doesn't read. An
    honest peer that reads late causes no more, with the agreed limits."""
    seal = signature_size if sealing == "each" else signature_size // limits.seal_events
    each = TEXT_SIZE + CONTROL_EVENTS * (CONTROL_EVENT + seal)
    return CONTROL_BUFFER + 2 * limits.max_streams * each


def frame_limit(max_payload: int, *, sealing: str | None, signature_size: int) -> int:
    """Return the longest event after the handshake, in bytes (section 2). `sealing` is None on an
    unencrypted connection."""
    if sealing is None:
        size = max_payload + RAW_OVERHEAD
    else:
        size = max_payload + ENCRYPTED_OVERHEAD + signature_size
        if sealing == "chain":
            size += CHAIN_OVERHEAD
    return max(HANDSHAKE_EVENT_SIZE, size)
