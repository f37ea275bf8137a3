"""A record of the key exchanges of this process, and a search for their secrets in memory.

Secrets are stored only veiled (every bit inverted), so that a search of the whole memory doesn't
find the record itself. This module doesn't depend on the protocol.
"""

import gc
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from parley._crypto.key_exchange import EphemeralKey, KexAlgorithm
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import KEX, Suite
from tests.alone import alive

_VEIL: Final = bytes(255 - byte for byte in range(256))
_TYPES: Final = frozenset({bytes, bytearray, memoryview, str, int})
_PIECE: Final = 32  # size of the private parts (X25519's scalar, ML-KEM's d and z)


# The shortest text that can contain a secret in hexadecimal digits.
_LEAST_TEXT: Final = 2 * _PIECE
_DIGITS: Final = re.compile(r"[0-9a-f]{64}")


def veiled(secret: bytes) -> bytes:
    """Invert every bit, which veils a secret and unveils a veiled one."""
    return secret.translate(_VEIL)


@dataclass
class Exchanges:
    """All private parts, 32 bytes each, and the shared secrets of both sides; veiled."""

    private: list[bytes] = field(default_factory=list)
    shared: list[bytes] = field(default_factory=list)

    @property
    def agreed(self) -> list[bytes]:
        """Each shared secret once, although both sides of an exchange computed it."""
        return list(dict.fromkeys(self.shared))

    @property
    def hidden(self) -> dict[str, bytes]:
        """Return all secrets by name, for `in_memory`."""
        private = {f"private {number}": part for number, part in enumerate(self.private)}
        return private | {f"shared {number}": part for number, part in enumerate(self.agreed)}


class _WatchedKey:
    """An offerer's key whose shared secret is recorded."""

    def __init__(self, real: EphemeralKey, seen: Exchanges) -> None:
        self._real = real
        self._seen = seen

    def derive(self, share: bytes) -> bytes:
        secret = self._real.derive(share)
        self._seen.shared.append(veiled(secret))
        return secret

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _WatchedKex:
    """A registry entry whose exchanges are recorded; otherwise it behaves like the real one."""

    def __init__(self, real: KexAlgorithm, seen: Exchanges) -> None:
        self._real = real
        self._seen = seen

    def generate(self) -> _WatchedKey:
        return _WatchedKey(self._real.generate(), self._seen)

    def respond(self, share: bytes) -> tuple[bytes, bytes]:
        answer, secret = self._real.respond(share)
        self._seen.shared.append(veiled(secret))
        return answer, secret

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def watched_exchanges() -> Iterator[Exchanges]:
    """Record every exchange from now on."""
    seen = Exchanges()

    def draw(size: int) -> bytes:
        private = random_bytes(size)
        seen.private += [veiled(private[at : at + _PIECE]) for at in range(0, size, _PIECE)]
        return private

    watching: dict[str, Any] = {name: _WatchedKex(kex, seen) for name, kex in KEX.items()}
    # Existing suites have already looked up their exchange.
    looked_up = property(lambda suite: watching[suite.kex])
    with (
        patch.dict(KEX, watching),
        patch.object(Suite, "kex_algorithm", looked_up),
        patch("parley._crypto.key_exchange.random_bytes", draw),
    ):
        yield seen


# The search.


def in_memory(hidden: Mapping[str, bytes]) -> set[str]:
    """Return which of these veiled secrets exist in any live object.

    They are found as part of an object, as a number, or as hexadecimal digits.
    """
    sought = {name: veiled(secret) for name, secret in hidden.items()}
    texts = {name: secret.hex() for name, secret in sought.items()}
    found: set[str] = set()
    for thing in _held({id(sought), id(texts)}, _TYPES):
        if isinstance(thing, str):
            if len(thing) >= _LEAST_TEXT and _DIGITS.search(thing):
                found.update(name for name, text in texts.items() if text in thing)
            continue
        data = _as_bytes(thing)
        if len(data) >= _PIECE:
            found.update(name for name, secret in sought.items() if secret in data)
    return found


def private_keys() -> int:
    """Return the number of live key objects of key exchanges."""
    types = {type(X25519PrivateKey.generate()), type(MLKEM768PrivateKey.generate())}
    return len(_held(set(), types))


def _held(without: set[int], types: Collection[type]) -> list[Any]:
    """Return all objects of these types that any container, closure or object refers to."""
    holders = [thing for thing in alive() if id(thing) not in without]
    # The garbage collector doesn't track tuples and dicts that contain only atoms.
    looked_for = {*types, tuple, dict}
    found: dict[int, Any] = {}
    while holders:
        held = gc.get_referents(*holders)
        new = {id(t): t for t in held if type(t) in looked_for}
        found.update((place, thing) for place, thing in new.items() if type(thing) in types)
        holders = [
            thing
            for place, thing in new.items()
            if type(thing) in (tuple, dict) and not gc.is_tracked(thing) and place not in without
        ]
    return list(found.values())


def _as_bytes(thing: object) -> bytes:
    if isinstance(thing, bytes):
        return thing
    if isinstance(thing, (bytearray, memoryview)):
        try:
            return bytes(thing)
        except ValueError:  # a released view has no content
            return b""
    if isinstance(thing, int) and thing.bit_length() > 8 * (_PIECE - 2):
        return abs(thing).to_bytes(max(_PIECE, (thing.bit_length() + 7) // 8))
    return b""
