"""Frames, events, event types, cell numbers and codes (sections 2, 11, 12, 13).

Bytes to fields and back, with the document's numbers in one place. It doesn't depend on keys,
states or the order of events.
"""

from dataclasses import dataclass
from typing import Any, Final

from tests.reference import cbor
from tests.reference.primitives import SIGNATURE_SIZES

HANDSHAKE_LIMIT: Final = 16_384
STREAM_ZERO_PAYLOAD: Final = 4_096

CODES: Final = {
    "normal": 0,
    "going-away": 1,
    "protocol-error": 2,
    "bad-record": 3,
    "seal-violation": 4,
    "authentication-failed": 5,
    "no-common-algorithm": 6,
    "unsupported-version": 7,
    "plaintext-refused": 8,
    "frame-too-large": 9,
    "timeout": 10,
    "too-many-streams": 11,
    "overloaded": 12,
    "internal-error": 13,
    "unknown-session": 14,
}
RESET_CODES: Final = {"cancelled": 32, "slow-consumer": 33, "no-handler": 34, "refused": 35}
RESULT_CODES: Final = {
    "accepted": 0,
    "topic not found": 1,
    "already subscribed (Subscribe), not subscribed (Unsubscribe, Notify)": 2,
    "rejected (Subscribe)": 3,
    "handler failed": 16,
    "deadline exceeded": 17,
    "cancelled": 18,
    "overloaded": 19,
    "not authorised": 20,
    "payload too large": 21,
    "wrong supercategory": 22,
    "malformed": 23,
    "invalid event (bus)": 24,
    "store full (bus)": 25,
    "store damaged (bus)": 26,
    "not once": 27,
    "unreachable": 28,
}
NAMES: Final = {number: name for name, number in CODES.items()}

TYPES: Final = {
    "Hello": (1, 1),
    "Reply": (1, 2),
    "Proof": (1, 3),
    "Retry": (1, 4),
    "Reject": (1, 5),
    "Ping": (1, 6),
    "Pong": (1, 7),
    "Seal": (1, 8),
    "KeyUpdate": (1, 9),
    "RekeyOffer": (1, 10),
    "RekeyAnswer": (1, 11),
    "Close": (1, 12),
    "Resume": (1, 13),
    "Resumed": (1, 14),
    "Received": (1, 15),
    "Open": (2, 1),
    "Window": (2, 2),
    "Finish": (2, 3),
    "Reset": (2, 4),
    "Data": (2, 5),
    "Batch": (2, 6),
    "Call": (3, 1),
    "Subscribe": (3, 2),
    "Unsubscribe": (3, 3),
    "Notify": (3, 4),
    "Result": (3, 5),
    "Cancel": (3, 6),
    "Chunk": (3, 7),
    "Notes": (3, 8),
    "Emit": (4, 1),
    "Named Reply": (4, 2),
    "Error": (4, 3),
    "End": (4, 4),
    "Login": (5, 1),
    "Logout": (5, 2),
    "Account Answer": (5, 3),
    "Bus Answer": (6, 1),
    "Bus Publish": (6, 2),
    "Bus Join": (6, 3),
    "Bus Read": (6, 4),
    "Bus Own": (6, 5),
    "Bus Claim": (6, 6),
    "Bus Touch": (6, 7),
    "Bus Ack": (6, 8),
    "Bus Nack": (6, 9),
    "Bus Release": (6, 10),
    "Bus Bury": (6, 11),
    "Bus Streams": (6, 12),
    "Bus Groups": (6, 13),
    "Bus Consumers": (6, 14),
    "Bus Pending": (6, 15),
    "Bus History": (6, 16),
    "Bus Rewind": (6, 17),
    "Bus Redeliver": (6, 18),
    "Bus Trim": (6, 19),
    "Bus Drop": (6, 20),
    "Bus Remove Consumers": (6, 21),
    "Bus Remove Group": (6, 22),
    "Tunnel Answer": (7, 1),
    "Dial": (7, 2),
    "Have": (8, 1),
    "Cards": (8, 2),
    "Statements": (8, 3),
}
ALWAYS_SEALED: Final = ("Proof", "KeyUpdate", "RekeyOffer", "RekeyAnswer", "Seal", "Close")
ALWAYS_SEALED_TYPES: Final = frozenset(TYPES[name] for name in ALWAYS_SEALED)

