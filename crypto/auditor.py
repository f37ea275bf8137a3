"""An auditor's keys: what a node seals to one, the node itself cannot open again.

Uses only libsodium's sealed boxes (`crypto_box_seal`: ephemeral X25519, then
XSalsa20-Poly1305), a new ephemeral key for each.
"""

import base64
import binascii

import nacl.bindings
import nacl.exceptions

from parley._crypto.errors import DecryptError, InvalidKeyError
from parley._crypto.randomness import random_bytes

AUDITOR_KEY_SIZE = 32
BOX_OVERHEAD = 48  # an ephemeral public key, and the tag

_PREFIX = "parley-auditor-"


class AuditorKey(bytes):
    """An auditor's public X25519 key: 32 bytes, shown as `parley-auditor-` and base32."""

    __slots__ = ()

    def __new__(cls, value: bytes) -> "AuditorKey":
        """Take 32 bytes; InvalidKeyError on another size or a key that gives no secret."""
        if len(value) != AUDITOR_KEY_SIZE:
            raise InvalidKeyError(f"an auditor's key has {AUDITOR_KEY_SIZE} bytes")
        try:
            nacl.bindings.crypto_box_seal(b"", bytes(value))
        except nacl.exceptions.CryptoError as error:
            raise InvalidKeyError(
                f"cannot use the auditor's key {bytes(value).hex()}: it is of small order"
            ) from error
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> "AuditorKey":
        """Read what `text` gives, and no other spelling; else InvalidKeyError."""
        try:
            if not text.startswith(_PREFIX):
                raise ValueError
            key = cls(base64.b32decode(text.removeprefix(_PREFIX).upper() + "===="))
        except (binascii.Error, ValueError) as error:
            raise InvalidKeyError(
                f"cannot read the auditor's key {ascii(text)[:80]}: it begins with {_PREFIX}, "
                "and 52 characters of base32 follow"
            ) from error
        if key.text != text:
            raise InvalidKeyError(
                f"cannot read the auditor's key {ascii(text)[:80]}: it is spelled {key.text}"
            )
        return key

    @property
    def text(self) -> str:
        """How people see it and configurations hold it."""
        return _PREFIX + base64.b32encode(self).decode("ascii").rstrip("=").lower()

    def seal(self, secret: bytes) -> bytes:
        """Return the box of `secret` (48 bytes more) that this key's holder alone can open."""
        return nacl.bindings.crypto_box_seal(secret, bytes(self))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"AuditorKey({self.text})"


class AuditorPrivateKey:
    """The private key of an auditor. Never shown, and no part of a repr.

    Example:

        from parley.journal import AuditorPrivateKey, load_auditor_key, save_auditor_key

        save_auditor_key("auditor.key", AuditorPrivateKey.create())
        print(load_auditor_key("auditor.key").public)
    """

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes) -> None:
        """Take the 32 private bytes; InvalidKeyError on another size."""
        if len(private) != AUDITOR_KEY_SIZE:
            raise InvalidKeyError(f"an auditor's private key has {AUDITOR_KEY_SIZE} bytes")
        self._private = private
        self.public = AuditorKey(nacl.bindings.crypto_scalarmult_base(private))

    @classmethod
    def create(cls) -> "AuditorPrivateKey":
        """Make a new key."""
        return cls(random_bytes(AUDITOR_KEY_SIZE))

    def private_bytes(self) -> bytes:
        """The 32 private bytes, for a key file."""
        return self._private

    def open(self, box: bytes) -> bytes:
        """Decrypt a box; DecryptError if it isn't encrypted to this key."""
        if len(box) < BOX_OVERHEAD:
            raise DecryptError(f"a box of {len(box)} bytes; it has {BOX_OVERHEAD} or more")
        try:
            return nacl.bindings.crypto_box_seal_open(box, bytes(self.public), self._private)
        except nacl.exceptions.CryptoError as error:
            raise DecryptError(
                f"the box was altered, or is not encrypted to the auditor {self.public.text}"
            ) from error

    def __repr__(self) -> str:
        return f"<AuditorPrivateKey of {self.public.text}>"
