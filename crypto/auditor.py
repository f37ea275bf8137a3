"""The keys of an auditor. A node can encrypt data to an auditor, but can't decrypt it again.

Each box is a libsodium sealed box (`crypto_box_seal`: ephemeral X25519, then XSalsa20-Poly1305)
with a new ephemeral key.
"""

import base64
import binascii

import nacl.bindings
import nacl.exceptions

from parley._crypto.errors import DecryptError, InvalidKeyError
from parley._crypto.randomness import random_bytes

AUDITOR_KEY_SIZE = 32
BOX_OVERHEAD = 48  # an ephemeral public key and the tag

_PREFIX = "parley-auditor-"


class AuditorKey(bytes):
    """An auditor's public X25519 key: 32 bytes, written as `parley-auditor-` and base32.

    Example:

        from parley.journal import AuditorKey, AuditorPrivateKey

        auditor = AuditorPrivateKey.create()
        assert AuditorKey.parse(auditor.public.text) == auditor.public
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> "AuditorKey":
        """Create a key from its 32 bytes.

        Raises:
            InvalidKeyError: wrong size, or the key is of small order.
        """
        if len(value) != AUDITOR_KEY_SIZE:
            raise InvalidKeyError(
                f"invalid auditor key of {len(value)} bytes: expected {AUDITOR_KEY_SIZE}"
            )
        try:
            nacl.bindings.crypto_box_seal(b"", bytes(value))
        except nacl.exceptions.CryptoError as error:
            raise InvalidKeyError(
                f"cannot use the auditor's key {bytes(value).hex()}: it is of small order"
            ) from error
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> "AuditorKey":
        """Parse a key from its `text`. Other spellings of the same key are rejected.

        Raises:
            InvalidKeyError: `text` is not the text of a key.
        """
        try:
            if not text.startswith(_PREFIX):
                raise ValueError
            key = cls(base64.b32decode(text.removeprefix(_PREFIX).upper() + "===="))
        except (binascii.Error, ValueError) as error:
            raise InvalidKeyError(
                f"cannot read the auditor's key {ascii(text)[:80]}: expected {_PREFIX} "
                "and 52 characters of base32"
            ) from error
        if key.text != text:
            raise InvalidKeyError(
                f"cannot read the auditor's key {ascii(text)[:80]}: "
                f"the correct spelling is {key.text}"
            )
        return key

    @property
    def text(self) -> str:
        """The key as text, as shown to users and stored in settings."""
        return _PREFIX + base64.b32encode(self).decode("ascii").rstrip("=").lower()

    def seal(self, secret: bytes) -> bytes:
        """Encrypt `secret` to the auditor; the result is 48 bytes longer."""
        return nacl.bindings.crypto_box_seal(secret, bytes(self))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"AuditorKey({self.text})"


class AuditorPrivateKey:
    """The private key of an auditor. Its repr doesn't contain the key.

    Example:

        from parley.journal import AuditorPrivateKey

        auditor = AuditorPrivateKey.create()
        box = auditor.public.seal(b"a secret")
        assert auditor.open(box) == b"a secret"
    """

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes) -> None:
        """Create a key from its 32 private bytes.

        Raises:
            InvalidKeyError: wrong size.
        """
        if len(private) != AUDITOR_KEY_SIZE:
            raise InvalidKeyError(
                f"invalid private key of {len(private)} bytes: expected {AUDITOR_KEY_SIZE}"
            )
        self._private = private
        self.public = AuditorKey(nacl.bindings.crypto_scalarmult_base(private))

    @classmethod
    def create(cls) -> "AuditorPrivateKey":
        """Generate a new key."""
        return cls(random_bytes(AUDITOR_KEY_SIZE))

    def private_bytes(self) -> bytes:
        """The 32 private bytes, for a key file."""
        return self._private

    def open(self, box: bytes) -> bytes:
        """Decrypt a box.

        Raises:
            DecryptError: the box was altered or is not encrypted to this key.
        """
        if len(box) < BOX_OVERHEAD:
            raise DecryptError(
                f"cannot decrypt a box of {len(box)} bytes: expected {BOX_OVERHEAD} or more"
            )
        try:
            return nacl.bindings.crypto_box_seal_open(box, bytes(self.public), self._private)
        except nacl.exceptions.CryptoError as error:
            raise DecryptError(
                f"the box was altered, or is not encrypted to the auditor {self.public.text}"
            ) from error

    def __repr__(self) -> str:
        return f"<AuditorPrivateKey of {self.public.text}>"
