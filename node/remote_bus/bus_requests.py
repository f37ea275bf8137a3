"""What a peer may ask of a bus: a record for each event of category 6 but its answer, and its
payload (docs/protocol.md section 16).

A field's name says which cell it is (`FIELDS`), its default that the cell may be absent. `name` is
an event's, which names its stream; `stream` may be `API.*` too, as stores call one that has all
events of an API. Durations are seconds, as in `Store`. Each request has one encoding; a payload
that is not of its type raises LbmDecodeError, and unknown cells are ignored (section 3). What a
cell may hold is fixed in `node.protocol.event_types`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import BusType
from parley._node.protocol.event_types import BUS_CELLS
from parley._node.remote_bus.bus_limits import LONGEST_TIME_MS, LONGEST_WAIT_MS


class Given(NamedTuple):
    """An event to be published; `body` has yet to be checked."""

    name: str
    body: str
    key: str | None
    version: int


class Publish(NamedTuple):
    events: list[Given]
    durable: bool = True


class Join(NamedTuple):
    name: str
    group: str
    consumer: str
    after: str


class Read(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int
    wait: float = 0.0


class Own(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int


class Claim(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int
    idle: float


class Touch(NamedTuple):
    name: str
    group: str
    consumer: str
    ids: list[str]


class Ack(NamedTuple):
    name: str
    group: str
    ids: list[str]


class Nack(NamedTuple):
    name: str
    group: str
    consumer: str
    id: str
    delay: float
    error: str


class Release(NamedTuple):
    name: str
    group: str
    consumer: str
    ids: list[str]


class Bury(NamedTuple):
    name: str
    group: str
    consumer: str
    id: str
    error: str


class ListStreams(NamedTuple):
    after_name: str = ""


class ListGroups(NamedTuple):
    stream: str
    after_name: str = ""


class ListConsumers(NamedTuple):
    stream: str
    group: str
    after_name: str = ""


class ListPending(NamedTuple):
    stream: str
    group: str
    number: int
    after_id: str


class ReadHistory(NamedTuple):
    stream: str
    number: int
    after: str
    until: str | None = None
    wait: float = 0.0


class Rewind(NamedTuple):
    stream: str
    group: str
    after: str


class Redeliver(NamedTuple):
    stream: str
    group: str
    ids: list[str]


class TrimStream(NamedTuple):
    stream: str
    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


class Drop(NamedTuple):
    stream: str
    ids: list[str]


class RemoveConsumers(NamedTuple):
    stream: str
    group: str
    idle: float


class RemoveGroup(NamedTuple):
    stream: str
    group: str


Request: TypeAlias = (
    Publish
    | Join
    | Read
    | Own
    | Claim
    | Touch
    | Ack
    | Nack
    | Release
    | Bury
    | ListStreams
    | ListGroups
    | ListConsumers
    | ListPending
    | ReadHistory
    | Rewind
    | Redeliver
    | TrimStream
    | Drop
    | RemoveConsumers
    | RemoveGroup
)

REQUESTS: Final[dict[int, type[Request]]] = {
    BusType.PUBLISH: Publish,
    BusType.JOIN: Join,
    BusType.READ: Read,
    BusType.OWN: Own,
    BusType.CLAIM: Claim,
    BusType.TOUCH: Touch,
    BusType.ACK: Ack,
    BusType.NACK: Nack,
    BusType.RELEASE: Release,
    BusType.BURY: Bury,
    BusType.STREAMS: ListStreams,
    BusType.GROUPS: ListGroups,
    BusType.CONSUMERS: ListConsumers,
    BusType.PENDING: ListPending,
    BusType.HISTORY: ReadHistory,
    BusType.REWIND: Rewind,
    BusType.REDELIVER: Redeliver,
    BusType.TRIM: TrimStream,
    BusType.DROP: Drop,
    BusType.REMOVE_CONSUMERS: RemoveConsumers,
    BusType.REMOVE_GROUP: RemoveGroup,
}
TYPES: Final = {request: number for number, request in REQUESTS.items()}


class Field(NamedTuple):
    """One field: the key of its cell, and how its value is read and written; None: as it is."""

    key: int
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Encodable] | None = None


def milliseconds(seconds: float, largest: int = LONGEST_TIME_MS) -> int:
    """Seconds as the wire has them: whole milliseconds, rounded up, 0 to `largest`."""
    if not seconds > 0:
        return 0
    if not seconds * 1000 < largest:
        return largest
    nearest = round(seconds * 1000)
    return nearest if nearest / 1000 >= seconds else nearest + 1


def _time(key: int, largest: int = LONGEST_TIME_MS) -> Field:
    return Field(key, lambda value: value / 1000, lambda seconds: milliseconds(seconds, largest))


FIELDS: Final[dict[str, Field]] = {
    "name": Field(keys.NAME),
    "stream": Field(keys.NAME),
    "group": Field(keys.GROUP),
    "consumer": Field(keys.CONSUMER),
    "id": Field(keys.IDS, lambda ids: ids[0], lambda id: [id]),
    "ids": Field(keys.IDS, None, list),
    "events": Field(
        keys.ROWS, lambda rows: list(map(Given._make, rows)), lambda events: list(map(list, events))
    ),
    "durable": Field(keys.DURABLE),
    "number": Field(keys.COUNT),
    "wait": _time(keys.WAIT_MS, LONGEST_WAIT_MS),
    "idle": _time(keys.IDLE_MS),
    "delay": _time(keys.DELAY_MS),
    "error": Field(keys.TEXT),
    "after": Field(keys.AFTER),
    "after_id": Field(keys.AFTER),
    "after_name": Field(keys.AFTER),
    "until": Field(keys.UNTIL),
    "before": Field(keys.BEFORE),
    "max_length": Field(keys.MAX_LENGTH),
    "max_bytes": Field(keys.MAX_BYTES),
    "approximate": Field(keys.APPROXIMATE),
}
# The fields of each type, with their cells.
_FIELDS: Final = {
    kind: tuple((name, FIELDS[name]) for name in kind._fields) for kind in REQUESTS.values()
}


def encode_request(request: Request) -> tuple[int, bytes]:
    """The subcategory and the payload of a request. What it holds has to be in its ranges;
    durations are rounded up to milliseconds, and cut to the largest allowed."""
    kind = type(request)
    defaults = kind._field_defaults
    cells: dict[int, Encodable] = {}
    for (name, (key, _, write)), value in zip(_FIELDS[kind], request, strict=True):
        if name not in defaults or value != defaults[name]:
            cells[key] = value if write is None else write(value)
    return TYPES[kind], encode(cells)


def decode_request(subcategory: int, payload: bytes) -> Request:
    """The request that an event 6/`subcategory` is.

    Raises:
        LbmDecodeError: its type is not one that asks, or its payload is malformed.
    """
    kind = REQUESTS.get(subcategory)
    if kind is None:
        raise LbmDecodeError(f"6/{subcategory} asks for nothing")
    cells = BUS_CELLS[BusType(subcategory)].read(payload)
    defaults = kind._field_defaults
    values = []
    for name, (key, read, _) in _FIELDS[kind]:
        if key not in cells:
            values.append(defaults[name])
        else:
            values.append(cells[key] if read is None else read(cells[key]))
    return kind._make(values)
