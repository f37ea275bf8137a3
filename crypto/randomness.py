"""Randomness: the only place that draws it.

Every byte comes from the operating system at the moment of the call, so no
state of ours can be shared by a process and its fork. ML-KEM encapsulation and
ML-DSA's hedging draw inside OpenSSL, which reseeds after a fork by itself.
"""

from os import urandom as _urandom  # noqa: TID251 - this is the one module that may


def random_bytes(size: int) -> bytes:
    """Return `size` unpredictable bytes from the operating system."""
    return _urandom(size)
