"""The table of event types after the handshake, with the schemas of their payloads.

Nodes and auditors validate events with this table (docs/protocol.md sections 6 to 11, 16, 19, 20
and 22).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import codes
from parley._node.protocol.codes import (
    ACCOUNT,
    BUS,
    CONNECTION,
    FEDERATION,
    LAST_CODE,
    LAST_STREAM,
    MAIN_STREAM,
    NAMED,
    SIM,
    STREAM,
    TUNNEL,
    BusType,
)
from parley._node.protocol.limits import LARGEST_CREDIT, NOTES_COUNT, ONCE_KEY_SIZE
from parley._node.protocol.payload_schema import (
    ANY,
    BOOL,
    BYTES,
    TEXT,
    TEXT_MAP,
    FieldType,
    PayloadSchema,
    array,
    exactly,
    text,
    uint,
)
from parley._node.protocol.request_ids import LAST_ASYNC_ID

# Longest name of an event, group or idempotency key, in characters, and of an event to whose name
# the suffix of its dead letters can be added.
LONGEST_NAME: Final = 256
DEAD: Final = "dead"
LONGEST_EVENT: Final = LONGEST_NAME - len(f".{DEAD}")
# Suffix of the stream of all events of an API.
ALL_OF_API: Final = ".*"
# Longest event ID, in characters: two u64 and a hyphen.
LONGEST_ID: Final = 41
AFTER_ALL: Final = "$"
# Longest reason in Nack and Bury, in characters.
LONGEST_ERROR: Final = 500
# Length of a node ID as text, which is the prefix of a remote consumer's name.
NODE_ID: Final = 52
LONGEST_CONSUMER: Final = LONGEST_NAME - NODE_ID - 1
# Most items in one request: events in a Publish, IDs, and requested events.
LARGEST_COUNT: Final = 1_000
# Longest wait of a Read or History, and longest idle time and delay, in milliseconds (34 years).
LONGEST_WAIT_MS: Final = 60_000
LONGEST_TIME_MS: Final = 2**40 - 1
# The version of an event that is published; a Trim's bounds.
LARGEST_VERSION: Final = 2**31 - 1
LARGEST_NUMBER: Final = 2**63 - 1

_EVENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)+")
_WORD: Final = re.compile(r"[!-~]+")
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})", re.ASCII)
# Numbers of up to 19 digits always fit in a u64.
_USUAL_ID: Final = re.compile(r"(?:0|[1-9][0-9]{0,18})-(?:0|[1-9][0-9]{0,18})", re.ASCII)
_LARGEST: Final = 2**64 - 1
# Cache of validated names, because the same few names occur in every event.
_REMEMBERED: Final = 1_024


def is_name(value: object) -> bool:
    """Return whether a value is a valid name of a bus event, `API.EVENT`."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and _is_name(value)


@lru_cache(_REMEMBERED)
def _is_name(value: str) -> bool:
    if not _EVENT.fullmatch(value):
        return False
    return len(value) <= LONGEST_EVENT or value.endswith(f".{DEAD}")


def is_stream_name(value: str) -> bool:
    """Return whether a string is the name of a bus event, or `API.*`."""
    return is_name(f"{value[:-1]}_" if value.endswith(ALL_OF_API) else value)


def is_word(value: object, longest: int = LONGEST_NAME) -> bool:
    """Return whether a value is a valid name of a group or consumer, or a valid idempotency key."""
    return isinstance(value, str) and len(value) <= longest and bool(_WORD.fullmatch(value))


def is_id(value: object) -> bool:
    """Return whether a value is a valid event ID, without leading zeros."""
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


_ID_KIND: Final = FieldType("an id", str, is_id)
_IDS_KIND: Final = FieldType(
    f"1 to {LARGEST_COUNT} ids", list, lambda ids: _few(ids) and all(map(is_id, ids))
)
_ONE_ID: Final = FieldType("one id", list, lambda ids: len(ids) == 1 and is_id(ids[0]))
_POSITION: Final = FieldType("a position", str, lambda value: value == AFTER_ALL or is_id(value))
_TIME: Final = uint(0, LONGEST_TIME_MS)
_NUMBER: Final = uint(0, LARGEST_NUMBER)

