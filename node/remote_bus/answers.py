"""What is answered: 6/1 Answer, a code and what was asked for.

One rule: rows are arrays of fixed shape, one for each record of `node.bus.model`; a reader takes
no other and raises LbmDecodeError. Knows not which request it answers.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from lbm import keys
from lbm.codec import Encodable, encode
from lbm.errors import LbmDecodeError
from node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
)
from node.protocol.bus_types import BUS_CELLS
from node.protocol.codes import BusType, ResultCode
from node.remote_bus.cells import checked_id, milliseconds

Row = list[Any]
T = TypeVar("T")

# What a row takes beside its texts: its head, and a number or the head of a text for each of its
# (at most ten) elements.
_ROW_COST: Final = 9 * 11


class Answer(NamedTuple):
    """The final answer to a request. Of a `code` other than 0 there is a `text` at most."""

    code: int = ResultCode.ACCEPTED
    text: str = ""
    rows: list[Row] | None = None
    ids: list[str] | None = None
    number: int | None = None
    more: bool = False


def encode_answer(answer: Answer) -> bytes:
    """The payload of an answer."""
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
    """The answer that a payload is; raises LbmDecodeError. Its rows are yet to be read."""
    cells = BUS_CELLS[BusType.ANSWER].read(payload)
    return Answer(
        cells[keys.CODE],
        cells.get(keys.TEXT, ""),
        cells.get(keys.ROWS),
        cells.get(keys.IDS),
        cells.get(keys.COUNT),
        cells.get(keys.MORE, False),
    )


def row_cost(row: Row) -> int:
    """Bytes that a row has at most when it is encoded."""
    cost = _ROW_COST
    for element in row:
        if type(element) is str:
            cost += len(element) if element.isascii() else len(element.encode())
    return cost


def that_fit(rows: Iterable[Row], largest: int) -> tuple[list[Row], bool]:
    """The first of the rows, as many as `largest` bytes have room for; whether there are more."""
    taken: list[Row] = []
    for row in rows:
        largest -= row_cost(row)
        if largest < 0:
            return taken, True
        taken.append(row)
    return taken, False


# Rows, both ways.


def delivery_row(delivery: Delivery) -> Row:
    """id, name, data, key or null, version, attempt."""
    return [*delivery.event, delivery.attempt]


def pending_row(info: PendingInfo) -> Row:
    """id, consumer, attempt, idle ms, ms until it is due or null."""
    due = None if info.due_in is None else milliseconds(info.due_in)
    return [info.id, info.consumer, info.attempt, milliseconds(info.idle), due]


def consumer_row(info: ConsumerInfo) -> Row:
    """name, pending, idle ms."""
    return [info.name, info.pending, milliseconds(info.idle)]


def read_rows(rows: list[Row] | None, read: Callable[[Row], T]) -> list[T]:
    """All rows of an answer; raises LbmDecodeError for one of another shape, and for none."""
    if rows is None:
        raise LbmDecodeError("an answer without its rows")
    return [read(row) for row in rows]


def read_published(row: Row) -> Published:
    """id, duplicate."""
    id, duplicate = _shaped(row, _id, _boolean)
    return Published(id, duplicate)


def read_delivery(row: Row) -> Delivery:
    """As `delivery_row`."""
    *event, attempt = _shaped(row, *_STORED, _number)
    return Delivery(StoredEvent(*event), attempt)


def read_stored(row: Row) -> StoredEvent:
    """id, name, data, key or null, version."""
    return StoredEvent(*_shaped(row, *_STORED))


def read_stream(row: Row) -> StreamInfo:
    """name, length, size, first id or null, last id or null."""
    return StreamInfo(*_shaped(row, _text, _number, _number, _or_null(_id), _or_null(_id)))


def read_group(row: Row) -> GroupInfo:
    """stream, name, lag or null, pending, redelivered, dead-lettered, consumers, last id."""
    return GroupInfo(*_shaped(row, _text, _text, _or_null(_number), *[_number] * 4, _id))


def read_consumer(row: Row) -> ConsumerInfo:
    """As `consumer_row`."""
    name, pending, idle = _shaped(row, _text, _number, _number)
    return ConsumerInfo(name, pending, idle / 1000)


def read_pending(row: Row) -> PendingInfo:
    """As `pending_row`."""
    id, consumer, attempt, idle, due = _shaped(row, _id, _text, _number, _number, _or_null(_number))
    return PendingInfo(id, consumer, attempt, idle / 1000, None if due is None else due / 1000)


def read_name(row: Row) -> str:
    """name."""
    (name,) = _shaped(row, _text)
    return str(name)


def _shaped(row: object, *readers: Callable[[object], Any]) -> list[Any]:
    if type(row) is not list or len(row) != len(readers):
        raise LbmDecodeError("a row of another length")
    return [read(element) for read, element in zip(readers, row, strict=True)]


def _text(value: object) -> str:
    if type(value) is not str:
        raise LbmDecodeError("no text where a row has one")
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise LbmDecodeError("no number where a row has one")
    return value


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise LbmDecodeError("no boolean where a row has one")
    return value


def _or_null(read: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if value is None else read(value)


_id: Final = checked_id
_STORED: Final = (_id, _text, _text, _or_null(_text), _number)
