"""An auditor's private key in a file of its own, as identities have theirs.

What is read is checked (but for the five bits of a private key that X25519 itself
passes over), and no key file of an identity passes for one. The file around it is a
container's (`crypto.container`). Has no default place and never asks for a passphrase.

    magic   = "parley1 auditor key\n"
    payload = private key (32 bytes) || public key (32 bytes), X25519
"""

from typing import Final

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorPrivateKey
from parley._crypto.container import DEFAULT_COST, Container, PassphraseCost, PathLike, malformed

MAGIC: Final = b"parley1 auditor key\n"

_FILE: Final = Container(MAGIC, "an auditor's key file")


def is_auditor_file(path: PathLike) -> bool:
    """Return whether a file begins as an auditor's key file does; False if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def save_auditor_key(
    path: PathLike,
    key: AuditorPrivateKey,
    passphrase: bytes | None = None,
    *,
    cost: PassphraseCost = DEFAULT_COST,
) -> None:
    """Write a new file of mode 0600, sealed if a passphrase is given.

    KeyFileExistsError if anything is at `path`, KeyFileUnreadableError if the system
    refuses, PassphraseError for an empty passphrase.
    """
    _FILE.save(path, key.private_bytes() + key.public, passphrase, cost)


def load_auditor_key(path: PathLike, passphrase: bytes | None = None) -> AuditorPrivateKey:
    """Read an auditor's key; a passphrase is not looked at if the file is not sealed.

    KeyFileUnreadableError, KeyFileTooOpenError, KeyFileMalformedError,
    PassphraseNeededError or WrongPassphraseError.
    """
    payload = _FILE.load(path, passphrase)
    if len(payload) != 2 * AUDITOR_KEY_SIZE:
        raise malformed(
            path, f"it has {len(payload)} bytes of keys in place of {2 * AUDITOR_KEY_SIZE}"
        )
    key = AuditorPrivateKey(payload[:AUDITOR_KEY_SIZE])
    # An altered private key would be a good key that opens nothing: this finds it.
    if key.public != payload[AUDITOR_KEY_SIZE:]:
        raise malformed(
            path, f"its private key belongs to {key.public}, which is not the public key in it"
        )
    return key
