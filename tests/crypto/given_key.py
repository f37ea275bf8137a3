"""A stream key of a given key and iv, as published vectors have them."""

from parley._crypto.ciphers import CipherAlgorithm
from parley._crypto.record_protection import StreamKey
from parley._crypto.registry import all_suites


def given_key(cipher: CipherAlgorithm, key: bytes, iv: bytes) -> StreamKey:
    """Its first event's nonce is `iv`; WrongSizeError if either has not the cipher's size."""
    made = StreamKey(next(all_suites()), bytes(32), 0)
    made.start(cipher, key, iv)
    return made
