"""Requests to a bus and their answers, as records and as payloads (docs/protocol.md section 16).

The name of a request's field determines its key in the payload (`FIELDS`). A field with a default
is optional. `name` names an event and therefore its stream; `stream` can also be `API.*`. Durations
are seconds. Rows of answers are arrays of fixed shape, one for each record of `node.bus.model`.

Malformed payloads raise LbmDecodeError, and unknown keys are ignored (section 3). `refusal_of` and
`error_of` convert errors of a bus to codes and back. An unknown outcome is BusUnavailableError,
after which only a publisher with an idempotency key retries.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
)
from parley._node.bus.remote.limits import LONGEST_ERROR, LONGEST_TIME_MS, LONGEST_WAIT_MS
from parley._node.errors import StreamResetError
from parley._node.logs import one_line
from parley._node.protocol.codes import RESULT_SENTENCES, BusType, CloseCode, ResultCode
from parley._node.protocol.event_types import (
    BUS_CELLS,
    LARGEST_VERSION,
    is_id,
    is_name,
    is_stream_name,
    is_word,
)


class EventRow(NamedTuple):
    """An event to be published; `body` is unchecked."""

    name: str
    body: str
    key: str | None
    version: int


class Publish(NamedTuple):
    events: list[EventRow]
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
    """One field: its key, and the functions that convert its value; None leaves it unchanged."""

    key: int
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Encodable] | None = None


def milliseconds(seconds: float, largest: int = LONGEST_TIME_MS) -> int:
    """Convert seconds to whole milliseconds, rounded up, 0 to `largest`."""
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
        keys.ROWS,
        lambda rows: list(map(EventRow._make, rows)),
        lambda events: list(map(list, events)),
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
# The fields of each type.
_FIELDS: Final = {
    kind: tuple((name, FIELDS[name]) for name in kind._fields) for kind in REQUESTS.values()
}


def encode_request(request: Request) -> tuple[int, bytes]:
    """Return the subcategory and payload of a request, whose values must be in range.

    Durations are rounded up to milliseconds and limited to the allowed maximum.
    """
    kind = type(request)
    defaults = kind._field_defaults
    cells: dict[int, Encodable] = {}
    for (name, (key, _, write)), value in zip(_FIELDS[kind], request, strict=True):
        if name not in defaults or value != defaults[name]:
            cells[key] = value if write is None else write(value)
    return TYPES[kind], encode(cells)


def decode_request(subcategory: int, payload: bytes) -> Request:
    """Decode the request of an event 6/`subcategory`.

    Raises:
        LbmDecodeError: it is not a request, or its payload is malformed.
    """
    kind = REQUESTS.get(subcategory)
    if kind is None:
        raise LbmDecodeError(f"unknown request 6/{subcategory}")
    cells, _ = BUS_CELLS[BusType(subcategory)].read_weighed(payload)
    defaults = kind._field_defaults
    values = []
    for name, (key, read, _) in _FIELDS[kind]:
        if key not in cells:
            values.append(defaults[name])
        else:
            values.append(cells[key] if read is None else read(cells[key]))
    return kind._make(values)


Row = list[Any]
T = TypeVar("T")

# The size of a row without its texts: its head, and for each of at most ten elements a number or
# the head of a text.
_ROW_COST: Final = 9 * 11


class Answer(NamedTuple):
    """The final answer to a request. With a `code` other than 0, it has at most a `text`."""

    code: int = ResultCode.ACCEPTED
    text: str = ""
    rows: list[Row] | None = None
    ids: list[str] | None = None
    number: int | None = None
    more: bool = False


def encode_answer(answer: Answer) -> bytes:
    cells: dict[int, Encodable] = {keys.CODE: int(answer.code)}
    if answer.text:
        cells[keys.TEXT] = answer.text
    if answer.ids is not None:
        cells[keys.IDS] = list(answer.ids)
    if answer.rows is not None:
        cells[keys.ROWS] = answer.rows
    if answer.number is not None:
        cells[keys.COUNT] = answer.number
    if answer.more:
        cells[keys.MORE] = True
    return encode(cells)


def decode_answer(payload: bytes) -> Answer:
    """Decode an answer without checking its rows yet; raises LbmDecodeError."""
    cells, _ = BUS_CELLS[BusType.ANSWER].read_weighed(payload)
    return Answer(
        cells[keys.CODE],
        cells.get(keys.TEXT, ""),
        cells.get(keys.ROWS),
        cells.get(keys.IDS),
        cells.get(keys.COUNT),
        cells.get(keys.MORE, False),
    )


def row_cost(row: Row) -> int:
    """Return the maximum size of a row when encoded."""
    cost = _ROW_COST
    for element in row:
        if type(element) is str:
            cost += len(element) if element.isascii() else len(element.encode())
    return cost


def take_fitting(rows: Iterable[Row], largest: int) -> tuple[list[Row], bool]:
    """Return the first rows that fit into `largest` bytes, and whether there are more."""
    taken: list[Row] = []
    for row in rows:
        largest -= row_cost(row)
        if largest < 0:
            return taken, True
        taken.append(row)
    return taken, False


# Rows, in both directions.


def stored_row(event: StoredEvent) -> Row:
    """id, name, data, key or null, version. An invalid key of another program becomes null."""
    id, name, body, key, version = event
    return [id, name, body, key if key is None or is_word(key) else None, version]


def delivery_row(delivery: Delivery) -> Row:
    """id, name, data, key or null, version, attempt."""
    return [*stored_row(delivery.event), delivery.attempt]


def pending_row(info: PendingInfo) -> Row:
    """id, consumer, attempt, idle ms, ms until it is due or null.

    A consumer with an invalid name, given by another program, becomes `?`.
    """
    consumer = info.consumer if not info.consumer or is_word(info.consumer) else "?"
    due = None if info.due_in is None else milliseconds(info.due_in)
    return [info.id, consumer, info.attempt, milliseconds(info.idle), due]


def consumer_row(info: ConsumerInfo) -> Row:
    """name, pending, idle ms."""
    return [info.name, info.pending, milliseconds(info.idle)]


def read_rows(rows: list[Row] | None, read: Callable[[Row], T]) -> list[T]:
    """Parse all rows of an answer; raises LbmDecodeError."""
    if rows is None:
        raise LbmDecodeError("an answer without its rows")
    return list(map(read, rows))


def read_published(row: Row) -> Published:
    """id, duplicate."""
    if (
        type(row) is list and len(row) == 2
    ):  # The same check as `_check_shape`, in a third of the time.
        id, duplicate = row
        if type(duplicate) is bool and type(id) is str and is_id(id):
            return Published(id, duplicate)
    raise LbmDecodeError(f"a row is an id and whether it is a duplicate, not {ascii(row)[:80]}")


def read_delivery(row: Row) -> Delivery:
    """The fields of `delivery_row`."""
    if type(row) is list and len(row) == 6:
        attempt = row[5]
        if type(attempt) is int and attempt >= 0:
            return Delivery(read_stored(row[:5]), attempt)
    raise LbmDecodeError(f"a row is a stored event and its attempt, not {ascii(row)[:80]}")


def read_stored(row: Row) -> StoredEvent:
    """id, name, data, key or null, version."""
    if type(row) is list and len(row) == 5:
        id, name, body, key, version = row
        if (
            is_id(id)
            and is_name(name)
            and type(body) is str
            and (key is None or is_word(key))
            and type(version) is int
            and 0 <= version <= LARGEST_VERSION
        ):
            return StoredEvent(id, name, body, key, version)
    raise LbmDecodeError(
        f"a row is the id, name, data, key or null, and version of an event, not {ascii(row)[:80]}"
    )


def read_stream(row: Row) -> StreamInfo:
    """name, length, size, first id or null, last id or null."""
    info = StreamInfo(*_check_shape(row, _TEXT, _NUMBER, _NUMBER, _TEXT_OR_NULL, _TEXT_OR_NULL))
    _check(is_stream_name(info.name), "name of a stream")
    for id in (info.first_id, info.last_id):
        if id is not None:
            _id(id)
    return info


def read_group(row: Row) -> GroupInfo:
    """stream, name, lag or null, pending, redelivered, dead-lettered, consumers, last id."""
    info = GroupInfo(*_check_shape(row, _TEXT, _TEXT, _NUMBER_OR_NULL, *[_NUMBER] * 4, _TEXT))
    _check(is_stream_name(info.stream), "name of a stream")
    _check(is_word(info.name), "name of a group")
    _id(info.last_id)
    return info


def read_consumer(row: Row) -> ConsumerInfo:
    """The fields of `consumer_row`."""
    name, pending, idle = _check_shape(row, _TEXT, _NUMBER, _NUMBER)
    _check(is_word(name), "name of a consumer")
    return ConsumerInfo(name, pending, idle / 1000)


def read_pending(row: Row) -> PendingInfo:
    """The fields of `pending_row`."""
    shape = (_TEXT, _TEXT, _NUMBER, _NUMBER, _NUMBER_OR_NULL)
    id, consumer, attempt, idle, due = _check_shape(row, *shape)
    _check(not consumer or is_word(consumer), "name of a consumer")
    due_in = None if due is None else due / 1000
    return PendingInfo(_id(id), consumer, attempt, idle / 1000, due_in)


def read_name(row: Row) -> str:
    """name."""
    name = str(_check_shape(row, _TEXT)[0])
    _check(is_word(name), "name of a consumer")
    return name


_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_TEXT_OR_NULL: Final = (str, type(None))
_NUMBER_OR_NULL: Final = (int, type(None))


def _check_shape(row: object, *shape: tuple[type, ...]) -> list[Any]:
    """Check the number of elements and their types; numbers must not be negative."""
    if type(row) is not list or len(row) != len(shape):
        given = f"{len(row)} elements" if type(row) is list else type(row).__name__
        raise LbmDecodeError(f"a row has {len(shape)} elements, not {given}")
    for element, types in zip(row, shape, strict=True):
        if type(element) not in types:
            raise LbmDecodeError(f"a row has a {type(element).__name__} in the wrong place")
        if type(element) is int and element < 0:
            raise LbmDecodeError(f"a row has the negative number {element}")
    return row


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise LbmDecodeError(f"a row has something else in place of a {what}")


def _id(text: str) -> str:
    """Check an ID in its canonical form (both numbers, no leading zeros)."""
    if not is_id(text):
        raise LbmDecodeError(f"a row has {ascii(text)[:40]} in place of an event's id")
    return text


# Errors, in both directions.

# The code of each error of a store; the first match applies.
CODES: Final[tuple[tuple[type[BusError], ResultCode], ...]] = (
    (InvalidEventError, ResultCode.INVALID_EVENT),
    (BusUnavailableError, ResultCode.DEADLINE_EXCEEDED),
    (BusClosedError, ResultCode.DEADLINE_EXCEEDED),
    (BusBusyError, ResultCode.OVERLOADED),
    (BusRefusedError, ResultCode.NOT_AUTHORISED),
    (BusFullError, ResultCode.STORE_FULL),
    (BusDamagedError, ResultCode.STORE_DAMAGED),
)
# The error of each code. For other codes the outcome is unknown: BusUnavailableError.
_ERRORS: Final[dict[int, type[BusError]]] = {
    ResultCode.OVERLOADED: BusBusyError,
    ResultCode.NOT_AUTHORISED: BusRefusedError,
    ResultCode.PAYLOAD_TOO_LARGE: InvalidEventError,
    ResultCode.MALFORMED: InvalidEventError,
    ResultCode.INVALID_EVENT: InvalidEventError,
    ResultCode.STORE_FULL: BusFullError,
    ResultCode.STORE_DAMAGED: BusDamagedError,
}
_TEXTS: Final[dict[int, str]] = {
    ResultCode.NOT_AUTHORISED: "the node does not allow this request",
    ResultCode.OVERLOADED: "the node is overloaded; try again later",
    ResultCode.HANDLER_FAILED: "the request failed on the node; see its log",
    ResultCode.DEADLINE_EXCEEDED: "the node's store did not answer",
}
_RESETS: Final[dict[int, tuple[type[BusError], str]]] = {
    CloseCode.NO_HANDLER: (BusRefusedError, "the node does not offer a bus"),
    CloseCode.REFUSED: (BusUnavailableError, "the node is closing"),
    CloseCode.NOT_AUTHORISED: (BusRefusedError, "the node does not allow this request"),
    CloseCode.WRONG_SUPERCATEGORY: (BusRefusedError, "the node does not allow this request"),
    CloseCode.OVERLOADED: (BusBusyError, "the node is overloaded; try again later"),
}


def refusal_of(error: BusError) -> Answer:
    """Return the answer for an error. Its text is sent only for an invalid event."""
    for kind, code in CODES:
        if isinstance(error, kind):
            is_sent = code is ResultCode.INVALID_EVENT
            return Answer(code, one_line(str(error))[:LONGEST_ERROR] if is_sent else "")
    return Answer(ResultCode.HANDLER_FAILED)


def error_of(answer: Answer) -> BusError:
    """Return the error for an answer with a code other than 0."""
    code = answer.code
    text = answer.text or _TEXTS.get(code) or RESULT_SENTENCES.get(code, "refused")
    return _ERRORS.get(code, BusUnavailableError)(f"{text} (code {code})")


def reset_error(error: StreamResetError) -> BusError:
    """Return the error of a request whose stream was reset."""
    kind, text = _RESETS.get(error.code, (BusUnavailableError, str(error)))
    return kind(text)
