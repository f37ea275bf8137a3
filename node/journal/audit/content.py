"""The content of a decrypted event: its type's name, topic, code and notes; and compact rows.

Events are parsed with the table that nodes use (`node.protocol.event_types`). A value that a node
ignores is absent here, and an event that a node rejects is malformed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import BYTES, encode_head, encode_value
from parley._lbm.errors import LbmError
from parley._node.journal.audit.rows import MALFORMED, OK, EventRow
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import NO_PAYLOAD, Event, parse_batch
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.limits import CONNECTION_STREAM_PAYLOAD

MAX_LABELS: Final = 2**14  # Labels of streams, in one session.
# The maximum length of a topic, name, namespace or label in rows, because a peer may send a million
# characters.
LONGEST_TOPIC: Final = 1_024
_NOTIFY: Final = codes.SIM << 8 | codes.NOTIFY
_TOPIC_PREFIX: Final = "topic:"


class Label(NamedTuple):
    """A stream's label, and the topic whose notes the stream carries, if any."""

    text: str
    topic: str | None

    def topic_of(self, number: int, own: str | None) -> str | None:
        """Return the topic of an event on the stream. A note belongs to the stream's topic."""
        if self.topic is None or (own is not None and number != _NOTIFY):
            return own
        return self.topic


def read_label(text: str) -> Label:
    topic = text.removeprefix(_TOPIC_PREFIX) if text.startswith(_TOPIC_PREFIX) else None
    return Label(text[:LONGEST_TOPIC], topic and topic[:LONGEST_TOPIC])


def labels_of(labels: Mapping[int, str]) -> dict[int, Label]:
    """Return the labels of a checkpoint by stream, at most `MAX_LABELS`."""
    return {stream: read_label(text) for stream, text in islice(labels.items(), MAX_LABELS)}


def add_label(labels: dict[int, Label], stream: int, text: str) -> None:
    """Add the label of an opened stream. If there are too many, the oldest is dropped."""
    if len(labels) >= MAX_LABELS:
        del labels[next(iter(labels))]
    labels[stream] = read_label(text)


_DATA: Final = codes.STREAM << 8 | codes.DATA
_NOTES: Final = codes.SIM << 8 | codes.NOTES
_BATCH: Final = codes.STREAM << 8 | codes.BATCH
# Types from this one on may occur on any stream except 0.
_FIRST_OF_STREAMS: Final = (codes.STREAM + 1) << 8
# The beginning of a payload that consists of one note, before the note.
_NOTIFY_HEAD: Final = bytes.fromhex("a116")
_unpack_head: Final = Struct(">HH").unpack_from

# A cache for payloads whose last cell is an arbitrary byte string: their content by type, size and
# everything before those bytes; and the length of that part.
openings: dict[tuple[int, int, bytes], "Content"] = {}
opening_sizes: dict[tuple[int, int], int] = {}
_MOST_OPENINGS: Final = 4_096
_LONGEST_OPENING: Final = 256
_EMPTY_MAP: Final = 0xA0  # Added to the number of cells, this is the head of a payload.


# An event, or one of a Batch: its index in the batch, from 0, async ID, type, payload.
SingleEvent = tuple[int | None, int, int, bytes]


class Content(NamedTuple):
    """The content of an event.

    `topic` is the event's own topic or name, `label` the label of an Open, and `notes` the payloads
    of single notes (None except for Notes). `type` is None if the event was not decrypted.
    """

    type: str | None
    topic: str | None = None
    namespace: str | None = None
    code: int | None = None
    opens: int | None = None
    request: int | None = None
    status: str = OK
    notes: list[bytes] | None = None
    label: str | None = None


_APPLICATION: Final = Content("application")
_UNKNOWN: Final = Content("unknown")
_UNKNOWN_REQUEST: Final = Content("unknown", status=MALFORMED)  # As specified in its answer.
_EMPTY: Final = {number: Content(of.name) for number, of in EVENT_TYPES.items()}


def single_events(stream: int, plain: bytes) -> Sequence[SingleEvent]:
    """Return the event itself, or the events of a Batch that a node accepts."""
    async_id, number = _unpack_head(plain)
    if number == _BATCH:
        try:
            events = parse_batch(Event(stream, async_id, codes.STREAM, codes.BATCH, plain[4:]))
        except RemoteProtocolError:
            pass
        else:
            return [
                (inside, one.async_id, one.category << 8 | one.subcategory, one.payload)
                for inside, one in enumerate(events)
            ]
    return ((None, async_id, number, plain[4:]),)


