"""The bus's requests as payloads, and back (docs/protocol.md section 16).

One rule: each request has one encoding, and a payload that is not of its type raises
LbmDecodeError, whatever its bytes. Unknown cells are ignored, as everywhere (section 3). What is
answered is in `answers.py`.
"""

from typing import Final

from lbm.codec import Encodable, encode
from lbm.errors import LbmDecodeError
from node.protocol.bus_types import BUS_CELLS
from node.protocol.codes import BusType
from node.remote_bus.cells import FIELDS
from node.remote_bus.requests import REQUESTS, TYPES, Request

# Of each type its fields, with their cells and what stands for an absent one.
_FIELDS: Final = {
    kind: tuple((name, FIELDS[name]) for name in kind._fields) for kind in REQUESTS.values()
}


def encode_request(request: Request) -> tuple[int, bytes]:
    """The subcategory and the payload of a request. What it holds has to be in its ranges;
    durations are rounded up to milliseconds, and cut to what may be."""
    kind = type(request)
    defaults = kind._field_defaults
    cells: dict[int, Encodable] = {}
    for (name, field), value in zip(_FIELDS[kind], request, strict=True):
        if name not in defaults or value != defaults[name]:
            cells[field.key] = field.write(value)
    return TYPES[kind], encode(cells)


def decode_request(subcategory: int, payload: bytes) -> Request:
    """The request that an event 6/`subcategory` is.

    Raises:
        LbmDecodeError: it is of no type that asks, or its payload is malformed.
    """
    kind = REQUESTS.get(subcategory)
    if kind is None:
        raise LbmDecodeError(f"6/{subcategory} asks for nothing")
    cells = BUS_CELLS[BusType(subcategory)].read(payload)
    defaults = kind._field_defaults
    values = [
        field.read(cells[field.key]) if field.key in cells else defaults[name]
        for name, field in _FIELDS[kind]
    ]
    return kind._make(values)
