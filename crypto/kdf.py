"""HKDF (RFC 5869) and the labelled derivation of section 5.

Every derived secret goes through `label`, so no two purposes can ever share
bytes. The labels
stand in `schedule`, `streamkeys` and `chain`.
"""

import hmac
from functools import lru_cache

from parley._crypto.errors import WrongSizeError
from parley._crypto.hashing import HashAlgorithm

_PREFIX = b"parley1 "
_MAX_BLOCKS = 255  # RFC 5869, section 2.3: the block number is one byte


def extract(hash: HashAlgorithm, salt: bytes, ikm: bytes) -> bytes:
    """Return HKDF-Extract, `hash.size` bytes."""
    return hash.hmac(salt, ikm)


def expand(hash: HashAlgorithm, prk: bytes, info: bytes, size: int) -> bytes:
    """Return HKDF-Expand, `size` bytes; WrongSizeError above 255 digests."""
    if size <= hash.size:
        return hash.hmac(prk, info + b"\x01")[:size]
    if size > _MAX_BLOCKS * hash.size:
        raise WrongSizeError(f"HKDF-Expand with {hash.name} gives at most {_MAX_BLOCKS} digests")
    hmac = hash.hmac
    block = b""
    blocks = []
    for number in range(1, -(-size // hash.size) + 1):
        block = hmac(prk, block + info + bytes((number,)))
        blocks.append(block)
    return b"".join(blocks)[:size]


def label(hash: HashAlgorithm, secret: bytes, label: str, context: bytes, size: int) -> bytes:
    """Return Label(secret, label, context, size) of section 5.

    `context` and the prefixed label have at most 255 bytes, `size` at most 65,535.
    """
    info = _head(label, size, len(context)) + context
    if size > hash.size:
        return expand(hash, secret, info, size)
    # One block, in one step: both sides of a connection make about fifty of these.
    block = hmac.digest(secret, info + b"\x01", hash.hmac_digest)  # type: ignore[arg-type]  # any callable will do
    return block[:size]


@lru_cache(maxsize=64)  # there are few labels
def _head(label: str, size: int, context_size: int) -> bytes:
    name = _PREFIX + label.encode("ascii")
    sizes = len(name).to_bytes(1, "big"), context_size.to_bytes(1, "big")
    return b"".join((size.to_bytes(2, "big"), sizes[0], name, sizes[1]))
