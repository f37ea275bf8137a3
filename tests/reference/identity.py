"""Identities (sections 4 and 22): node IDs, commitments, key bindings, UUIDs, cells 14 and 15.

An identity is read whole or refused with Violation `authentication-failed`. Trust policies and key
files are out of scope.
"""

import base64
import uuid
from dataclasses import dataclass
from typing import Any, Final

from tests.reference.cbor import encode_value
from tests.reference.primitives import (
    SIGNING_NAMES,
    CryptoFailure,
    SigningKey,
    check_public,
    digest,
    verify,
)
from tests.reference.wire import Violation

NODE_INFORMATION_LIMIT: Final = 1_024
MAX_KEYS: Final = 8
COMMITMENT_SIZE: Final = 32
RECOVERY: Final = "recovery"


def _prefixed(algorithm: str) -> bytes:
    name = algorithm.encode()
    return bytes([len(name)]) + name


def node_id(algorithm: str, public: bytes, commitment: bytes | None = None) -> bytes:
    """32 bytes from the primary key, and from the commitment in the second form."""
    key = _prefixed(algorithm) + public
    if commitment is None:
        return digest("sha256", b"parley1 node id" + key)
    return digest("sha256", b"parley1 recoverable id" + key + commitment)


def commit(algorithm: str, public: bytes, recovery: SigningKey) -> bytes:
    """The commitment of a primary key to a recovery key (22.1)."""
    return commitment_of(algorithm, public, recovery.algorithm, recovery.public)


def commitment_of(algorithm: str, public: bytes, recovery_algorithm: str, recovery: bytes) -> bytes:
    """The same, from public keys alone."""
    keys = _prefixed(algorithm) + public + _prefixed(recovery_algorithm) + recovery
    return digest("sha256", b"parley1 recovery key" + keys)


def node_text(identifier: bytes) -> str:
    """Base32, lower case, no padding: 52 characters."""
    return base64.b32encode(identifier).decode().lower().rstrip("=")


