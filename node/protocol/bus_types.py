"""The events of the bus: what each of its types carries (docs/protocol.md section 16).

What a name, a word and an id of the bus are is said here once. Knows not what is done
with a request, nor what the rows of an answer are.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from parley._lbm import keys
from parley._node.protocol.cells import BOOL, Cells, Kind, text, uint
from parley._node.protocol.codes import LAST_CODE, BusType

# Characters of a name of an event, of a group and of an idempotency key; of a name to which
# that of its dead letters can be added.
LONGEST_NAME: Final = 256
DEAD: Final = "dead"
LONGEST_EVENT: Final = LONGEST_NAME - len(f".{DEAD}")
# What the name of the stream of all events of an API ends with.
ALL_OF_API: Final = ".*"
# Characters of an id: two u64 and a hyphen.
LONGEST_ID: Final = 41
AFTER_ALL: Final = "$"
# Characters of what Nack and Bury say.
LONGEST_ERROR: Final = 500
# Characters of a node id as text, which goes before a peer's name of a consumer.
NODE_ID: Final = 52
LONGEST_CONSUMER: Final = LONGEST_NAME - NODE_ID - 1
# Of one request: events in a Publish, ids, and what may be asked for.
LARGEST_COUNT: Final = 1_000
# Milliseconds that a Read or History may wait, and that idle and delay may be (about 34 years).
LONGEST_WAIT_MS: Final = 60_000
LONGEST_TIME_MS: Final = 2**40 - 1
# The version of an event that is published; a Trim's bounds.
LARGEST_VERSION: Final = 2**31 - 1
LARGEST_NUMBER: Final = 2**63 - 1

_EVENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)+")
_WORD: Final = re.compile(r"[!-~]+")
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})", re.ASCII)
# Of up to 19 digits each: such numbers are u64 whatever they are.
_USUAL_ID: Final = re.compile(r"(?:0|[1-9][0-9]{0,18})-(?:0|[1-9][0-9]{0,18})", re.ASCII)
_LARGEST: Final = 2**64 - 1
# Names that were looked at and are remembered: each event comes with one of the same few.
_REMEMBERED: Final = 1_024


def is_name(value: object) -> bool:
    """Whether it may name an event: `API.EVENT`."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and _is_name(value)


@lru_cache(_REMEMBERED)
def _is_name(value: str) -> bool:
    if not _EVENT.fullmatch(value):
        return False
    return len(value) <= LONGEST_EVENT or value.endswith(f".{DEAD}")


def is_stream_name(value: str) -> bool:
    """Whether it is the name of an event, or `API.*`."""
    return is_name(f"{value[:-1]}_" if value.endswith(ALL_OF_API) else value)


def is_word(value: object, longest: int = LONGEST_NAME) -> bool:
    """Whether it may name a group or a consumer, or be an idempotency key."""
    return isinstance(value, str) and len(value) <= longest and bool(_WORD.fullmatch(value))


def is_id(value: object) -> bool:
    """Whether it is an id as ids are written: both numbers, no leading zeros."""
    if not isinstance(value, str) or len(value) > LONGEST_ID:
        return False
    if _USUAL_ID.fullmatch(value):
        return True
    found = _ID.fullmatch(value)
    return found is not None and int(found[1]) <= _LARGEST and int(found[2]) <= _LARGEST


def _is_event(row: object) -> bool:
    if type(row) is not list or len(row) != 4:
        return False
    name, body, key, version = row
    return (
        is_name(name)
        and type(body) is str
        and (key is None or is_word(key))
        and type(version) is int
        and 1 <= version <= LARGEST_VERSION
    )


def _few(value: list[Any]) -> bool:
    return 1 <= len(value) <= LARGEST_COUNT


_ID_KIND: Final = Kind("an id", str, is_id)
_IDS_KIND: Final = Kind(
    f"1 to {LARGEST_COUNT} ids", list, lambda ids: _few(ids) and all(map(is_id, ids))
)
_ONE_ID: Final = Kind("one id", list, lambda ids: len(ids) == 1 and is_id(ids[0]))
_POSITION: Final = Kind("a position", str, lambda value: value == AFTER_ALL or is_id(value))
_TIME: Final = uint(0, LONGEST_TIME_MS)
_NUMBER: Final = uint(0, LARGEST_NUMBER)

