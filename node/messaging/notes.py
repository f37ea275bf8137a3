"""Notes of topics: encoding, decoding and batches that all subscribers share."""

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

# The bytes of the most that one Notes event holds (section 9).
NOTES_SIZE: Final = 64 * 1024

# The header under which a publisher says how many notes a subscriber has lost, in all.
DROPPED_HEADER: Final = "parley.dropped"

_NOTIFY_HEAD: Final = encode_head(MAP, 1) + encode_head(UINT, keys.DATA)
_NOTES_HEAD: Final = encode_head(MAP, 1) + encode_head(UINT, keys.NOTES)
# What a payload of Notify has besides its note and that one's headers.
NOTIFY_OVERHEAD: Final = len(_NOTIFY_HEAD)
# What a payload of Notes has besides its notes, at most.
NOTES_OVERHEAD: Final = len(_NOTES_HEAD) + len(encode_head(ARRAY, NOTES_COUNT))
# What the number of the first note takes in a payload, at most (section 18).
NUMBER_OVERHEAD: Final = len(encode({keys.NUMBER: MAX_UINT})) - 1
# What the count of the replaced notes takes in a payload, at most.
REPLACED_OVERHEAD: Final = len(encode({keys.REPLACED: MAX_UINT})) - 1
# What a batch of notes may have, without the payload's own few bytes.
BATCH_ROOM: Final = NOTES_SIZE - NOTES_OVERHEAD - NUMBER_OVERHEAD - REPLACED_OVERHEAD


class Note(NamedTuple):
    """What a reader gets: data, and the headers that came with it (mostly none). `topic` is the
    one that it names itself."""

    data: Value
    headers: Mapping[str, Value]
    topic: str | None = None


class Headers(NamedTuple):
    """Headers as they were when the note was published, and the bytes they take in it."""

    values: Mapping[str, Value]
    size: int


NO_HEADERS: Final[Mapping[str, Value]] = {}


# Digits of a count that is believed: that of an unsigned integer of the wire.
LONGEST_COUNT: Final = 20
_SLOW_SENTENCE: Final = " notes were not read in time"


def slow_text(dropped: int) -> str:
    """The text of Reset slow-consumer: how many notes the subscriber has lost, in all."""
    return f"{dropped}{_SLOW_SENTENCE}"


def read_slow_text(text: str) -> int:
    """What `slow_text` says; 0 for a text of another kind."""
    count = text.removesuffix(_SLOW_SENTENCE)
    told = count != text and count.isascii() and count.isdecimal() and len(count) <= LONGEST_COUNT
    return int(count) if told else 0


def encode_note(data: Encodable) -> bytes:
    """The note's data, ready to be sent alone or in company.

    Raises:
        LbmEncodeError: it has no encoding, or is nested deeper than 14 levels.
    """
    return encode_value(data, enclosing=2)  # the payload's map, and the array of Notes


def read_headers(headers: Mapping[str, Encodable]) -> Headers:
    """The headers of a note, no longer the caller's to change.

    Raises:
        LbmEncodeError: they have no encoding, or a name is not text.
    """
    encoded = encode({keys.HEADERS: headers})
    try:
        values = read_text_map(decode(encoded), keys.HEADERS)
    except LbmDecodeError as error:
        raise LbmEncodeError(f"headers are a map with text keys: {error}") from error
    return Headers(values, len(encoded) - 1)


def notify_payload(note: bytes, headers: Mapping[str, Encodable] | None = None) -> bytes:
    """The payload of a Notify; raises LbmEncodeError for headers without an encoding."""
    if not headers:
        return _NOTIFY_HEAD + note
    # The data's key comes before that of the headers, so that both can be appended.
    rest = encode({keys.HEADERS: headers})[1:]
    return encode_head(MAP, 2) + _NOTIFY_HEAD[1:] + note + rest


def notes_payload(notes: Sequence[bytes]) -> tuple[int, bytes]:
    """The subcategory and payload of notes without headers, 1 to 4,096 of them."""
    if len(notes) == 1:
        return NOTIFY, _NOTIFY_HEAD + notes[0]
    return NOTES, b"".join((_NOTES_HEAD, encode_head(ARRAY, len(notes)), *notes))


def numbered_payload(payload: bytes, number: int, replaced: int = 0) -> bytes:
    """Return the payload of a Notify or Notes with the number of its first note, and how many notes
    before it were replaced (section 18)."""
    cells = {keys.NUMBER: number, keys.REPLACED: replaced} if replaced else {keys.NUMBER: number}
    # Their keys come after all others, and a payload's cells are few.
    return bytes((payload[0] + len(cells),)) + payload[1:] + encode(cells)[1:]


def decode_notify(payload: bytes) -> Note:
    """Read a Notify.

    Raises:
        LbmDecodeError: it is malformed.
    """
    cells = event_types.NOTIFY.read(payload)
    return Note(cells.get(keys.DATA), cells.get(keys.HEADERS, NO_HEADERS), cells.get(keys.TOPIC))


def decode_notes(payload: bytes) -> list[Value]:
    """Read a Notes event: the data of each note.

    Raises:
        LbmDecodeError: it is malformed, or more than 4,096.
    """
    notes: list[Value] = event_types.NOTES.read(payload)[keys.NOTES]
    return notes


class Batch:
    """Notes that follow each other, encoded; one alone may have headers.

    `size` is the bytes of all notes and headers, `cost` what they count in a subscriber's
    buffer: 64 more for each note; `weight` what they take in memory, also as a payload.
    `missing` is how many numbers there are between the note before and the first of these, and
    `replaced` for how many of them, the last ones, the subscriber gets a later note of that key.
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
        """Subcategory and payload, made once for all subscribers."""
        if self._payload is None:
            if self.headers:
                self._payload = NOTIFY, notify_payload(self.notes[0], self.headers.values)
            else:
                self._payload = notes_payload(self.notes)
        return self._payload

    def in_form(
        self, form: str, convert: Callable[[bytes], bytes | None]
    ) -> Sequence[bytes | None]:
        """Each note as `convert` makes it of its encoding, None if it has no such form; made
        once for all subscribers of this `form`."""
        found = self._forms.get(form)
        if found is None:
            found = self._forms[form] = [convert(note) for note in self.notes]
        return found

    def with_header(self, name: str, value: Encodable) -> "Batch":
        """The same note with a header more."""
        values = self.headers.values if self.headers else {}
        return Batch(self.notes, read_headers({**values, name: value}))

    def with_number(self, number: int, replaced: int = 0) -> "Batch":
        """Return the same notes with the number of the first of them, and how many notes directly
        before it were replaced."""
        batch = Batch(self.notes, self.headers)
        subcategory, payload = self.payload()
        batch._payload = subcategory, numbered_payload(payload, number, replaced)
        return batch

    def split(self, count: int) -> tuple["Batch", "Batch"]:
        """The first `count` notes and the others."""
        return Batch(self.notes[:count], self.headers), Batch(self.notes[count:])
