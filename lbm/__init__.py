"""Labelled binary maps: the payloads of every event, a strict subset of CBOR.

One value has one encoding, and decoding refuses all others. The package imports
nothing of the others; key numbers are in `lbm.keys`, typed reading in `lbm.cells`.
"""

from lbm.cells import (
    REQUIRED,
    Required,
    read_array,
    read_bool,
    read_bytes,
    read_map,
    read_text,
    read_text_map,
    read_uint,
)
from lbm.codec import (
    Encodable,
    Value,
    decode,
    decode_value,
    encode,
    encode_head,
    encode_value,
)
from lbm.errors import LbmDecodeError, LbmEncodeError, LbmError
from lbm.limits import DEFAULT_LIMITS, HANDSHAKE_LIMITS, LbmLimits
from lbm.noise import NO_PADDING, PADME, Padding, pad, parse_padding

__all__ = [
    "DEFAULT_LIMITS",
    "HANDSHAKE_LIMITS",
    "NO_PADDING",
    "PADME",
    "REQUIRED",
    "Encodable",
    "LbmDecodeError",
    "LbmEncodeError",
    "LbmError",
    "LbmLimits",
    "Padding",
    "Required",
    "Value",
    "decode",
    "decode_value",
    "encode",
    "encode_head",
    "encode_value",
    "pad",
    "parse_padding",
    "read_array",
    "read_bool",
    "read_bytes",
    "read_map",
    "read_text",
    "read_text_map",
    "read_uint",
]
