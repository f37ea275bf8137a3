"""Bytes <-> labelled binary maps: the deterministic CBOR subset of section 3.

Every value has exactly one encoding and decoding refuses all others, so
that each direction is the other's inverse. Encoder and decoder are written by hand: a
general CBOR library accepts more than we do, and could only be held to the rule by
encoding everything a second time.
"""

from parley._lbm.decoder import decode, decode_value, decode_weighed, peek_text
from parley._lbm.encoder import encode, encode_slices, encode_value, is_large
from parley._lbm.heads import encode_head
from parley._lbm.values import Encodable, Encoded, Value

__all__ = [
    "Encodable",
    "Encoded",
    "Value",
    "decode",
    "decode_value",
    "decode_weighed",
    "encode",
    "encode_head",
    "encode_slices",
    "encode_value",
    "is_large",
    "peek_text",
]