_NAME: Final = {keys.NAME: FieldType("a name of an event", str, is_name)}
_BUS_STREAM: Final = {keys.NAME: FieldType("a name of a stream", str, is_stream_name)}
_GROUP: Final = {keys.GROUP: FieldType("a name of a group", str, is_word)}
_CONSUMER: Final = {
    keys.CONSUMER: FieldType(
        "a name of a consumer", str, lambda value: is_word(value, LONGEST_CONSUMER)
    )
}
_CONSUMER_OF_GROUP: Final = {**_NAME, **_GROUP, **_CONSUMER}
_IDS: Final = {keys.IDS: _IDS_KIND}
_COUNT: Final = {keys.COUNT: uint(1, LARGEST_COUNT)}
_WAIT: Final = {keys.WAIT_MS: uint(0, LONGEST_WAIT_MS)}
_AFTER: Final = {keys.AFTER: _POSITION}
_AFTER_NAME: Final = {keys.AFTER: text(LONGEST_NAME)}
_SET_ASIDE: Final = {**_CONSUMER_OF_GROUP, keys.IDS: _ONE_ID, keys.TEXT: text(LONGEST_ERROR)}
_EVENTS: Final = FieldType(
    f"1 to {LARGEST_COUNT} events", list, lambda rows: _few(rows) and all(map(_is_event, rows))
)


def _request(
    required: Mapping[int, FieldType], optional: Mapping[int, FieldType] | None = None
) -> PayloadSchema:
    return PayloadSchema(required, optional, may_be_empty=True)


BUS_CELLS: Final[Mapping[BusType, PayloadSchema]] = {
    BusType.ANSWER: PayloadSchema(
        {keys.CODE: uint(0, LAST_CODE)},
        {
            keys.TEXT: text(LONGEST_ERROR),
            keys.IDS: FieldType(
                f"at most {LARGEST_COUNT} ids",
                list,
                lambda ids: len(ids) <= LARGEST_COUNT and all(map(is_id, ids)),
            ),
            keys.ROWS: FieldType("rows", list),
            keys.COUNT: uint(),
            keys.MORE: BOOL,
        },
    ),
    BusType.PUBLISH: _request({keys.ROWS: _EVENTS}, {keys.DURABLE: BOOL}),
    BusType.JOIN: _request({**_CONSUMER_OF_GROUP, **_AFTER}),
    BusType.READ: _request({**_CONSUMER_OF_GROUP, **_COUNT}, _WAIT),
    BusType.OWN: _request({**_CONSUMER_OF_GROUP, **_COUNT}),
    BusType.CLAIM: _request({**_CONSUMER_OF_GROUP, **_COUNT, keys.IDLE_MS: _TIME}),
    BusType.TOUCH: _request({**_CONSUMER_OF_GROUP, **_IDS}),
    BusType.ACK: _request({**_NAME, **_GROUP, **_IDS}),
    BusType.NACK: _request({**_SET_ASIDE, keys.DELAY_MS: _TIME}),
    BusType.RELEASE: _request({**_CONSUMER_OF_GROUP, **_IDS}),
    BusType.BURY: _request(_SET_ASIDE),
    BusType.STREAMS: _request({}, _AFTER_NAME),
    BusType.GROUPS: _request(_BUS_STREAM, _AFTER_NAME),
    BusType.CONSUMERS: _request({**_BUS_STREAM, **_GROUP}, _AFTER_NAME),
    BusType.PENDING: _request({**_BUS_STREAM, **_GROUP, **_COUNT, keys.AFTER: _ID_KIND}),
    BusType.HISTORY: _request({**_BUS_STREAM, **_COUNT, **_AFTER}, {keys.UNTIL: _ID_KIND, **_WAIT}),
    BusType.REWIND: _request({**_BUS_STREAM, **_GROUP, **_AFTER}),
    BusType.REDELIVER: _request({**_BUS_STREAM, **_GROUP, **_IDS}),
    BusType.TRIM: _request(
        _BUS_STREAM,
        {
            keys.MAX_LENGTH: _NUMBER,
            keys.BEFORE: _ID_KIND,
            keys.MAX_BYTES: _NUMBER,
            keys.APPROXIMATE: BOOL,
        },
    ),
    BusType.DROP: _request({**_BUS_STREAM, **_IDS}),
    BusType.REMOVE_CONSUMERS: _request({**_BUS_STREAM, **_GROUP, keys.IDLE_MS: _TIME}),
    BusType.REMOVE_GROUP: _request({**_BUS_STREAM, **_GROUP}),
}


