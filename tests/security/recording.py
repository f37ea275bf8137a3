"""A record of each use of each AEAD key in this process, taken where the library's objects are
made.

It makes no assumptions about the callers: the registry's ciphers are replaced by ciphers that
record and then do the real work. This module doesn't depend on events.
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
    """One key object, and the nonces it was used with, in order."""

    cipher: str
    key: bytes
    encrypted: list[bytes] = field(default_factory=list)
    decrypted: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class AeadRecord:
    """All key objects created so far. A decryption counts if it succeeded."""

    objects: list[KeyObject] = field(default_factory=list)

    @property
    def encryptions(self) -> list[Pair]:
        """The (key, nonce) of each encryption."""
        return [(made.key, nonce) for made in self.objects for nonce in made.encrypted]

    @property
    def decryptions(self) -> list[Pair]:
        """The (key, nonce) of each decryption."""
        return [(made.key, nonce) for made in self.objects for nonce in made.decrypted]

    def assert_no_key_is_shared(self) -> None:
        """Check that no (key, nonce) encrypts twice and no key has two writers, in either
        direction.

        Under each key, the nonces must be its counter from 0 on, XORed with the iv, without gaps. A
        sender that was idle continues with a new object for its key. Two directions, streams or
        epochs under one key, or a restarted counter, would break this sequence.
        """
        assert self.encryptions, "no event was recorded"
        assert [pair for pair, count in Counter(self.encryptions).items() if count > 1] == []
        counters = defaultdict[bytes, list[int]](list)
        for key, nonce in self.encryptions:
            counters[key].append(int.from_bytes(nonce, "big"))
        for found in counters.values():
            assert [nonce ^ found[0] for nonce in found] == list(range(len(found)))
        assert [made for made in self.objects if made.encrypted and made.decrypted] == []


class _RecordingKey:
    """The library's object, with all `encrypt..` and `decrypt..` methods recorded."""

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
        """Reject any encryption method that is not recorded here."""
        raise AssertionError(f"{name} of an AEAD is not recorded: add it here")


class _RecordingCipher:
    """A registry entry whose keys are recorded; otherwise it behaves like the real one."""

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
    """Record every key that either side creates from now on."""
    record = AeadRecord()

    recording: dict[str, Any] = {n: _RecordingCipher(a, record) for n, a in CIPHERS.items()}
    # Existing suites have already looked up their cipher.
    looked_up = property(lambda suite: recording[suite.cipher])
    with patch.dict(CIPHERS, recording), patch.object(Suite, "cipher_algorithm", looked_up):
        yield record
