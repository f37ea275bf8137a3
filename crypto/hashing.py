"""The hash algorithms of the `hash` parameter, with HMAC over each.

Rule: an algorithm is one entry of data; `new` is the constructor the hot path calls
directly. Knows nothing of labels, chains or transcripts.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol


class HashObject(Protocol):
    """The part of hashlib's objects that is used here."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class HashAlgorithm:
    """One hash: `size` of the digest and `block_size` (HMAC's) in bytes."""

    name: str
    size: int
    block_size: int
    new: Callable[[bytes], HashObject]
    hmac: Callable[[bytes, bytes], bytes]  # (key, data): RFC 2104, `size` bytes

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data`."""
        return self.new(data).digest()


# RFC 2104: each byte of the key, exclusive-or ipad or opad.
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def _algorithm(
    name: str, size: int, block_size: int, new: Callable[[bytes], HashObject]
) -> HashAlgorithm:
    def hmac(key: bytes, data: bytes) -> bytes:
        # RFC 2104 as it stands: for short data, as all of ours are, two hashes take half the
        # time of `hmac.digest`, and a handshake makes more than fifty.
        if len(key) > block_size:
            key = new(key).digest()
        key = key.ljust(block_size, b"\0")
        inner = new(key.translate(_INNER) + data).digest()
        return new(key.translate(_OUTER) + inner).digest()

    return HashAlgorithm(name, size, block_size, new, hmac)


SHA256 = _algorithm("sha256", 32, 64, hashlib.sha256)
BLAKE2B_256 = _algorithm("blake2b-256", 32, 128, partial(hashlib.blake2b, digest_size=32))
SHA512 = _algorithm("sha512", 64, 128, hashlib.sha512)