NODE_ID_SIZE: Final = 32
TRACE_SIZE: Final = 16
# Most IDs in a path, including origin and target.
SHORTEST_PATH: Final = 2
LONGEST_PATH: Final = 8
# Most servers in a federation, and so entries in a Have.
MOST_SERVERS: Final = 1_024
# Longest Cards, in bytes of envelopes, and the shortest envelope.
LARGEST_CARDS: Final = 64 * 1024
_LEAST_ENVELOPE: Final = 64
# Size of a slot, and most in a Have; most statements in an event, and their bytes (section 22).
SLOT_SIZE: Final = 32
MOST_SLOTS: Final = 1_024
MOST_STATEMENTS: Final = 64
LARGEST_STATEMENTS: Final = 64 * 1024
# Most patterns that a node exports, and the longest pattern in characters.
MOST_EXPORTS: Final = 64
LONGEST_EXPORT: Final = 256


def is_node_id(value: object) -> bool:
    return type(value) is bytes and len(value) == NODE_ID_SIZE


def node_ids(least: int, most: int) -> FieldType:
    return FieldType(
        f"an array of {least}..{most} node ids",
        list,
        lambda value: least <= len(value) <= most and all(map(is_node_id, value)),
    )


def _is_have(value: list[Any]) -> bool:
    return len(value) <= MOST_SERVERS and all(
        type(one) is list
        and len(one) == 2
        and is_node_id(one[0])
        and type(one[1]) is int
        and one[1] >= 0
        for one in value
    )


def _is_exports(value: list[Any]) -> bool:
    return len(value) <= MOST_EXPORTS and all(
        type(one) is str and len(one) <= LONGEST_EXPORT for one in value
    )


def _are_bytes(value: list[Any]) -> bool:
    return len(value) <= LARGEST_CARDS // _LEAST_ENVELOPE and all(
        type(one) is bytes for one in value
    )


def _are_slots(value: list[Any]) -> bool:
    return len(value) <= MOST_SLOTS and all(
        type(one) is bytes and len(one) == SLOT_SIZE for one in value
    )


def _are_statements(value: list[Any]) -> bool:
    return (
        1 <= len(value) <= MOST_STATEMENTS
        and all(type(one) is bytes for one in value)
        and sum(map(len, value)) <= LARGEST_STATEMENTS
    )


def _check_dial(cells: Mapping[int, Any]) -> None:
    if (keys.TO in cells) is (keys.PATH in cells):
        has = "both" if keys.TO in cells else "neither"
        raise LbmDecodeError(f"invalid Dial: expected either a node or a path, got {has}")


EXPORTS_KIND: Final = FieldType("an array of patterns", list, _is_exports)
ENVELOPES_KIND: Final = FieldType("an array of envelopes", list, _are_bytes)
_ANSWER: Final = {keys.CODE: uint(0, LAST_CODE)}

LOGIN: Final = PayloadSchema(
    {}, {keys.ENVELOPES: ENVELOPES_KIND, keys.EXPORTS: EXPORTS_KIND}, may_be_empty=True
)
LOGOUT: Final = PayloadSchema({}, may_be_empty=True)
ACCOUNT_ANSWER: Final = PayloadSchema(_ANSWER, {keys.TEXT: TEXT})

