"""The cells of the bus's requests: each field's key, and its value both ways.

One rule: a reader takes exactly what section 16 allows, and raises LbmDecodeError for all else.
Knows no request as a whole.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias

from lbm import keys
from lbm.cells import read_array, read_bool, read_text, read_uint
from lbm.codec import Encodable, Value
from lbm.errors import LbmDecodeError
from lbm.keys import key_name
from node.bus.errors import InvalidEventError
from node.bus.ids import AFTER_ALL, parse_id
from node.bus.names import LONGEST_NAME, check_key, check_word, split_name
from node.bus.schemas import ALL_OF_API
from node.bus.wire.limits import (
    LARGEST_COUNT,
    LARGEST_NUMBER,
    LARGEST_VERSION,
    LONGEST_CONSUMER,
    LONGEST_ERROR,
    LONGEST_ID,
    LONGEST_TIME_MS,
    LONGEST_WAIT_MS,
)
from node.bus.wire.requests import Given

Cells: TypeAlias = Mapping[int, Value]


class Field(NamedTuple):
    """One field: `read` is given the cells, and `key` among them; it raises LbmDecodeError."""

    key: int
    read: Callable[[Cells, int], Any]
    write: Callable[[Any], Encodable]


def milliseconds(seconds: float, largest: int = LONGEST_TIME_MS) -> int:
    """Seconds as the wire has them: whole milliseconds, rounded up, 0 to `largest`."""
    if not seconds > 0:
        return 0
    return ceil(seconds * 1000) if seconds * 1000 < largest else largest


def checked_id(text: object) -> str:
    """An id, written as ids are (both numbers, no leading zeros).

    Raises:
        LbmDecodeError: it is none.
    """
    if isinstance(text, str) and len(text) <= LONGEST_ID and "-" in text:
        try:
            parse_id(text)
        except InvalidEventError:
            pass
        else:
            return text
    raise LbmDecodeError("no id of an event")


def _as_it_is(value: Any) -> Encodable:
    return value  # type: ignore[no-any-return]  # of the field's own type


def _malformed(check: Callable[[Any], object], value: Any) -> None:
    try:
        check(value)
    except InvalidEventError as error:
        raise LbmDecodeError(str(error)) from error


def _read_name(cells: Cells, key: int) -> str:
    name = read_text(cells, key)
    _malformed(split_name, name)
    return name


def _read_stream(cells: Cells, key: int) -> str:
    name = read_text(cells, key)
    _malformed(split_name, f"{name[:-1]}_" if name.endswith(ALL_OF_API) else name)
    return name


def _word_reader(longest: int) -> Callable[[Cells, int], str]:
    def read(cells: Cells, key: int) -> str:
        word = read_text(cells, key)
        _malformed(lambda word: check_word(key_name(key), word), word)
        if len(word) > longest:
            raise LbmDecodeError(f"cell {key_name(key)} has more than {longest} characters")
        return word

    return read


def _read_id(cells: Cells, key: int) -> str:
    return checked_id(read_text(cells, key))


def _read_position(cells: Cells, key: int) -> str:
    return AFTER_ALL if cells.get(key) == AFTER_ALL else _read_id(cells, key)


def _read_one_id(cells: Cells, key: int) -> str:
    ids = _read_ids(cells, key)
    if len(ids) != 1:
        raise LbmDecodeError(f"cell {key_name(key)} has more than one id")
    return ids[0]


def _read_ids(cells: Cells, key: int) -> list[str]:
    return [checked_id(id) for id in _few(cells, key)]


def _few(cells: Cells, key: int) -> list[Any]:
    elements = read_array(cells, key)
    if not 1 <= len(elements) <= LARGEST_COUNT:
        raise LbmDecodeError(f"cell {key_name(key)} has not 1..{LARGEST_COUNT} elements")
    return elements


def _text_reader(longest: int) -> Callable[[Cells, int], str]:
    def read(cells: Cells, key: int) -> str:
        text = read_text(cells, key)
        if len(text) > longest:
            raise LbmDecodeError(f"cell {key_name(key)} has more than {longest} characters")
        return text

    return read


def _number_reader(largest: int, least: int = 0) -> Callable[[Cells, int], int]:
    return lambda cells, key: read_uint(cells, key, minimum=least, maximum=largest)


def _time(key: int, largest: int) -> Field:
    return Field(
        key,
        lambda cells, key: read_uint(cells, key, maximum=largest) / 1000,
        lambda seconds: milliseconds(seconds, largest),
    )


def _read_events(cells: Cells, key: int) -> list[Given]:
    return [_read_event(row) for row in _few(cells, key)]


def _read_event(row: object) -> Given:
    if type(row) is not list or len(row) != 4:
        raise LbmDecodeError("an event is an array of four")
    name, body, event_key, version = row
    _malformed(split_name, name)
    if event_key is not None:
        _malformed(check_key, event_key)
    if type(body) is not str:
        raise LbmDecodeError("the data of an event is text")
    if type(version) is not int or not 1 <= version <= LARGEST_VERSION:
        raise LbmDecodeError("no version of an event")
    return Given(name, body, event_key, version)


def _write_one(id: str) -> Encodable:
    return [id]


def _write_events(events: list[Given]) -> Encodable:
    return [list(event) for event in events]


FIELDS: Final[dict[str, Field]] = {
    "name": Field(keys.NAME, _read_name, _as_it_is),
    "stream": Field(keys.NAME, _read_stream, _as_it_is),
    "group": Field(keys.GROUP, _word_reader(LONGEST_NAME), _as_it_is),
    "consumer": Field(keys.CONSUMER, _word_reader(LONGEST_CONSUMER), _as_it_is),
    "id": Field(keys.IDS, _read_one_id, _write_one),
    "ids": Field(keys.IDS, _read_ids, list),
    "events": Field(keys.ROWS, _read_events, _write_events),
    "durable": Field(keys.DURABLE, read_bool, _as_it_is),
    "number": Field(keys.COUNT, _number_reader(LARGEST_COUNT, 1), _as_it_is),
    "wait": _time(keys.WAIT_MS, LONGEST_WAIT_MS),
    "idle": _time(keys.IDLE_MS, LONGEST_TIME_MS),
    "delay": _time(keys.DELAY_MS, LONGEST_TIME_MS),
    "error": Field(keys.TEXT, _text_reader(LONGEST_ERROR), _as_it_is),
    "after": Field(keys.AFTER, _read_position, _as_it_is),
    "after_id": Field(keys.AFTER, _read_id, _as_it_is),
    "after_name": Field(keys.AFTER, _text_reader(LONGEST_NAME), _as_it_is),
    "until": Field(keys.UNTIL, _read_id, _as_it_is),
    "before": Field(keys.BEFORE, _read_id, _as_it_is),
    "max_length": Field(keys.MAX_LENGTH, _number_reader(LARGEST_NUMBER), _as_it_is),
    "max_bytes": Field(keys.MAX_BYTES, _number_reader(LARGEST_NUMBER), _as_it_is),
    "approximate": Field(keys.APPROXIMATE, read_bool, _as_it_is),
}
