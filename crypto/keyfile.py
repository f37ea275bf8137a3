"""Key files: one identity in one file, readable by its owner only (section 4).

Every byte of the payload is checked on reading; the file around it is a container's
(`crypto.container`). Has no default place and never asks for a passphrase.

    magic   = "parley1 key file\n"
    payload = LBM, key 256: [[algorithm, private key, public key], ..], the primary first
"""

from typing import Final

from crypto.container import DEFAULT_COST, Container, PassphraseCost, PathLike
from crypto.errors import CryptoError, KeyFileMalformedError
from crypto.identity import Identity
from crypto.registry import SIGNING
from crypto.signing import SigningKey
from lbm.codec import decode, encode
from lbm.errors import LbmDecodeError
from lbm.limits import HANDSHAKE_LIMITS

__all__ = ["PassphraseCost", "describe_keyfile", "load_identity", "save_identity"]

_FILE: Final = Container(b"parley1 key file\n", "a key file")
_KEYS: Final = 256  # the payload's one key


def save_identity(
    path: PathLike,
    identity: Identity,
    passphrase: bytes | None = None,
    *,
    cost: PassphraseCost = DEFAULT_COST,
) -> None:
    """Write a new key file, sealed if a passphrase is given.

    KeyFileExistsError if anything is at `path`, KeyFileUnreadableError if the system
    refuses, PassphraseError for an empty passphrase.
    """
    keys = [[key.algorithm, key.private_bytes(), key.public] for key in identity.keys]
    _FILE.save(path, encode({_KEYS: keys}), passphrase, cost)


def load_identity(path: PathLike, passphrase: bytes | None = None) -> Identity:
    """Read a key file; a passphrase is not looked at if the file is not sealed.

    KeyFileUnreadableError, KeyFileTooOpenError, KeyFileMalformedError,
    PassphraseNeededError or WrongPassphraseError.
    """
    return _identity(_FILE.load(path, passphrase))


def describe_keyfile(path: PathLike) -> bool:
    """Say whether a key file is sealed under a passphrase; raises as `load_identity` does."""
    return _FILE.is_sealed(path)


def _identity(payload: bytes) -> Identity:
    try:
        cells = decode(payload, HANDSHAKE_LIMITS, keep_noise=True)
    except LbmDecodeError as error:
        raise KeyFileMalformedError("the key file is truncated or altered") from error
    entries = cells.get(_KEYS)
    if len(cells) != 1 or not isinstance(entries, list):
        raise KeyFileMalformedError("the key file does not hold a list of keys")
    keys = [_key(entry) for entry in entries]
    try:
        return Identity.from_keys(keys)
    except CryptoError as error:
        raise KeyFileMalformedError("the keys of the key file are not an identity") from error


def _key(entry: object) -> SigningKey:
    if not isinstance(entry, list) or len(entry) != 3:
        raise KeyFileMalformedError("a key of a key file is an array of three")
    algorithm, private, public = entry
    if not isinstance(algorithm, str) or algorithm not in SIGNING:
        raise KeyFileMalformedError("the key file has a key of an unknown algorithm")
    if not isinstance(private, bytes):
        raise KeyFileMalformedError("a private key of the key file is not a byte string")
    try:
        key = SIGNING[algorithm].load(private)
    except CryptoError as error:
        raise KeyFileMalformedError("a private key of the key file is malformed") from error
    # An altered private key would be a good key of some other node: this finds it.
    if key.public != public:
        raise KeyFileMalformedError("a private key of the key file was altered")
    return key