TUNNEL_ANSWER: Final = PayloadSchema(
    _ANSWER, {keys.TEXT: TEXT, keys.HOP: uint(0, LONGEST_PATH - 1)}
)
DIAL: Final = PayloadSchema(
    {keys.TRACE: exactly(TRACE_SIZE), keys.DEADLINE_MS: uint()},
    {keys.TO: node_ids(1, 2), keys.PATH: node_ids(SHORTEST_PATH, LONGEST_PATH)},
    check=_check_dial,
)

HAVE: Final = PayloadSchema(
    {keys.HAVE: FieldType("an array of [node id, number]", list, _is_have)},
    {keys.SLOTS: FieldType(f"an array of at most {MOST_SLOTS} slots", list, _are_slots)},
)
CARDS: Final = PayloadSchema({keys.ENVELOPES: ENVELOPES_KIND})
STATEMENTS: Final = PayloadSchema(
    {
        keys.STATEMENTS: FieldType(
            f"1 to {MOST_STATEMENTS} byte strings of at most {LARGEST_STATEMENTS} bytes",
            list,
            _are_statements,
        )
    }
)

ACCOUNT_CELLS: Final[Mapping[int, PayloadSchema]] = {
    codes.LOGIN: LOGIN,
    codes.LOGOUT: LOGOUT,
    codes.ACCOUNT_ANSWER: ACCOUNT_ANSWER,
}
TUNNEL_CELLS: Final[Mapping[int, PayloadSchema]] = {
    codes.TUNNEL_ANSWER: TUNNEL_ANSWER,
    codes.DIAL: DIAL,
}
FEDERATION_CELLS: Final[Mapping[int, PayloadSchema]] = {
    codes.HAVE: HAVE,
    codes.CARDS: CARDS,
    codes.STATEMENTS: STATEMENTS,
}


# In this format the data of a named event is the value itself; in all others, bytes (section 10).
FORMAT_LBM: Final = 16
# Size of a topic's epoch in bytes (section 18).
EPOCH_SIZE: Final = 8
LAST_FORMAT: Final = 255  # the byte-exact dialect has one byte for it
# The streams on which an event is allowed (section 8).
_CONTROL: Final = range(1)
_FROM_MAIN: Final = range(MAIN_STREAM, LAST_STREAM + 1)
_OPENED: Final = range(MAIN_STREAM + 1, LAST_STREAM + 1)


class EventType(NamedTuple):
    """The name, schema and allowed streams of an event type.

    `schema` is None if the payload isn't LBM: events without payload, the bytes of Data, the events
    of a Batch. Events of category 1 or 2 on another stream than allowed, and any other event on
    stream 0, violate the protocol.
    """

    name: str
    cells: PayloadSchema | None = None
    streams: range = _FROM_MAIN


def _check_data(cells: Mapping[int, Any]) -> None:
    """Require bytes unless the format is 16, and require data if there is a format."""
    formatted = keys.FORMAT in cells
    if formatted and cells[keys.FORMAT] == FORMAT_LBM:
        return
    if keys.DATA in cells:
        if type(cells[keys.DATA]) is not bytes:
            kind = type(cells[keys.DATA]).__name__
            raise LbmDecodeError(
                f"data in a format other than 16 must be a byte string, not {kind}"
            )
    elif formatted:
        raise LbmDecodeError(f"format {cells[keys.FORMAT]} without data")


def _check_place(cells: Mapping[int, Any]) -> None:
    if (keys.TOPIC_EPOCH in cells) is not (keys.NUMBER in cells):
        alone = "an epoch" if keys.TOPIC_EPOCH in cells else f"number {cells[keys.NUMBER]}"
        raise LbmDecodeError(f"{alone} alone: an epoch and a number must be sent together")


def _check_replaced(cells: Mapping[int, Any]) -> None:
    if keys.REPLACED in cells and cells[keys.REPLACED] >= cells.get(keys.NUMBER, 0):
        replaced, number = cells[keys.REPLACED], cells.get(keys.NUMBER, 0)
        raise LbmDecodeError(f"replaced {replaced} must be below the number {number}")


