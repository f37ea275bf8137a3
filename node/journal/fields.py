"""Reads the fields of bodies: small typed values, with every error as JournalFormatError."""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from parley._crypto.errors import CryptoError
from parley._lbm.codec import Value, decode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import LbmLimits
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError

# A checkpoint may have 2,048 streams and as many labels, a segment end all its blocks.
LIMITS: Final = LbmLimits(max_bytes=2**24, max_items=2**17)

# The greatest integer that tables hold; no journal counts so far.
LARGEST: Final = 2**63 - 1
# No session counts so far; so places can be incremented, and summed up, in 64 bits.
LARGEST_COUNT: Final = 2**48 - 1
LONGEST_HASH: Final = 64  # bytes

SESSION: Final = Struct(">I")
EVENT: Final = Struct(">IB")
EVENT_HEAD: Final = EVENT.size

Box = tuple[bytes, bytes]  # the auditor's public key, and the sealed box


def parse_event_head(body: bytes) -> tuple[int, int]:
    """Session and direction of an event or key update; raises JournalFormatError."""
    with BodyReader("event"):
        session, direction = EVENT.unpack_from(body)
        if direction > keys.SENT:
            raise JournalFormatError(f"direction {direction}")
        return session, direction


class BodyReader:
    """A context in which what decoders raise becomes a JournalFormatError about `what`."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> "BodyReader":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, (LbmDecodeError, StructError, CryptoError)):
            raise JournalFormatError(f"a malformed {self._what}: {error}") from error

    def cells(self, body: bytes) -> Mapping[int, Value]:
        """The map that a body is."""
        return decode(body, LIMITS)

    def session(self, body: bytes) -> tuple[int, Mapping[int, Value]]:
        """The session's number, and the map after it."""
        (session,) = SESSION.unpack_from(body)
        return session, decode(body[SESSION.size :], LIMITS)


def byte_string(value: Any, size: int | None = None) -> bytes:
    if not isinstance(value, bytes) or (size is not None and len(value) != size):
        found = f"{len(value):,} bytes" if isinstance(value, bytes) else type(value).__name__
        wanted = "a byte string" if size is None else f"a byte string of {size} bytes"
        raise JournalFormatError(f"{wanted} is expected, not {found}")
    return value


def hash_value(value: Any) -> bytes:
    """A byte string that may be a hash; which hash, and of what size, depends on the suite."""
    found = byte_string(value)
    if len(found) > LONGEST_HASH:
        raise JournalFormatError(f"a hash of more than {LONGEST_HASH} bytes")
    return found


def a_uint(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise JournalFormatError(
            f"an unsigned integer up to {LARGEST_COUNT:,} is expected, not {ascii(value)[:40]}"
        )
    return value


def box_list(value: Any) -> tuple[Box, ...]:
    if not isinstance(value, list):
        raise JournalFormatError(f"boxes are an array, not {type(value).__name__}")
    boxes: list[Box] = []
    for box in value:
        if not isinstance(box, list) or len(box) != 2:
            raise JournalFormatError(f"a box is an array of two, not {ascii(box)[:40]}")
        boxes.append((byte_string(box[0], 32), byte_string(box[1])))
    return tuple(boxes)