_NAME: Final = {keys.NAME: Kind("a name of an event", str, is_name)}
_STREAM: Final = {keys.NAME: Kind("a name of a stream", str, is_stream_name)}
_GROUP: Final = {keys.GROUP: Kind("a name of a group", str, is_word)}
_CONSUMER: Final = {
    keys.CONSUMER: Kind("a name of a consumer", str, lambda value: is_word(value, LONGEST_CONSUMER))
}
_PLACE: Final = {**_NAME, **_GROUP, **_CONSUMER}
_IDS: Final = {keys.IDS: _IDS_KIND}
_COUNT: Final = {keys.COUNT: uint(1, LARGEST_COUNT)}
_WAIT: Final = {keys.WAIT_MS: uint(0, LONGEST_WAIT_MS)}
_AFTER: Final = {keys.AFTER: _POSITION}
_AFTER_NAME: Final = {keys.AFTER: text(LONGEST_NAME)}
_SET_ASIDE: Final = {**_PLACE, keys.IDS: _ONE_ID, keys.TEXT: text(LONGEST_ERROR)}
_EVENTS: Final = Kind(
    f"1 to {LARGEST_COUNT} events", list, lambda rows: _few(rows) and all(map(_is_event, rows))
)


def _request(required: Mapping[int, Kind], optional: Mapping[int, Kind] | None = None) -> Cells:
    return Cells(required, optional, may_be_empty=True)


BUS_CELLS: Final[Mapping[BusType, Cells]] = {
    BusType.ANSWER: Cells(
        {keys.CODE: uint(0, LAST_CODE)},
        {
            keys.TEXT: text(LONGEST_ERROR),
            keys.IDS: Kind(
                f"at most {LARGEST_COUNT} ids",
                list,
                lambda ids: len(ids) <= LARGEST_COUNT and all(map(is_id, ids)),
            ),
            keys.ROWS: Kind("rows", list),
            keys.COUNT: uint(),
            keys.MORE: BOOL,
        },
    ),
    BusType.PUBLISH: _request({keys.ROWS: _EVENTS}, {keys.DURABLE: BOOL}),
    BusType.JOIN: _request({**_PLACE, **_AFTER}),
    BusType.READ: _request({**_PLACE, **_COUNT}, _WAIT),
    BusType.OWN: _request({**_PLACE, **_COUNT}),
    BusType.CLAIM: _request({**_PLACE, **_COUNT, keys.IDLE_MS: _TIME}),
    BusType.TOUCH: _request({**_PLACE, **_IDS}),
    BusType.ACK: _request({**_NAME, **_GROUP, **_IDS}),
    BusType.NACK: _request({**_SET_ASIDE, keys.DELAY_MS: _TIME}),
    BusType.RELEASE: _request({**_PLACE, **_IDS}),
    BusType.BURY: _request(_SET_ASIDE),
    BusType.STREAMS: _request({}, _AFTER_NAME),
    BusType.GROUPS: _request(_STREAM, _AFTER_NAME),
    BusType.CONSUMERS: _request({**_STREAM, **_GROUP}, _AFTER_NAME),
    BusType.PENDING: _request({**_STREAM, **_GROUP, **_COUNT, keys.AFTER: _ID_KIND}),
    BusType.HISTORY: _request({**_STREAM, **_COUNT, **_AFTER}, {keys.UNTIL: _ID_KIND, **_WAIT}),
    BusType.REWIND: _request({**_STREAM, **_GROUP, **_AFTER}),
    BusType.REDELIVER: _request({**_STREAM, **_GROUP, **_IDS}),
    BusType.TRIM: _request(
        _STREAM,
        {
            keys.MAX_LENGTH: _NUMBER,
            keys.BEFORE: _ID_KIND,
            keys.MAX_BYTES: _NUMBER,
            keys.APPROXIMATE: BOOL,
        },
    ),
    BusType.DROP: _request({**_STREAM, **_IDS}),
    BusType.REMOVE_CONSUMERS: _request({**_STREAM, **_GROUP, keys.IDLE_MS: _TIME}),
    BusType.REMOVE_GROUP: _request({**_STREAM, **_GROUP}),
}