_CODE: Final = uint(0, LAST_CODE)
_STREAM: Final = uint(0, LAST_STREAM)
_REQUEST: Final = uint(1, LAST_ASYNC_ID)
_WINDOW: Final = uint(1, LARGEST_CREDIT)
# A topic with history (section 18): its epoch, and the numbers of its notes.
_PLACE: Final = {keys.TOPIC_EPOCH: exactly(EPOCH_SIZE), keys.NUMBER: uint()}
_NUMBERED: Final = {keys.NUMBER: uint(1), keys.REPLACED: uint(1)}
_DATA: Final = {keys.DATA: ANY}
_FORMATTED: Final = {keys.DATA: ANY, keys.FORMAT: uint(0, LAST_FORMAT)}

KEY_UPDATE: Final = PayloadSchema({keys.EPOCH: uint()}, {keys.REKEY_NUMBER: uint()})
REKEY: Final = PayloadSchema({keys.SHARE: BYTES})
RECEIVED: Final = PayloadSchema({keys.RECEIVED: uint()})
CLOSE: Final = PayloadSchema({keys.CODE: _CODE}, {keys.TEXT: TEXT})

OPEN: Final = PayloadSchema({keys.LABEL: TEXT}, {keys.WINDOW: _WINDOW})
WINDOW: Final = PayloadSchema(
    {keys.STREAM: _STREAM, keys.CREDIT: uint(0, LARGEST_CREDIT)}, {keys.REQUEST: _REQUEST}
)
RESET: Final = PayloadSchema({keys.STREAM: _STREAM, keys.CODE: _CODE}, {keys.TEXT: TEXT})

CALL: Final = PayloadSchema(
    {keys.TOPIC: TEXT},
    {
        **_DATA,
        keys.DEADLINE_MS: uint(),
        keys.HEADERS: TEXT_MAP,
        keys.WINDOW: _WINDOW,
        keys.ONCE_KEY: exactly(ONCE_KEY_SIZE),
    },
)
SUBSCRIBE: Final = PayloadSchema(
    {keys.TOPIC: TEXT}, {**_DATA, keys.WINDOW: _WINDOW, **_PLACE}, check=_check_place
)
UNSUBSCRIBE: Final = PayloadSchema({keys.TOPIC: TEXT})
NOTIFY: Final = PayloadSchema(
    {},
    {**_DATA, keys.HEADERS: TEXT_MAP, keys.TOPIC: TEXT, **_NUMBERED},
    check=_check_replaced,
)
RESULT: Final = PayloadSchema(
    {keys.CODE: _CODE}, {**_DATA, keys.STREAM: _STREAM, **_PLACE, keys.RECOVERED: BOOL}
)
CANCEL: Final = PayloadSchema({keys.REQUEST: _REQUEST})
CHUNK: Final = PayloadSchema({}, _DATA)
NOTES: Final = PayloadSchema({keys.NOTES: array(NOTES_COUNT)}, _NUMBERED, check=_check_replaced)

EMIT: Final = PayloadSchema(
    {keys.NAME: TEXT}, {keys.NAMESPACE: TEXT, **_FORMATTED}, check=_check_data
)
_NAMES: Final = {keys.NAME: TEXT, keys.NAMESPACE: TEXT}
REPLY: Final = PayloadSchema({}, {**_NAMES, **_FORMATTED}, check=_check_data)
ERROR: Final = PayloadSchema({keys.CODE: uint(1, LAST_CODE)}, {keys.TEXT: TEXT})
END: Final = PayloadSchema({}, _FORMATTED, check=_check_data, may_be_empty=True)

