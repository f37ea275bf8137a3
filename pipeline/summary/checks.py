"""Keyed checksums of events, for many rows at once: SipHash-1-3 over numbers of 64 bits.

A block of events has the sum of its events' hashes. Sums without a secret could be forged: who may
seal an event or not, as he likes, has a choice of two sizes for each of his events, and with some
hundred choices any sum is a matter of linear equations. The key is drawn once for the tables, and
no node knows it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

KEY_SIZE: Final = 16

Words = npt.NDArray[np.uint64]

_INITIAL: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# Values that the processor's caches hold with all that is made of them.
_CHUNK: Final = 8_192


def siphash(key: bytes, words: Sequence[Words]) -> Words:
    """For each row the hash of the message whose 64-bit words these columns have.

    `key` is 16 bytes; source: Aumasson and Bernstein, SipHash, with one round for each word
    and three at the end.
    """
    count = len(words[0])
    out = np.empty(count, np.uint64)
    for first in range(0, count, _CHUNK):
        piece = slice(first, first + _CHUNK)
        out[piece] = _hashed(key, [word[piece] for word in words])
    return out


def _hashed(key: bytes, words: Sequence[Words]) -> Words:
    low, high = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    keys = (low, high, low, high)
    state: list[Words] = [
        np.full(len(words[0]), start ^ one, np.uint64)
        for start, one in zip(_INITIAL, keys, strict=True)
    ]
    length = np.array([(8 * len(words) % 256) << 56], np.uint64)
    for word in (*words, length):
        state[3] ^= word
        _round(state)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    for _ in range(3):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(state: list[Words]) -> None:
    a, b, c, d = state
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    state[:] = a, b, c, d


def _rotated(value: Words, bits: int) -> Words:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
