"""The only source of randomness: the operating system, at each call.

A process and its fork therefore share no state. ML-KEM encapsulation and hedged ML-DSA use
randomness inside OpenSSL, which reseeds after a fork.
"""

from os import urandom as _urandom  # noqa: TID251 - this is the one module that may


def random_bytes(size: int) -> bytes:
    """Return `size` random bytes from the operating system."""
    return _urandom(size)
