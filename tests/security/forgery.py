"""Key statements with any content, as an attacker can make them with the keys that it has."""

from collections.abc import Mapping
from typing import Any, Final

from parley._crypto.identity import Identity, RecoveryKey
from parley._crypto.signing import SigningKey
from parley._lbm import keys
from parley._lbm.codec import decode, encode

MADE_MS: Final = 1_800_000_000_000
SIGNATURE: Final = b"parley1 key statement"
CONSENT: Final = b"parley1 successor consent"


def content_of(
    origin: Identity | RecoveryKey,
    successor: Identity | None = None,
    recovery: SigningKey | None = None,
    *,
    made_ms: int = MADE_MS,
    changed: Mapping[int, Any] | None = None,
) -> bytes:
    """Return the content of a statement. `changed` are values for its cells, by their keys."""
    cells: dict[int, Any] = {
        keys.IDENTITY_KEYS: origin.primary_key.cells(),
        keys.KIND: "revocation" if successor is None else "succession",
        keys.ORIGIN: origin.primary_key.node_id,
        keys.MADE_MS: made_ms,
    }
    if successor is not None:
        cells[keys.SUCCESSOR] = successor.primary_key.cells()
    if recovery is not None:
        cells[keys.SIGNER] = [recovery.algorithm, recovery.public]
    return encode({**cells, **(changed or {})})


def sign(key: SigningKey, label: bytes, content: bytes) -> bytes:
    """Return a signature with a label and the key's algorithm."""
    name = key.algorithm.encode()
    return key.sign(label + bytes((len(name),)) + name + content)


def statement(
    content: bytes,
    signer: SigningKey,
    consenting: SigningKey | None = None,
    *,
    label: bytes = SIGNATURE,
    changed: Mapping[int, Any] | None = None,
) -> bytes:
    """Return a statement of a content. `changed` are values for its outer cells, by their keys."""
    cells: dict[int, Any] = {
        keys.CONTENT: content,
        keys.SIGNING: signer.algorithm,
        keys.SIGNATURE: sign(signer, label, content),
    }
    if consenting is not None:
        cells[keys.CONSENT] = sign(consenting, CONSENT, content)
    return encode({**cells, **(changed or {})})


def part_of(encoded: bytes, key: int) -> Any:
    """Return an outer cell of a statement."""
    return decode(encoded)[key]
