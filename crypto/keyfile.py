"""Key files: one identity in one file, readable by its owner only (section 4).

Every byte of the payload is checked on reading; the file around it is a container's
(`crypto.container`). Has no default place and never asks for a passphrase.

    magic   = "parley1 key file\n"
    payload = LBM, key 256: [[algorithm, private key, public key], ..], the primary first
"""

from typing import Final

from parley._crypto.container import DEFAULT_COST, Container, PassphraseCost, PathLike, malformed
from parley._crypto.errors import CryptoError
from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningKey
from parley._lbm.codec import decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import HANDSHAKE_LIMITS

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
    return _identity(_FILE.load(path, passphrase), path)


def describe_keyfile(path: PathLike) -> bool:
    """Say whether a key file is sealed under a passphrase; raises as `load_identity` does."""
    return _FILE.is_sealed(path)


def _identity(payload: bytes, path: PathLike) -> Identity:
    try:
        cells = decode(payload, HANDSHAKE_LIMITS, keep_noise=True)
    except LbmDecodeError as error:
        raise malformed(path, f"it is truncated or altered ({error})") from error
    entries = cells.get(_KEYS)
    if len(cells) != 1 or not isinstance(entries, list):
        raise malformed(path, "it has no list of keys")
    keys = [_key(entry, path) for entry in entries]
    try:
        return Identity.from_keys(keys)
    except CryptoError as error:
        raise malformed(path, f"its keys are not an identity ({error})") from error


def _key(entry: object, path: PathLike) -> SigningKey:
    if not isinstance(entry, list) or len(entry) != 3:
        raise malformed(path, "an entry is not an array of algorithm, private and public key")
    algorithm, private, public = entry
    if not isinstance(algorithm, str) or algorithm not in SIGNING:
        raise malformed(path, f"it has a key of the unknown algorithm {ascii(algorithm)[:40]}")
    if not isinstance(private, bytes):
        raise malformed(path, f"its private key of {algorithm} is not a byte string")
    try:
        key = SIGNING[algorithm].load(private)
    except CryptoError as error:
        raise malformed(path, f"its private key of {algorithm} is malformed") from error
    # An altered private key would be a good key of some other node: this finds it.
    if key.public != public:
        raise malformed(path, f"its private key of {algorithm} was altered")
    return key
