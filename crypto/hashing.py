"""The hash algorithms of the `hash` parameter, with HMAC over each.

An algorithm is one entry of data; `new` is the constructor the hot path calls
directly. BLAKE3 is there where its authors' package is installed: the extra `fast`.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol


class HashObject(Protocol):
    """The part of hashlib's objects that is used here."""

    def update(self, data: bytes | memoryview, /) -> object: ...
    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class HashAlgorithm:
    """One hash: `size` of the digest and `block_size` (HMAC's) in bytes."""

    name: str
    size: int
    block_size: int
    new: Callable[[bytes], HashObject]
    # A name lets OpenSSL do the whole HMAC in one call; a callable is hashed by hmac itself.
    hmac_digest: str | Callable[[bytes], HashObject]

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data`."""
        return self.new(data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return HMAC (RFC 2104) of `data` under `key`, `size` bytes."""
        return hmac.digest(key, data, self.hmac_digest)  # type: ignore[arg-type]  # any callable will do


_blake2b_256: Callable[[bytes], HashObject] = partial(hashlib.blake2b, digest_size=32)

SHA256 = HashAlgorithm("sha256", 32, 64, hashlib.sha256, "sha256")
BLAKE2B_256 = HashAlgorithm("blake2b-256", 32, 128, _blake2b_256, _blake2b_256)
SHA512 = HashAlgorithm("sha512", 64, 128, hashlib.sha512, "sha512")

OPTIONAL: tuple[HashAlgorithm, ...] = ()
try:
    from blake3 import blake3
except ImportError:
    pass
else:
    OPTIONAL = (HashAlgorithm("blake3", 32, 64, blake3, blake3),)
