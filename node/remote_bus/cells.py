"""The cells of the bus's requests: each field's key, and its value both ways.

One rule: what a cell may hold is said in `node.protocol.bus_types`; here is what it stands for,
and how that is written. Knows no request as a whole.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, Final, NamedTuple

from lbm import keys
from lbm.codec import Encodable
from lbm.errors import LbmDecodeError
from node.protocol.bus_types import is_id
from node.remote_bus.limits import LONGEST_TIME_MS, LONGEST_WAIT_MS
from node.remote_bus.requests import Given


class Field(NamedTuple):
    """One field: `read` is given the value of its cell."""

    key: int
    read: Callable[[Any], Any]
    write: Callable[[Any], Encodable]


def milliseconds(seconds: float, largest: int = LONGEST_TIME_MS) -> int:
    """Seconds as the wire has them: whole milliseconds, rounded up, 0 to `largest`."""
    if not seconds > 0:
        return 0
    return ceil(seconds * 1000) if seconds * 1000 < largest else largest


def checked_id(value: object) -> str:
    """An id, written as ids are (both numbers, no leading zeros).

    Raises:
        LbmDecodeError: it is none.
    """
    if isinstance(value, str) and is_id(value):
        return value
    raise LbmDecodeError("no id of an event")


def _as_it_is(value: Any) -> Any:
    return value


def _plain(key: int) -> Field:
    return Field(key, _as_it_is, _as_it_is)


def _time(key: int, largest: int = LONGEST_TIME_MS) -> Field:
    return Field(key, lambda value: value / 1000, lambda seconds: milliseconds(seconds, largest))


FIELDS: Final[dict[str, Field]] = {
    "name": _plain(keys.NAME),
    "stream": _plain(keys.NAME),
    "group": _plain(keys.GROUP),
    "consumer": _plain(keys.CONSUMER),
    "id": Field(keys.IDS, lambda ids: ids[0], lambda id: [id]),
    "ids": Field(keys.IDS, _as_it_is, list),
    "events": Field(
        keys.ROWS, lambda rows: list(map(Given._make, rows)), lambda events: list(map(list, events))
    ),
    "durable": _plain(keys.DURABLE),
    "number": _plain(keys.COUNT),
    "wait": _time(keys.WAIT_MS, LONGEST_WAIT_MS),
    "idle": _time(keys.IDLE_MS),
    "delay": _time(keys.DELAY_MS),
    "error": _plain(keys.TEXT),
    "after": _plain(keys.AFTER),
    "after_id": _plain(keys.AFTER),
    "after_name": _plain(keys.AFTER),
    "until": _plain(keys.UNTIL),
    "before": _plain(keys.BEFORE),
    "max_length": _plain(keys.MAX_LENGTH),
    "max_bytes": _plain(keys.MAX_BYTES),
    "approximate": _plain(keys.APPROXIMATE),
}
