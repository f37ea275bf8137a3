"""The hash algorithms of the `hash` parameter, HMAC, and HKDF (RFC 5869) with the labels of section
5.

`label` derives every secret, so that no two purposes share bytes. The labels are in `key_schedule`
and `record_protection`. BLAKE3 requires the extra `fast`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

from parley._crypto.errors import WrongSizeError


class HashObject(Protocol):
    """The methods of hashlib's objects that Parley uses."""

    def update(self, data: bytes | memoryview, /) -> object: ...
    def digest(self) -> bytes: ...
    def copy(self) -> "HashObject": ...


@dataclass(frozen=True, slots=True, eq=False)
class HashAlgorithm:
    """A hash algorithm. `size` of the digest and `block_size` of HMAC are in bytes.

    See docs/protocol.md section 5.
    """

    name: str
    size: int
    block_size: int
    new: Callable[[bytes], HashObject]

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data`, `size` bytes."""
        return self.new(data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return HMAC (RFC 2104) of `data` with `key`, `size` bytes."""
        # Two calls of the hash take less time than `hmac.digest`, with and without OpenSSL.
        new, block_size = self.new, self.block_size
        if len(key) > block_size:
            key = new(key).digest()
        key = key.ljust(block_size, b"\x00")
        return new(key.translate(_OUTER) + new(key.translate(_INNER) + data).digest()).digest()


# The bytes XOR the pads of HMAC, as tables of `bytes.translate`.
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


_blake2b_256: Callable[[bytes], HashObject] = partial(hashlib.blake2b, digest_size=32)

SHA256 = HashAlgorithm("sha256", 32, 64, hashlib.sha256)
BLAKE2B_256 = HashAlgorithm("blake2b-256", 32, 128, _blake2b_256)
SHA512 = HashAlgorithm("sha512", 64, 128, hashlib.sha512)

OPTIONAL: tuple[HashAlgorithm, ...] = ()
try:
    from blake3 import blake3
except ImportError:
    pass
else:
    OPTIONAL = (HashAlgorithm("blake3", 32, 64, blake3),)


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
    # All blocks have the same HMAC key, so its two hash states are computed once and copied.
    key = prk if len(prk) <= hash.block_size else hash.digest(prk)
    key = key.ljust(hash.block_size, b"\0")
    inner, outer = hash.new(key.translate(_INNER)), hash.new(key.translate(_OUTER))
    block = b""
    blocks = []
    for number in range(1, -(-size // hash.size) + 1):
        inside, outside = inner.copy(), outer.copy()
        inside.update(block + info + bytes((number,)))
        outside.update(inside.digest())
        block = outside.digest()
        blocks.append(block)
    return b"".join(blocks)[:size]


def label(hash: HashAlgorithm, secret: bytes, label: str, context: bytes, size: int) -> bytes:
    """Return Label(secret, label, context, size) of section 5.

    `context` and the prefixed label have at most 255 bytes, `size` at most 65,535.
    """
    info = _head(label, size, len(context)) + context
    if size > hash.size:
        return expand(hash, secret, info, size)
    # A fast path for outputs of one block: a handshake derives about fifty of them.
    return hash.hmac(secret, info + b"\x01")[:size]


@lru_cache(maxsize=64)  # there are few labels
def _head(label: str, size: int, context_size: int) -> bytes:
    name = _PREFIX + label.encode("ascii")
    sizes = len(name).to_bytes(1, "big"), context_size.to_bytes(1, "big")
    return b"".join((size.to_bytes(2, "big"), sizes[0], name, sizes[1]))
