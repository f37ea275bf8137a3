"""What a decrypted event is about: its type's name, topic, code, notes.

Events are read by the table that nodes use (`node.protocol.event_types`), so what a
node takes for absent is absent here, and what a node refuses is malformed.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import encode_value
from parley._lbm.errors import LbmError
from parley._lbm.heads import BYTES, encode_head
from parley._node.journal.audit.labels import LONGEST_TOPIC
from parley._node.journal.audit.rows import MALFORMED, OK
from parley._node.protocol import codes
from parley._node.protocol.batch_event import parse_batch
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import NO_PAYLOAD, Event
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.limits import CONNECTION_STREAM_PAYLOAD

_DATA: Final = codes.STREAM << 8 | codes.DATA
_NOTES: Final = codes.SIM << 8 | codes.NOTES
_BATCH: Final = codes.STREAM << 8 | codes.BATCH
# Types from here on may stand on any stream but 0.
_FIRST_OF_STREAMS: Final = (codes.STREAM + 1) << 8
# The beginning of a payload that is one note, before the note.
_NOTIFY_HEAD: Final = bytes.fromhex("a116")
_unpack_head: Final = Struct(">HH").unpack_from

# For payloads whose last cell is a byte string, which means nothing here: their content by type,
# size and everything before those bytes; and how long that is.
openings: dict[tuple[int, int, bytes], "Content"] = {}
opening_sizes: dict[tuple[int, int], int] = {}
_MOST_OPENINGS: Final = 4_096
_LONGEST_OPENING: Final = 256
_EMPTY_MAP: Final = 0xA0  # plus its number of cells it is the head of a payload


# An event, or one of a Batch: its place in that, from 0, async id, type, payload.
SingleEvent = tuple[int | None, int, int, bytes]


class Content(NamedTuple):
    """`topic` is the event's own topic or name, `label` that of an Open; `notes` are the payloads
    of single notes, None except for Notes. `type` is None if the event was not decrypted.
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
_UNKNOWN_REQUEST: Final = Content("unknown", status=MALFORMED)  # as its answer says
_EMPTY: Final = {number: Content(of.name) for number, of in EVENT_TYPES.items()}


def single_events(stream: int, plain: bytes) -> Sequence[SingleEvent]:
    """What a decrypted event means: itself, or the events of a Batch that a node takes."""
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
    """Read the payload of an event of type `number` (category << 8 | subcategory); its bytes
    never make this raise. A Batch is read by `single_events`, and is
    here only if a node refuses it."""
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
        _shown(get(keys.NAMESPACE)) or None,  # to a node empty means absent
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
    """Whether a node accepts such an event of category 1 or 2, or one on stream 0."""
    kind = EVENT_TYPES.get(number)
    if kind is None or stream not in kind.streams:
        return False
    return bool(stream) or len(payload) <= CONNECTION_STREAM_PAYLOAD


def _shown(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST_TOPIC else text[:LONGEST_TOPIC]


def _remember(number: int, payload: bytes, cells: dict[int, Any], content: Content) -> None:
    """Remember a content for payloads that differ only in their last cell's bytes: they mean the
    same, since values have only one encoding."""
    last = next(reversed(cells.values()), None)
    if type(last) is not bytes or payload[0] - _EMPTY_MAP != len(cells):
        return  # the last cell is not a byte string
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
    """Each note as the payload of a Notify of its own, to which it is equivalent."""
    first = notes[0] if notes else None
    if type(first) is bytes:
        size = len(first)
        head = _NOTIFY_HEAD + encode_head(BYTES, size)
        if all(type(note) is bytes and len(note) == size for note in notes):
            return [head + note for note in notes]
    return [_NOTIFY_HEAD + encode_value(note) for note in notes]
