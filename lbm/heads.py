"""The head of an item: a major type and its argument, in the shortest form.

Encoding writes and decoding accepts the same table of forms. This file is
the alphabet that encoder, decoder and noise share; it knows no values.
"""

from struct import Struct
from typing import Final

from parley._lbm.errors import LbmEncodeError

# Major types (RFC 8949, section 3.1); tags (6) are not LBM, and 7 has no argument in it.
UINT: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5

# Major type 7: the initial bytes of the only values of it that are LBM.
FALSE: Final = 0xF4
TRUE: Final = 0xF5
NULL: Final = 0xF6
FLOAT: Final = 0xFB

# The only NaN that has an encoding (section 3).
CANONICAL_NAN: Final = bytes.fromhex("7ff8000000000000")

_pack_16 = Struct(">BH").pack
_pack_32 = Struct(">BI").pack
_pack_64 = Struct(">BQ").pack


def encode_head(major: int, n: int) -> bytes:
    """Encode a head of major type 0..5 with an argument of 0..2^64-1, in 1 to 9 bytes.

    Raises LbmEncodeError for a greater argument.
    """
    lead = major << 5
    if n < 24:
        return bytes((lead | n,))
    if n < 0x100:
        return bytes((lead | 24, n))
    if n < 0x10000:
        return _pack_16(lead | 25, n)
    if n < 0x100000000:
        return _pack_32(lead | 26, n)
    if n < 0x10000000000000000:
        return _pack_64(lead | 27, n)
    raise LbmEncodeError(
        f"an integer or a size of {n.bit_length()} bits; at most 64 have an encoding"
    )


# Ready-made heads: nearly every integer and size of an event is below 256.
UINT_HEADS, NEGATIVE_HEADS, BYTES_HEADS, TEXT_HEADS, ARRAY_HEADS, MAP_HEADS = (
    tuple(encode_head(major, n) for n in range(256)) for major in range(6)
)