def node_uuid(identifier: bytes) -> uuid.UUID:
    """A UUID version 8 (RFC 9562, section 5.8) from the first 16 bytes of the node id."""
    raw = bytearray(identifier[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(raw))


def binding_message(identifier: bytes, algorithm: str, public: bytes) -> bytes:
    """What the primary signs to bind a further key."""
    return b"parley1 key binding" + identifier + _prefixed(algorithm) + public


@dataclass(frozen=True)
class Identity:
    """One's own keys, the primary first, and in the second form the commitment."""

    keys: tuple[SigningKey, ...]
    commitment: bytes | None = None

    @classmethod
    def from_seeds(cls, *keys: tuple[str, bytes]) -> "Identity":
        """From (algorithm, 32-byte seed) pairs."""
        return cls(tuple(SigningKey(algorithm, seed) for algorithm, seed in keys))

    @property
    def id(self) -> bytes:
        """The node id."""
        return node_id(self.keys[0].algorithm, self.keys[0].public, self.commitment)

    def key(self, algorithm: str) -> SigningKey:
        """The one key of an algorithm."""
        return next(key for key in self.keys if key.algorithm == algorithm)

    def cell(self) -> list[list[Any]]:
        """Cell 14."""
        primary = self.keys[0]
        entries: list[list[Any]] = [[primary.algorithm, primary.public, None]]
        if self.commitment is not None:
            entries.append(["recovery", self.commitment, None])
        for key in self.keys[1:]:
            message = binding_message(self.id, key.algorithm, key.public)
            entries.append([key.algorithm, key.public, primary.sign(message)])
        return entries


@dataclass(frozen=True)
class RemoteIdentity:
    """Return the verified contents of a Proof's cell 14: known algorithms only.

    `presented` is cell 85, whose statements are not looked at.
    """

    id: bytes
    keys: dict[str, bytes]
    presented: tuple[bytes, ...] = ()


def read_identity(cell: Any) -> RemoteIdentity:
    """Cell 14 with every binding verified; raises Violation authentication-failed."""
    try:
        return _read(cell)
    except (CryptoFailure, KeyError) as error:
        raise Violation("authentication-failed", f"identity: {error}") from error


def _read(cell: Any) -> RemoteIdentity:
    if not isinstance(cell, list) or not 1 <= len(cell) <= MAX_KEYS:
        raise CryptoFailure("one to eight keys")
    for entry in cell:
        if not (isinstance(entry, list) and len(entry) == 3):
            raise CryptoFailure("an entry is [algorithm, key, binding]")
        if not (isinstance(entry[0], str) and isinstance(entry[1], bytes)):
            raise CryptoFailure("an entry is [text, bytes, bytes or null]")
    if len({entry[0] for entry in cell}) != len(cell):
        raise CryptoFailure("two keys of one algorithm")
    primary_algorithm, primary, binding = cell[0]
    if binding is not None:
        raise CryptoFailure("the primary's binding is null")
    if primary_algorithm not in SIGNING_NAMES:
        raise CryptoFailure("a primary of an algorithm that is not known")
    check_public(primary_algorithm, primary)
    commitment: bytes | None = None
    further = cell[1:]
    if further and further[0][0] == RECOVERY:
        commitment = read_commitment(further.pop(0))
    identifier = node_id(primary_algorithm, primary, commitment)
    known = {primary_algorithm: primary}
    for algorithm, public, signature in further:
        if algorithm == RECOVERY:
            raise CryptoFailure("a commitment that is not the second entry")
        if signature is None:
            raise CryptoFailure(f"unsupported identity entry {algorithm!a}")
        if not isinstance(signature, bytes):
            raise CryptoFailure("a further key without a binding")
        message = binding_message(identifier, algorithm, public)
        verify(primary_algorithm, primary, message, signature)
        if algorithm in SIGNING_NAMES:
            check_public(algorithm, public)
            known[algorithm] = public
    return RemoteIdentity(identifier, known)


def read_commitment(entry: list[Any]) -> bytes:
    """The commitment in an entry named `recovery`; raises CryptoFailure."""
    _, commitment, binding = entry
    if binding is not None:
        raise CryptoFailure("a commitment with a binding")
    if not isinstance(commitment, bytes) or len(commitment) != COMMITMENT_SIZE:
        raise CryptoFailure("a commitment has 32 bytes")
    return commitment


def read_origin(cell: Any) -> tuple[str, bytes, bytes | None]:
    """Cell 14 outside of a Proof (22.7): algorithm, primary key and commitment, not yet checked.

    Raises CryptoFailure.
    """
    if not isinstance(cell, list) or not 1 <= len(cell) <= 2:
        raise CryptoFailure("one entry, or two")
    for entry in cell:
        if not isinstance(entry, list) or len(entry) != 3:
            raise CryptoFailure("an entry is [algorithm, key, binding]")
        if not isinstance(entry[0], str) or not isinstance(entry[1], bytes):
            raise CryptoFailure("an entry is [text, bytes, null]")
        if not 1 <= len(entry[0].encode()) <= 255:
            raise CryptoFailure("the name of an algorithm has 1 to 255 bytes")
    algorithm, public, binding = cell[0]
    if binding is not None:
        raise CryptoFailure("the primary's binding is null")
    if algorithm == RECOVERY:
        raise CryptoFailure("the first entry is the primary key")
    if len(cell) == 1:
        return algorithm, public, None
    if cell[1][0] != RECOVERY:
        raise CryptoFailure("the second entry is the commitment")
    return algorithm, public, read_commitment(cell[1])


def check_node_information(cell: Any) -> None:
    """Cell 15: a text-keyed map of at most 1,024 encoded bytes; raises Violation."""
    text_keys = isinstance(cell, dict) and all(isinstance(key, str) for key in cell)
    if not text_keys or len(encode_value(cell)) > NODE_INFORMATION_LIMIT:
        raise Violation("protocol-error", "node information")
