"""Envelopes: signed content that is valid outside a session (section 19).

Parsing checks the form, and that the key belongs to the origin. The signature is verified
separately, because this costs more than all other checks together, and many envelopes can be
rejected before it.
"""

from collections.abc import Mapping
from typing import Any, Final

from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.identity import Identity, PrimaryKey, PublicIdentity
from parley._crypto.registry import SIGNING
from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.event_types import NODE_ID_SIZE
from parley._node.protocol.payload_schema import (
    BYTES,
    TEXT,
    FieldType,
    PayloadSchema,
    exactly,
    uint,
)

_DOMAIN: Final = b"parley1 envelope"

_ENVELOPE: Final = PayloadSchema({keys.CONTENT: BYTES, keys.SIGNING: TEXT, keys.SIGNATURE: BYTES})
# The fields that the content of every kind has.
CONTENT_CELLS: Final = {
    keys.KIND: TEXT,
    keys.ORIGIN: exactly(NODE_ID_SIZE),
    keys.MADE_MS: uint(),
    keys.EXPIRES_MS: uint(),
    keys.IDENTITY_KEYS: FieldType(
        "an array of one key, perhaps with a commitment",
        list,
        lambda value: (
            1 <= len(value) <= 2 and all(type(one) is list and len(one) == 3 for one in value)
        ),
    ),
}


class Envelope:
    """A parsed envelope, whose signature is unverified until `verify`.

    `encoded` is the envelope as sent, and `cells` are the fields of its content. `origin` is the
    node that should have signed it. `made_ms` and `expires_ms` are ms since 1970.
    """

    __slots__ = ("_content", "_signature", "_signer", "cells", "encoded", "origin", "signing")

    def __init__(self, encoded: bytes, kind: str, kinds: PayloadSchema) -> None:
        """Parse an envelope of `kind`, whose content has the schema `kinds`.

        Raises:
            LbmDecodeError: it is malformed, has another kind or an unknown algorithm, or the key
                does not belong to the origin.
        """
        outer = _ENVELOPE.read(encoded)
        # Reject unsigned additions, such as padding.
        if encode(outer) != encoded:
            raise LbmDecodeError("an envelope has exactly three cells")
        self.encoded = encoded
        self._content: bytes = outer[keys.CONTENT]
        self.signing: str = outer[keys.SIGNING]
        self._signature: bytes = outer[keys.SIGNATURE]
        self.cells: Mapping[int, Any] = kinds.read(self._content)
        if self.cells[keys.KIND] != kind:
            raise LbmDecodeError(f"not an envelope of kind {kind!r}")
        self._signer: PublicIdentity | None = None
        try:
            key = PrimaryKey.parse(self.cells[keys.IDENTITY_KEYS])
        except IdentityError as error:
            raise LbmDecodeError(f"the key of an envelope: {error}") from error
        if key.algorithm not in SIGNING:
            unknown = ascii(key.algorithm)[:40]
            raise LbmDecodeError(f"the key has the unknown algorithm {unknown}")
        self.origin = key.node_id
        if key.algorithm != self.signing or self.cells[keys.ORIGIN] != self.origin:
            raise LbmDecodeError(f"the key does not belong to the origin {self.origin}")

    @property
    def made_ms(self) -> int:
        """The time at which it was made, by the origin's clock."""
        made: int = self.cells[keys.MADE_MS]
        return made

    @property
    def expires_ms(self) -> int:
        """The time at which it expires."""
        expires: int = self.cells[keys.EXPIRES_MS]
        return expires

    def verify(self, other: "Envelope | None" = None) -> None:
        """Verify the signature of the origin; a successful result is cached.

        `other`, a verified envelope of the same origin, saves the check of the key.

        Raises:
            SignatureError: the signature is wrong, or the key is weak.
        """
        if self._signer is not None:
            return
        # A node ID identifies one key, so envelopes of the same origin have the same key.
        signer = None if other is None or other.origin != self.origin else other._signer
        try:
            signer = signer or PublicIdentity.parse(self.cells[keys.IDENTITY_KEYS])
        except IdentityError as error:
            raise SignatureError(
                f"cannot use the key of an envelope of {self.origin}: {error}"
            ) from error
        signer.verifier(self.signing).verify(self._signature, _signed(self.signing, self._content))
        self._signer = signer

    def __repr__(self) -> str:
        return f"<Envelope {self.cells[keys.KIND]} of {self.origin.short}>"


def sign_envelope(identity: Identity, content: Mapping[int, Encodable]) -> bytes:
    """Return the bytes of a signed envelope with this content, the origin and its key."""
    primary = identity.keys[0]
    body = encode(
        {
            **content,
            keys.ORIGIN: identity.node_id,
            keys.IDENTITY_KEYS: identity.primary_key.cells(),
        }
    )
    return encode(
        {
            keys.CONTENT: body,
            keys.SIGNING: primary.algorithm,
            keys.SIGNATURE: primary.sign(_signed(primary.algorithm, body)),
        }
    )


def _signed(signing: str, content: bytes) -> bytes:
    name = signing.encode()
    return _DOMAIN + bytes((len(name),)) + name + content