CELLS: Final = {
    "noise": 0,
    "version": 1,
    "random": 2,
    "offer": 3,
    "suite": 4,
    "shares": 5,
    "role": 6,
    "max_payload": 7,
    "seal_events": 8,
    "seal_delay_ms": 9,
    "stream_window": 10,
    "max_streams": 11,
    "mac": 12,
    "plaintext": 13,
    "keys": 14,
    "node": 15,
    "code": 16,
    "text": 17,
    "stream": 18,
    "label": 19,
    "credit": 20,
    "topic": 21,
    "data": 22,
    "deadline_ms": 23,
    "headers": 24,
    "request": 25,
    "name": 26,
    "namespace": 27,
    "format": 28,
    "share": 29,
    "window": 30,
    "epoch": 31,
    "notes": 32,
    "rekey": 33,
    "group": 34,
    "consumer": 35,
    "ids": 36,
    "rows": 37,
    "count": 38,
    "wait_ms": 39,
    "idle_ms": 40,
    "delay_ms": 41,
    "after": 42,
    "until": 43,
    "before": 44,
    "durable": 45,
    "max_length": 46,
    "max_bytes": 47,
    "approximate": 48,
    "more": 49,
    "resume_ms": 50,
    "tag": 51,
    "attempt": 52,
    "received": 53,
    "mac_of_resume": 54,
    "once_key": 55,
    "topic_epoch": 56,
    "number": 57,
    "recovered": 58,
    "path": 59,
    "to": 60,
    "trace": 61,
    "have": 62,
    "envelopes": 63,
    "hop": 64,
    "content": 65,
    "signing": 66,
    "signature": 67,
    "sealed": 68,
    "addresses": 69,
    "kind": 70,
    "origin": 71,
    "made_ms": 72,
    "expires_ms": 73,
    "links": 74,
    "exports": 75,
    "recipient": 76,
    "mail_id": 77,
    "prekey_hash": 78,
    "kex": 79,
    "replaced": 80,
    "successor": 81,
    "signer": 82,
    "consent": 83,
    "slots": 84,
    "statements": 85,
}
CELL_NAMES: Final = {number: name for name, number in CELLS.items()}
TEXT_CELLS: Final = frozenset({6, 17, 19, 21, 26, 27, 34, 35, 42, 43, 44, 66, 70, 79})
BYTES_CELLS: Final = frozenset({0, 2, 12, 29, 51, 54, 55, 56, 61, 65, 67, 68, 71, 76, 77, 78, 83})
ARRAY_CELLS: Final = frozenset({14, 32, 36, 37, 59, 60, 62, 63, 69, 74, 75, 81, 82, 84, 85})
BOOLEAN_CELLS: Final = frozenset({13, 45, 48, 49, 58})
MAP_CELLS: Final = frozenset({3, 4, 5, 15, 24})
# Of unsigned cells whose range is not 0..2^64-1 wherever they are.
RANGES: Final = {
    CELLS["code"]: range(2**32),
    CELLS["stream"]: range(2**32),
    CELLS["credit"]: range(2**31),
    CELLS["request"]: range(1, 65_536),
    CELLS["format"]: range(256),
    CELLS["window"]: range(1, 2**31),
    CELLS["hop"]: range(8),
}


class Violation(Exception):
    """A rule was broken; `code` is the name of section 11 that the Close would carry."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(f"{code}: {why}")
        self.code = code
        self.why = why


@dataclass(frozen=True)
class Event:
    """One event in the clear; `payload` is empty where the wire had 'no payload'."""

    stream: int
    async_id: int
    category: int
    subcategory: int
    payload: bytes = b""

    @property
    def type(self) -> tuple[int, int]:
        """Category and subcategory."""
        return self.category, self.subcategory

    @property
    def inner(self) -> bytes:
        """What a blob decrypts to: everything but the stream id."""
        payload = self.payload or b"\x00"
        return self.async_id.to_bytes(2) + bytes(self.type) + payload

    @property
    def raw(self) -> bytes:
        """The unencrypted event."""
        return self.stream.to_bytes(4) + self.inner

    def cells(self, max_items: int = cbor.DEFAULT_ITEMS) -> dict[int, Any]:
        """The payload's cells; 'no payload' reads as no cells. Raises LbmError."""
        if not self.payload:
            return {}
        return named_types(cbor.decode_payload(self.payload, max_items=max_items))


