"""Notes of topics: encoding, decoding, and batches that all subscribers share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import (
    ARRAY,
    MAP,
    UINT,
    Encodable,
    Value,
    decode,
    encode,
    encode_head,
    encode_value,
)
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._lbm.fields import MAX_UINT, read_text_map
from parley._node.protocol import event_types
from parley._node.protocol.codes import NOTES, NOTIFY
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT
from parley._node.protocol.memory_budget import BATCH_WEIGHT, NOTE_WEIGHT

# The largest size of the notes in one Notes event (section 9).
NOTES_SIZE: Final = 64 * 1024

# The header with which a publisher reports how many notes a subscriber has lost in total.
DROPPED_HEADER: Final = "parley.dropped"

_NOTIFY_HEAD: Final = encode_head(MAP, 1) + encode_head(UINT, keys.DATA)
_NOTES_HEAD: Final = encode_head(MAP, 1) + encode_head(UINT, keys.NOTES)
# The size of a Notify payload without its note and headers.
NOTIFY_OVERHEAD: Final = len(_NOTIFY_HEAD)
# The largest size of a Notes payload without its notes.
NOTES_OVERHEAD: Final = len(_NOTES_HEAD) + len(encode_head(ARRAY, NOTES_COUNT))
# The largest size of the first note's number in a payload (section 18).
NUMBER_OVERHEAD: Final = len(encode({keys.NUMBER: MAX_UINT})) - 1
# The largest size of the count of replaced notes in a payload.
REPLACED_OVERHEAD: Final = len(encode({keys.REPLACED: MAX_UINT})) - 1
# The largest size of a batch of notes, without the overhead of the payload.
BATCH_ROOM: Final = NOTES_SIZE - NOTES_OVERHEAD - NUMBER_OVERHEAD - REPLACED_OVERHEAD


class Note(NamedTuple):
    """A decoded note: its data and headers, and its topic if the event includes it."""

    data: Value
    headers: Mapping[str, Value]
    topic: str | None = None


class Headers(NamedTuple):
    """A copy of a note's headers, and their encoded size in bytes."""

    values: Mapping[str, Value]
    size: int


NO_HEADERS: Final[Mapping[str, Value]] = {}


# The most digits of a plausible count, which is an unsigned 64-bit integer.
LONGEST_COUNT: Final = 20
_SLOW_SENTENCE: Final = " notes were not read in time"


def slow_text(dropped: int) -> str:
    """Return the text of a Reset slow-consumer: the total number of notes that the subscriber
    lost.
    """
    return f"{dropped}{_SLOW_SENTENCE}"


def read_slow_text(text: str) -> int:
    """Return the number in a text of `slow_text`; 0 for other texts."""
    count = text.removesuffix(_SLOW_SENTENCE)
    told = count != text and count.isascii() and count.isdecimal() and len(count) <= LONGEST_COUNT
    return int(count) if told else 0


def encode_note(data: Encodable) -> bytes:
    """Encode the data of a note for Notify and Notes events.

    Raises:
        LbmEncodeError: it cannot be encoded, or is nested deeper than 14 levels.
    """
    return encode_value(data, enclosing=2)  # The payload's map and the array of Notes enclose it.


def read_headers(headers: Mapping[str, Encodable]) -> Headers:
    """Copy and encode the headers of a note.

    Raises:
        LbmEncodeError: they cannot be encoded, or a name is not text.
    """
    encoded = encode({keys.HEADERS: headers})
    try:
        values = read_text_map(decode(encoded), keys.HEADERS)
    except LbmDecodeError as error:
        raise LbmEncodeError(
            f"cannot send headers {headers!r}: they must be a map with text keys: {error}"
        ) from error
    return Headers(values, len(encoded) - 1)


def notify_payload(note: bytes, headers: Mapping[str, Encodable] | None = None) -> bytes:
    """Return the payload of a Notify; raise LbmEncodeError if the headers cannot be encoded."""
    if not headers:
        return _NOTIFY_HEAD + note
    # The key of the data precedes that of the headers, so both can be appended.
    rest = encode({keys.HEADERS: headers})[1:]
    return encode_head(MAP, 2) + _NOTIFY_HEAD[1:] + note + rest


