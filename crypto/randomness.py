"""The only source of randomness: the operating system, at each call.

So no state is shared by a process and its fork. ML-KEM encapsulation and ML-DSA's hedging draw
inside OpenSSL, which reseeds after a fork.
"""

from os import urandom as _urandom  # noqa: TID251 - this is the one module that may


def random_bytes(size: int) -> bytes:
    """Return `size` unpredictable bytes from the operating system."""
    return _urandom(size)