def strict_cells(event: Event) -> dict[int, Any]:
    """The cells of an event that must be right; raises Violation."""
    try:
        return event.cells()
    except cbor.LbmError as error:
        raise Violation("protocol-error", f"malformed: {error.rule}") from error


def loose_cells(event: Event) -> dict[int, Any]:
    """Return the cells of an event; empty if it is malformed."""
    try:
        return event.cells()
    except cbor.LbmError:
        return {}


def parse_inner(stream: int, inner: bytes) -> Event:
    """An event from its stream id and the rest; raises Violation."""
    if len(inner) < 5:
        raise Violation("protocol-error", "an event has at least nine bytes")
    category, subcategory = inner[2], inner[3]
    if not category or not subcategory:
        raise Violation("protocol-error", "category and subcategory are 1..255")
    payload = inner[4:]
    if payload == b"\x00" and (category, subcategory) != TYPES["Data"]:
        payload = b""
    return Event(stream, int.from_bytes(inner[:2]), category, subcategory, payload)


def parse_raw(event: bytes) -> Event:
    """An unencrypted event; raises Violation."""
    return parse_inner(int.from_bytes(event[:4]), event[4:])


def split_encrypted(event: bytes, sealing: str, signing: str) -> tuple[int, int, bytes, bytes]:
    """(stream, form, signed hash without its form byte, blob); raises Violation bad-record."""
    stream, rest = int.from_bytes(event[:4]), event[4:]
    form, size = 1, SIGNATURE_SIZES[signing]
    if sealing == "chain":
        if not rest or rest[0] > 1:
            raise Violation("bad-record", "form byte")
        form, rest = rest[0], rest[1:]
        size = 16 + form * size
    # The blob has a 16-byte tag and at least the five bytes of its event inside.
    if len(rest) < size + 21:
        raise Violation("bad-record", "too short for its form")
    return stream, form, rest[:size], rest[size:]


def frame(event: bytes) -> bytes:
    """The frame of one event."""
    return len(event).to_bytes(4) + event


def frame_limit(max_payload: int, signing: str | None, sealing: str | None) -> int:
    """The greatest event after the handshake; `signing` is None in plaintext."""
    if signing is None:
        return max(HANDSHAKE_LIMIT, max_payload + 8)
    size = max_payload + 24 + SIGNATURE_SIZES[signing] + (17 if sealing == "chain" else 0)
    return max(HANDSHAKE_LIMIT, size)


def cells_payload(**cells: Any) -> bytes:
    """A payload from cells by name: cells_payload(code=0, text="...")."""
    return cbor.encode_payload({CELLS[name]: value for name, value in cells.items()})


def named_types(cells: dict[int, Any]) -> dict[int, Any]:
    """The cells, once every known one has the type and range of section 13; raises LbmError."""
    for key, value in cells.items():
        if not _right_type(key, value):
            raise cbor.LbmError(f"cell-type-{key}")
    return cells


def own_cells(payload: bytes, *names: str) -> dict[int, Any]:
    """Those cells that a type has by these names, with the right types; all others are as good
    as absent. Raises LbmError."""
    cells = cbor.decode_payload(payload)
    return named_types({CELLS[name]: cells[CELLS[name]] for name in names if CELLS[name] in cells})


def _right_type(key: int, value: Any) -> bool:
    if key == CELLS["data"] or key not in CELL_NAMES:
        return True
    if key in TEXT_CELLS:
        return isinstance(value, str)
    if key in BYTES_CELLS:
        return isinstance(value, bytes)
    if key in BOOLEAN_CELLS:
        return isinstance(value, bool)
    if key in ARRAY_CELLS:
        return isinstance(value, list)
    if key in MAP_CELLS:
        return isinstance(value, dict)
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value in RANGES.get(key, range(2**64))