# By type, which is category << 8 | subcategory.
EVENT_TYPES: Final[Mapping[int, EventType]] = {
    CONNECTION << 8 | codes.PING: EventType("ping", None, _CONTROL),
    CONNECTION << 8 | codes.PONG: EventType("pong", None, _CONTROL),
    CONNECTION << 8 | codes.SEAL: EventType("seal", None, _CONTROL),
    CONNECTION << 8 | codes.KEY_UPDATE: EventType("key-update", KEY_UPDATE, _CONTROL),
    CONNECTION << 8 | codes.REKEY_OFFER: EventType("rekey-offer", REKEY, _CONTROL),
    CONNECTION << 8 | codes.REKEY_ANSWER: EventType("rekey-answer", REKEY, _CONTROL),
    CONNECTION << 8 | codes.CLOSE: EventType("close", CLOSE, _CONTROL),
    CONNECTION << 8 | codes.RECEIVED: EventType("received", RECEIVED, _CONTROL),
    STREAM << 8 | codes.OPEN: EventType("open", OPEN, _OPENED),
    STREAM << 8 | codes.WINDOW: EventType("window", WINDOW, _CONTROL),
    STREAM << 8 | codes.FINISH: EventType("finish", None, _OPENED),
    STREAM << 8 | codes.RESET: EventType("reset", RESET, _CONTROL),
    STREAM << 8 | codes.DATA: EventType("data"),
    STREAM << 8 | codes.BATCH: EventType("batch"),
    SIM << 8 | codes.CALL: EventType("call", CALL),
    SIM << 8 | codes.SUBSCRIBE: EventType("subscribe", SUBSCRIBE),
    SIM << 8 | codes.UNSUBSCRIBE: EventType("unsubscribe", UNSUBSCRIBE),
    SIM << 8 | codes.NOTIFY: EventType("notify", NOTIFY),
    SIM << 8 | codes.RESULT: EventType("result", RESULT),
    SIM << 8 | codes.CANCEL: EventType("cancel", CANCEL),
    SIM << 8 | codes.CHUNK: EventType("chunk", CHUNK),
    SIM << 8 | codes.NOTES: EventType("notes", NOTES),
    NAMED << 8 | codes.EMIT: EventType("emit", EMIT),
    NAMED << 8 | codes.REPLY_EVENT: EventType("reply", REPLY),
    NAMED << 8 | codes.ERROR: EventType("error", ERROR),
    NAMED << 8 | codes.END: EventType("end", END),
    **{
        BUS << 8 | kind: EventType(f"bus-{kind.name.lower().replace('_', '-')}", cells)
        for kind, cells in BUS_CELLS.items()
    },
    ACCOUNT << 8 | codes.LOGIN: EventType("login", ACCOUNT_CELLS[codes.LOGIN]),
    ACCOUNT << 8 | codes.LOGOUT: EventType("logout", ACCOUNT_CELLS[codes.LOGOUT]),
    ACCOUNT << 8 | codes.ACCOUNT_ANSWER: EventType(
        "account-answer", ACCOUNT_CELLS[codes.ACCOUNT_ANSWER]
    ),
    TUNNEL << 8 | codes.TUNNEL_ANSWER: EventType(
        "tunnel-answer", TUNNEL_CELLS[codes.TUNNEL_ANSWER]
    ),
    TUNNEL << 8 | codes.DIAL: EventType("dial", TUNNEL_CELLS[codes.DIAL]),
    FEDERATION << 8 | codes.HAVE: EventType("have", FEDERATION_CELLS[codes.HAVE]),
    FEDERATION << 8 | codes.CARDS: EventType("cards", FEDERATION_CELLS[codes.CARDS]),
    FEDERATION << 8 | codes.STATEMENTS: EventType("statements", FEDERATION_CELLS[codes.STATEMENTS]),
}

_CATEGORIES: Final = {
    CONNECTION: "connection",
    STREAM: "stream",
    SIM: "sim",
    NAMED: "named",
    ACCOUNT: "account",
    BUS: "bus",
    TUNNEL: "tunnel",
    FEDERATION: "federation",
}


def event_name(category: int, subcategory: int) -> str:
    """Return the name of an event type, such as `sim/call`; its numbers if it is unknown."""
    known = EVENT_TYPES.get(category << 8 | subcategory)
    return f"{_CATEGORIES.get(category, category)}/{known.name if known else subcategory}"
