"""Stream keys with a given key and IV, as in published vectors."""

from parley._crypto.ciphers import CipherAlgorithm
from parley._crypto.record_protection import StreamKey
from parley._crypto.registry import all_suites


def given_key(cipher: CipherAlgorithm, key: bytes, iv: bytes) -> StreamKey:
    """Return a stream key whose first nonce is `iv`; raises WrongSizeError for a wrong size."""
    made = StreamKey(next(all_suites()), bytes(32), 0)
    made.start(cipher, key, iv)
    return made