def read_content(stream: int, number: int, payload: bytes) -> Content:
    """Read the payload of an event of type `number` (category << 8 | subcategory).

    Never raises. A Batch is passed here only if `single_events` could not parse it.
    """
    if (number < _FIRST_OF_STREAMS or not stream) and not _may_stand(stream, number, payload):
        known = EVENT_TYPES.get(number)
        return Content(known.name if known else "unknown", status=MALFORMED)
    size = len(payload)
    opening = opening_sizes.get((number, size))
    if opening is not None:
        content = openings.get((number, size, payload[:opening]))
        if content is not None:
            return content
    kind = EVENT_TYPES.get(number)
    if kind is None:
        category = number >> 8
        if category >= codes.FIRST_APPLICATION_CATEGORY:
            return _APPLICATION
        return _UNKNOWN_REQUEST if category == codes.BUS else _UNKNOWN
    name, own, _ = kind
    if own is None:
        fits = number == _DATA or (payload == NO_PAYLOAD and number != _BATCH)
        return _EMPTY[number] if fits else Content(name, status=MALFORMED)
    try:
        cells = own.read(b"" if payload == NO_PAYLOAD else payload)
    except LbmError:
        return Content(name, status=MALFORMED)
    get = cells.get
    if number == _NOTES:
        return Content(name, notes=_single_notes(cells[keys.NOTES]))
    content = Content(
        name,
        _shown(get(keys.TOPIC, get(keys.NAME))),
        _shown(get(keys.NAMESPACE)) or None,  # A node treats an empty value as absent.
        get(keys.CODE),
        get(keys.STREAM),
        get(keys.REQUEST),
        OK,
        None,
        get(keys.LABEL),
    )
    _remember(number, payload, cells, content)
    return content


def _may_stand(stream: int, number: int, payload: bytes) -> bool:
    """Return whether a node accepts such an event of category 1 or 2, or on stream 0."""
    kind = EVENT_TYPES.get(number)
    if kind is None or stream not in kind.streams:
        return False
    return bool(stream) or len(payload) <= CONNECTION_STREAM_PAYLOAD


def _shown(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST_TOPIC else text[:LONGEST_TOPIC]


def _remember(number: int, payload: bytes, cells: dict[int, Any], content: Content) -> None:
    """Cache a content for payloads that differ only in the bytes of their last cell.

    They have the same content, because values have only one encoding.
    """
    last = next(reversed(cells.values()), None)
    if type(last) is not bytes or payload[0] - _EMPTY_MAP != len(cells):
        return  # The last cell is not a byte string.
    size = len(payload)
    opening = size - len(last)
    if opening > _LONGEST_OPENING:
        return
    if len(openings) >= _MOST_OPENINGS:
        openings.clear()
        opening_sizes.clear()
    opening_sizes[number, size] = opening
    openings[number, size, payload[:opening]] = content


def _single_notes(notes: list[Any]) -> list[bytes]:
    """Return each note as the payload of an equivalent Notify."""
    first = notes[0] if notes else None
    if type(first) is bytes:
        size = len(first)
        head = _NOTIFY_HEAD + encode_head(BYTES, size)
        if all(type(note) is bytes and len(note) == size for note in notes):
            return [head + note for note in notes]
    return [_NOTIFY_HEAD + encode_value(note) for note in notes]


class CompactRow(NamedTuple):
    """One event, or one that carries many notes, until it is final.

    `head` has the values of `HEAD_COLUMNS`, and `number` is category << 8 | subcategory.
    `async_id`, `number` and `payload` are None if the event was not decrypted. `topic` is the topic
    of the event or its stream, `label` the label of the stream. Notes in `content` replace
    `payload`. `inside` is the index in a batch, from 0. Events of a batch share offset, place,
    sizes and digest.
    """

    head: tuple[str | None, ...]
    offset: int
    place: int | None
    time_ns: int
    stream: int
    wire_size: int
    blob_size: int | None
    digest: bytes | None
    async_id: int | None
    number: int | None
    content: Content
    topic: str | None
    label: str | None
    payload: bytes | None
    status: str
    inside: int | None = None


# The contents of an event that was not decrypted, and of a Proof.
UNREAD: Final = Content(None)
PROOF: Final = Content("proof")


def event_rows(
    rows: Sequence[CompactRow], sealed_ns: int | None, *, payloads: bool
) -> Iterator[EventRow]:
    """Yield rows with `EVENT_COLUMNS` for each event or note. `sealed_ns` is their seal's time."""
    for row in rows:
        content, number = row.content, row.number
        fixed = (
            *row.head,
            *row[1:9],
            None if number is None else number >> 8,
            None if number is None else number & 255,
            content.type,
            row.topic,
            content.namespace,
            row.label,
            content.code,
            content.opens,
            content.request,
        )
        # Computed from the rows' times, in microseconds, so that other readers get the same values.
        delay = None if sealed_ns is None else sealed_ns // 1000 - row.time_ns // 1000
        count = 1 if content.notes is None else len(content.notes)
        for item, piece in enumerate(content.notes or [row.payload]):
            size = None if piece is None else len(piece)
            kept = piece if payloads else None
            yield (*fixed, size, kept, row.inside, item, count, row.status, delay)