def notes_payload(notes: Sequence[bytes]) -> tuple[int, bytes]:
    """Return the subcategory and payload of 1 to 4,096 notes without headers."""
    if len(notes) == 1:
        return NOTIFY, _NOTIFY_HEAD + notes[0]
    return NOTES, b"".join((_NOTES_HEAD, encode_head(ARRAY, len(notes)), *notes))


def numbered_payload(payload: bytes, number: int, replaced: int = 0) -> bytes:
    """Add the number of the first note to a payload, and how many notes before it were replaced.

    See section 18.
    """
    cells = {keys.NUMBER: number, keys.REPLACED: replaced} if replaced else {keys.NUMBER: number}
    # These keys come after all others, and the map has few cells.
    return bytes((payload[0] + len(cells),)) + payload[1:] + encode(cells)[1:]


def decode_notify(payload: bytes) -> Note:
    """Decode a Notify.

    Raises:
        LbmDecodeError: it is malformed.
    """
    cells = event_types.NOTIFY.read(payload)
    return Note(cells.get(keys.DATA), cells.get(keys.HEADERS, NO_HEADERS), cells.get(keys.TOPIC))


def decode_notes(payload: bytes) -> list[Value]:
    """Decode a Notes event; return the data of each note.

    Raises:
        LbmDecodeError: it is malformed, or has more than 4,096 notes.
    """
    notes: list[Value] = event_types.NOTES.read(payload)[keys.NOTES]
    return notes


class Batch:
    """Consecutive encoded notes; a single note can have headers.

    Attributes: size: bytes of all notes and headers. cost: the batch's share of a subscriber's
    buffer, which is `size` plus 64 for each note. weight: memory used, including the payload.
    missing: how many note numbers are missing directly before the first note. replaced: how many of
    these, the last ones, were replaced by newer notes of the same key.
    """

    __slots__ = (
        "_forms",
        "_payload",
        "cost",
        "headers",
        "missing",
        "notes",
        "replaced",
        "size",
        "weight",
    )

    def __init__(
        self,
        notes: list[bytes],
        headers: Headers | None = None,
        missing: int = 0,
        replaced: int = 0,
    ) -> None:
        self.notes = notes
        self.headers = headers
        self.missing = missing
        self.replaced = replaced
        self.size = sum(map(len, notes)) + (headers.size if headers else 0)
        self.cost = self.size + EVENT_COST * len(notes)
        self.weight = BATCH_WEIGHT + 2 * self.size + NOTE_WEIGHT * len(notes)
        self._payload: tuple[int, bytes] | None = None
        self._forms: dict[str, Sequence[bytes | None]] = {}

    def payload(self) -> tuple[int, bytes]:
        """Return the subcategory and payload, which are created once for all subscribers."""
        if self._payload is None:
            if self.headers:
                self._payload = NOTIFY, notify_payload(self.notes[0], self.headers.values)
            else:
                self._payload = notes_payload(self.notes)
        return self._payload

    def in_form(
        self, form: str, convert: Callable[[bytes], bytes | None]
    ) -> Sequence[bytes | None]:
        """Convert each note with `convert`, once for all subscribers that use this `form`.

        Notes that have no such form are None.
        """
        found = self._forms.get(form)
        if found is None:
            found = self._forms[form] = [convert(note) for note in self.notes]
        return found

    def with_header(self, name: str, value: Encodable) -> "Batch":
        """Return the same note with another header."""
        values = self.headers.values if self.headers else {}
        return Batch(self.notes, read_headers({**values, name: value}))

    def with_number(self, number: int, replaced: int = 0) -> "Batch":
        """Return the same notes with the number of the first, and how many before it were
        replaced.
        """
        batch = Batch(self.notes, self.headers)
        subcategory, payload = self.payload()
        batch._payload = subcategory, numbered_payload(payload, number, replaced)
        return batch

    def split(self, count: int) -> tuple["Batch", "Batch"]:
        """Return the first `count` notes and the others, as two batches."""
        return Batch(self.notes[:count], self.headers), Batch(self.notes[count:])
