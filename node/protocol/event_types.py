"""The types of events that there are after the handshake: their names, and what they carry.

What a type has stands here once (docs/protocol.md sections 6 to 11; of the bus in `bus_types`, of
federation in `federation_types`); whoever reads an event, a node or an auditor, reads it by this
table.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import codes
from parley._node.protocol.bus_types import BUS_CELLS
from parley._node.protocol.cells import (
    ANY,
    BOOL,
    BYTES,
    TEXT,
    TEXT_MAP,
    Cells,
    array,
    exactly,
    uint,
)
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
)
from parley._node.protocol.federation_types import ACCOUNT_CELLS, FEDERATION_CELLS, TUNNEL_CELLS
from parley._node.protocol.limits import LARGEST_CREDIT, NOTES_COUNT, ONCE_KEY_SIZE
from parley._node.protocol.requests import LAST_ASYNC_ID

# In this format of a named event's data it is the value itself, in all others bytes (section 10).
FORMAT_LBM: Final = 16
# Bytes of a topic's epoch (section 18).
EPOCH_SIZE: Final = 8
LAST_FORMAT: Final = 255  # an id is one byte in the byte-exact dialect
# Where an event may stand (section 8).
_CONTROL: Final = range(1)
_FROM_MAIN: Final = range(MAIN_STREAM, LAST_STREAM + 1)
_OPENED: Final = range(MAIN_STREAM + 1, LAST_STREAM + 1)


class EventType(NamedTuple):
    """`cells` is None for what is not LBM: 'no payload', the bytes of Data, and the events of
    Batch. On other streams than `streams` an event of categories 1 and 2, or any on stream 0, is
    a violation."""

    name: str
    cells: Cells | None = None
    streams: range = _FROM_MAIN


def _check_data(cells: Mapping[int, Any]) -> None:
    """The data of a named event is bytes but for format 16, and there where a format is."""
    formatted = keys.FORMAT in cells
    if formatted and cells[keys.FORMAT] == FORMAT_LBM:
        return
    if keys.DATA in cells:
        if type(cells[keys.DATA]) is not bytes:
            kind = type(cells[keys.DATA]).__name__
            raise LbmDecodeError(f"data is a byte string in all formats but 16, not {kind}")
    elif formatted:
        raise LbmDecodeError(f"format {cells[keys.FORMAT]} without data")


def _check_place(cells: Mapping[int, Any]) -> None:
    """An epoch and a number travel together."""
    if (keys.TOPIC_EPOCH in cells) is not (keys.NUMBER in cells):
        alone = "an epoch" if keys.TOPIC_EPOCH in cells else f"number {cells[keys.NUMBER]}"
        raise LbmDecodeError(f"{alone} alone: an epoch and a number go together")


def _check_replaced(cells: Mapping[int, Any]) -> None:
    """Replaced notes have numbers below that of the note that follows them."""
    if keys.REPLACED in cells and cells[keys.REPLACED] >= cells.get(keys.NUMBER, 0):
        replaced, number = cells[keys.REPLACED], cells.get(keys.NUMBER, 0)
        raise LbmDecodeError(f"replaced {replaced} is not below the number {number}")


_CODE: Final = uint(0, LAST_CODE)
_STREAM: Final = uint(0, LAST_STREAM)
_REQUEST: Final = uint(1, LAST_ASYNC_ID)
_WINDOW: Final = uint(1, LARGEST_CREDIT)
# A topic that remembers (section 18): its epoch, and numbers of notes.
_PLACE: Final = {keys.TOPIC_EPOCH: exactly(EPOCH_SIZE), keys.NUMBER: uint()}
_NUMBERED: Final = {keys.NUMBER: uint(1), keys.REPLACED: uint(1)}
_DATA: Final = {keys.DATA: ANY}
_FORMATTED: Final = {keys.DATA: ANY, keys.FORMAT: uint(0, LAST_FORMAT)}

KEY_UPDATE: Final = Cells({keys.EPOCH: uint()}, {keys.REKEY_NUMBER: uint()})
REKEY: Final = Cells({keys.SHARE: BYTES})
RECEIVED: Final = Cells({keys.RECEIVED: uint()})
CLOSE: Final = Cells({keys.CODE: _CODE}, {keys.TEXT: TEXT})

OPEN: Final = Cells({keys.LABEL: TEXT}, {keys.WINDOW: _WINDOW})
WINDOW: Final = Cells(
    {keys.STREAM: _STREAM, keys.CREDIT: uint(0, LARGEST_CREDIT)}, {keys.REQUEST: _REQUEST}
)
RESET: Final = Cells({keys.STREAM: _STREAM, keys.CODE: _CODE}, {keys.TEXT: TEXT})

CALL: Final = Cells(
    {keys.TOPIC: TEXT},
    {
        **_DATA,
        keys.DEADLINE_MS: uint(),
        keys.HEADERS: TEXT_MAP,
        keys.WINDOW: _WINDOW,
        keys.ONCE_KEY: exactly(ONCE_KEY_SIZE),
    },
)
SUBSCRIBE: Final = Cells(
    {keys.TOPIC: TEXT}, {**_DATA, keys.WINDOW: _WINDOW, **_PLACE}, check=_check_place
)
UNSUBSCRIBE: Final = Cells({keys.TOPIC: TEXT})
NOTIFY: Final = Cells(
    {},
    {**_DATA, keys.HEADERS: TEXT_MAP, keys.TOPIC: TEXT, **_NUMBERED},
    check=_check_replaced,
)
RESULT: Final = Cells(
    {keys.CODE: _CODE}, {**_DATA, keys.STREAM: _STREAM, **_PLACE, keys.RECOVERED: BOOL}
)
CANCEL: Final = Cells({keys.REQUEST: _REQUEST})
CHUNK: Final = Cells({}, _DATA)
NOTES: Final = Cells({keys.NOTES: array(NOTES_COUNT)}, _NUMBERED, check=_check_replaced)

EMIT: Final = Cells({keys.NAME: TEXT}, {keys.NAMESPACE: TEXT, **_FORMATTED}, check=_check_data)
_NAMES: Final = {keys.NAME: TEXT, keys.NAMESPACE: TEXT}
REPLY: Final = Cells({}, {**_NAMES, **_FORMATTED}, check=_check_data)
ERROR: Final = Cells({keys.CODE: uint(1, LAST_CODE)}, {keys.TEXT: TEXT})
END: Final = Cells({}, _FORMATTED, check=_check_data, may_be_empty=True)

# By type: category << 8 | subcategory.
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
}
