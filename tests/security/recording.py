"""Each use of each AEAD key in this process, written down where the library's objects are made.

Nothing is assumed about the caller that asks for a key or in which file; the registry's ciphers
are replaced by ones that record and then do the real work. Knows no events.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from parley._crypto.ciphers import AeadKey, CipherAlgorithm
from parley._crypto.registry import CIPHERS, Suite

Pair = tuple[bytes, bytes]  # key and nonce


@dataclass(frozen=True, eq=False)
class KeyObject:
    """One object that holds a key, and the nonces it was used with, in their order."""

    cipher: str
    key: bytes
    encrypted: list[bytes] = field(default_factory=list)
    decrypted: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class AeadRecord:
    """All key objects made so far. A decryption counts if it succeeded."""

    objects: list[KeyObject] = field(default_factory=list)

    @property
    def encryptions(self) -> list[Pair]:
        """(key, nonce) of each."""
        return [(made.key, nonce) for made in self.objects for nonce in made.encrypted]

    @property
    def decryptions(self) -> list[Pair]:
        """Likewise."""
        return [(made.key, nonce) for made in self.objects for nonce in made.decrypted]

    def assert_no_key_is_shared(self) -> None:
        """No (key, nonce) encrypts twice; no key, of either direction, has two writers.

        Under each key the nonces are its counter from 0 on, XORed with the iv, one after another.
        A sender that rested goes on with a new object for its key. Two directions, two streams or
        two epochs under one key, or a counter that began anew, would not follow one another so.
        """
        assert self.encryptions, "nothing was recorded"
        assert [pair for pair, count in Counter(self.encryptions).items() if count > 1] == []
        counters = defaultdict[bytes, list[int]](list)
        for key, nonce in self.encryptions:
            counters[key].append(int.from_bytes(nonce, "big"))
        for found in counters.values():
            assert [nonce ^ found[0] for nonce in found] == list(range(len(found)))
        assert [made for made in self.objects if made.encrypted and made.decrypted] == []


class _RecordingKey:
    """The library's object, with each of its `encrypt..` and `decrypt..` methods watched."""

    def __init__(self, real: AeadKey, made: KeyObject) -> None:
        self._real = real
        self._made = made

    def encrypt(self, nonce: bytes, *rest: Any) -> bytes:
        self._made.encrypted.append(bytes(nonce))
        return self._real.encrypt(nonce, *rest)

    def decrypt(self, nonce: bytes, *rest: Any) -> bytes:
        data = self._real.decrypt(nonce, *rest)
        self._made.decrypted.append(bytes(nonce))
        return data

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A way to encrypt that is not recorded here must not pass unseen."""
        raise AssertionError(f"{name} of an AEAD is not recorded: add it here")


class _RecordingCipher:
    """A registry's entry whose keys are recorded; in all else it is the real one."""

    def __init__(self, real: CipherAlgorithm, record: AeadRecord) -> None:
        self._real = real
        self._record = record

    def new(self, key: bytes) -> _RecordingKey:
        made = KeyObject(self._real.name, bytes(key))
        self._record.objects.append(made)
        return _RecordingKey(self._real.new(key), made)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def recorded_aead() -> Iterator[AeadRecord]:
    """Record every key that is made from now on, by either side."""
    record = AeadRecord()

    recording: dict[str, Any] = {n: _RecordingCipher(a, record) for n, a in CIPHERS.items()}
    # Suites that were made before have looked their cipher up already.
    looked_up = property(lambda suite: recording[suite.cipher])
    with patch.dict(CIPHERS, recording), patch.object(Suite, "cipher_algorithm", looked_up):
        yield record
