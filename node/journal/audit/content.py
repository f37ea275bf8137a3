"""What a decrypted event is about: its type's name, topic, code, notes.

One rule: the payload is read exactly as a node reads it, so what a node would refuse is
malformed here. Knows no sessions: which topic a stream belongs to is told by its caller.
"""

from typing import Any, Final, NamedTuple

from lbm import keys
from lbm.codec import decode, encode_value
from lbm.errors import LbmDecodeError, LbmError
from lbm.heads import BYTES, encode_head
from lbm.keys import KEYS
from node.journal.audit.rows import MALFORMED, OK
from node.journal.parsing import LARGEST
from node.protocol import codes
from node.protocol.event import NO_PAYLOAD
from node.protocol.limits import NOTES_COUNT

TYPES: Final = {
    (codes.CONNECTION, codes.PROOF): "proof",
    (codes.CONNECTION, codes.PING): "ping",
    (codes.CONNECTION, codes.PONG): "pong",
    (codes.CONNECTION, codes.SEAL): "seal",
    (codes.CONNECTION, codes.KEY_UPDATE): "key-update",
    (codes.CONNECTION, codes.REKEY_OFFER): "rekey-offer",
    (codes.CONNECTION, codes.REKEY_ANSWER): "rekey-answer",
    (codes.CONNECTION, codes.CLOSE): "close",
    (codes.STREAM, codes.OPEN): "open",
    (codes.STREAM, codes.WINDOW): "window",
    (codes.STREAM, codes.FINISH): "finish",
    (codes.STREAM, codes.RESET): "reset",
    (codes.STREAM, codes.DATA): "data",
    (codes.SIM, codes.CALL): "call",
    (codes.SIM, codes.SUBSCRIBE): "subscribe",
    (codes.SIM, codes.UNSUBSCRIBE): "unsubscribe",
    (codes.SIM, codes.NOTIFY): "notify",
    (codes.SIM, codes.RESULT): "result",
    (codes.SIM, codes.CANCEL): "cancel",
    (codes.SIM, codes.CHUNK): "chunk",
    (codes.SIM, codes.NOTES): "notes",
    (codes.NAMED, codes.EMIT): "emit",
    (codes.NAMED, codes.REPLY_EVENT): "reply",
    (codes.NAMED, codes.ERROR): "error",
    (codes.NAMED, codes.END): "end",
    **{
        (codes.BUS, kind.value): f"bus-{kind.name.lower().replace('_', '-')}"
        for kind in codes.BusType
    },
}
_TYPES: Final = {category << 8 | sub: name for (category, sub), name in TYPES.items()}
_OPEN: Final = codes.STREAM << 8 | codes.OPEN
_DATA: Final = codes.STREAM << 8 | codes.DATA
_NOTES: Final = codes.SIM << 8 | codes.NOTES
_TOPIC_PREFIX: Final = "topic:"
# A payload that is one note, but for the note.
_NOTIFY_HEAD: Final = bytes.fromhex("a116")
_PYTHON_TYPES: Final = {
    "uint": int,
    "bytes": bytes,
    "text": str,
    "bool": bool,
    "array": list,
    "map": dict,
}
_WANTED: Final = {
    key: _PYTHON_TYPES[entry.type] for key, entry in KEYS.items() if entry.type != "any"
}


# Shapes of payloads that are right, with the keys of their numbers.
_shapes: dict[tuple[Any, ...], tuple[int, ...]] = {}
_MOST_SHAPES: Final = 4_096
_MOST_CELLS: Final = 16
# What payloads of a type and size are about whose last cell is a byte string, by all that
# comes before its bytes, which mean nothing here; and how long that is.
_openings: dict[tuple[int, int, bytes], "Content"] = {}
_opening_sizes: dict[tuple[int, int], int] = {}
_MOST_OPENINGS: Final = 4_096
_LONGEST_OPENING: Final = 256
# Characters of a topic, name or label that rows have: a peer may choose a million.
LONGEST_TOPIC: Final = 1_024


class Content(NamedTuple):
    """`notes` are the payloads of single notes, None but for Notes; `label` that of an Open.

    `type` is None for what nobody could decrypt.
    """

    type: str | None
    topic: str | None = None
    code: int | None = None
    opens: int | None = None
    request: int | None = None
    status: str = OK
    notes: list[bytes] | None = None
    label: str | None = None


_APPLICATION: Final = Content("application")
_UNKNOWN: Final = Content("unknown")
_EMPTY: Final = {number: Content(name) for number, name in _TYPES.items()}


def carried_topic(label: str) -> str:
    """The topic that a stream carries, or its label as it is."""
    return label.removeprefix(_TOPIC_PREFIX)


def read_content(number: int, payload: bytes) -> Content:
    """Read the payload of an event of type `number` (category << 8 | subcategory), as it is on
    the wire; never raises for its bytes."""
    size = len(payload)
    opening = _opening_sizes.get((number, size))
    if opening is not None:
        content = _openings.get((number, size, payload[:opening]))
        if content is not None:
            return content
    name = _TYPES.get(number)
    if name is None:
        return _APPLICATION if number >> 8 >= codes.FIRST_APPLICATION_CATEGORY else _UNKNOWN
    if payload == NO_PAYLOAD or number == _DATA:
        return _EMPTY[number]
    try:
        cells: dict[int, Any] = decode(payload)
        _check(cells)
        if number == _NOTES:
            return Content(name, notes=_single_notes(cells.get(keys.NOTES, ())))
    except LbmError:
        return Content(name, status=MALFORMED)
    get = cells.get
    topic = get(keys.TOPIC)
    label = None
    if topic is None and number >> 8 != codes.SIM:
        topic = get(keys.NAME)
        if topic is None:
            if number == _OPEN:
                label = get(keys.LABEL, "")
                topic = carried_topic(label)
        elif keys.NAMESPACE in cells:
            topic = f"{cells[keys.NAMESPACE]}.{topic}"
    code, opens, request = get(keys.CODE), get(keys.STREAM), get(keys.REQUEST)
    if topic is not None and len(topic) > LONGEST_TOPIC:
        topic = topic[:LONGEST_TOPIC]
    content = Content(name, topic, code, opens, request, OK, None, label)
    _remember(number, payload, cells, content)
    return content


def _remember(number: int, payload: bytes, cells: dict[int, Any], content: Content) -> None:
    """Payloads come in series that differ in their last cell's bytes only: all of a series
    has the same meaning, since the encoding is the only one that there is."""
    last = next(reversed(cells.values()), None)
    if type(last) is not bytes:
        return
    size = len(payload)
    opening = size - len(last)
    if opening > _LONGEST_OPENING:
        return
    if len(_openings) >= _MOST_OPENINGS:
        _openings.clear()
        _opening_sizes.clear()
    _opening_sizes[number, size] = opening
    _openings[number, size, payload[:opening]] = content


def _check(cells: dict[int, Any]) -> None:
    """Raise LbmDecodeError for a known cell of a wrong type, or a number that none can be."""
    if len(cells) > _MOST_CELLS:
        for key in _learn(cells):
            _check_number(cells[key])
        return
    # Payloads come in few shapes: each is looked at once.
    shape = (*cells, *map(type, cells.values()))
    numbers = _shapes.get(shape)
    if numbers is None:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        numbers = _shapes[shape] = _learn(cells)
    for key in numbers:
        _check_number(cells[key])


def _check_number(number: int) -> None:
    if not 0 <= number <= LARGEST:
        raise LbmDecodeError("a number that means nothing")


def _learn(cells: dict[int, Any]) -> tuple[int, ...]:
    """Which cells are numbers that we know; raises LbmDecodeError for a cell of a wrong type."""
    for key, value in cells.items():
        wanted = _WANTED.get(key)
        if wanted is not None and type(value) is not wanted:
            raise LbmDecodeError("a cell of a wrong type")
    return tuple(key for key in cells if _WANTED.get(key) is int)


def _single_notes(notes: list[Any]) -> list[bytes]:
    """Each note as the payload of a Notify of its own, which is what it is equal to."""
    if not notes or len(notes) > NOTES_COUNT:
        raise LbmDecodeError("no notes, or too many")
    first = notes[0]
    if type(first) is bytes:
        size = len(first)
        head = _NOTIFY_HEAD + encode_head(BYTES, size)
        if all(type(note) is bytes and len(note) == size for note in notes):
            return [head + note for note in notes]
    return [_NOTIFY_HEAD + encode_value(note) for note in notes]
