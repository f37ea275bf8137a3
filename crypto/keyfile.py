r"""Key files: an identity or an auditor's key in a file (docs/protocol.md section 4).

The file is readable by its owner only from the first byte, is never overwritten, and every byte is
checked when it is read. It may be encrypted with a passphrase.

    file    = magic || u8 form || costs || body
    costs   = form 0: nothing; form 1: u32 passes || u32 memory in KiB || salt 16 || nonce 24
    body    = form 0: the payload; form 1: XChaCha20-Poly1305 of the payload under
              Argon2id(passphrase, salt, costs), all before the body as associated data

Identity (magic `parley1 key file\n`): LBM, key 256: [[algorithm, private key, public key], ..],
the primary first. Auditor (`parley1 auditor key\n`): private key (32 bytes) || public key, X25519.
"""

import os
import stat
import struct
from dataclasses import dataclass
from typing import Final

import nacl.bindings

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorPrivateKey
from parley._crypto.ciphers import INVALID_TAG_ERRORS, XChaCha20Poly1305
from parley._crypto.errors import (
    CryptoError,
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    WrongPassphraseError,
)
from parley._crypto.identity import Identity
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningKey
from parley._lbm.codec import decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import HANDSHAKE_LIMITS

PathLike = str | os.PathLike[str]

_PLAIN: Final = b"\x00"
_SEALED: Final = b"\x01"
_COSTS: Final = struct.Struct(">II16s24s")
_SALT_SIZE: Final = 16
_NONCE_SIZE: Final = 24
_KEY_SIZE: Final = 32

MAX_FILE_SIZE: Final = 16_384
MAX_PASSES: Final = 16
MIN_MEMORY_KIB: Final = 8
MAX_MEMORY_KIB: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class PassphraseCost:
    """The cost of one guess at a passphrase: Argon2id, `passes` over `memory_kib` KiB.

    ValueError outside of 1..16 passes and 8 KiB..1 GiB. The bounds also apply to files that are
    read, so that a hostile one takes neither all memory nor an hour.
    """

    passes: int = 3
    memory_kib: int = 262_144

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= MAX_PASSES:
            raise ValueError(f"Argon2id takes 1 to {MAX_PASSES} passes here")
        if not MIN_MEMORY_KIB <= self.memory_kib <= MAX_MEMORY_KIB:
            raise ValueError(f"Argon2id takes {MIN_MEMORY_KIB} to {MAX_MEMORY_KIB} KiB here")


DEFAULT_COST: Final = PassphraseCost()


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of key file: its `magic`, and the `name` that errors use."""

    magic: bytes
    name: str

    def save(
        self, path: PathLike, payload: bytes, passphrase: bytes | None, cost: PassphraseCost
    ) -> None:
        """Write a new file, encrypted if a passphrase is given. Raises like `save_identity`."""
        if passphrase is None:
            _write(path, self.magic + _PLAIN + payload)
            return
        if not passphrase:
            raise PassphraseError(
                f"cannot encrypt the key file '{os.fspath(path)}': the passphrase is empty"
            )
        salt, nonce = random_bytes(_SALT_SIZE), random_bytes(_NONCE_SIZE)
        header = self.magic + _SEALED + _COSTS.pack(cost.passes, cost.memory_kib, salt, nonce)
        key = _stretch(passphrase, salt, cost)
        _write(path, header + XChaCha20Poly1305(key).encrypt(nonce, payload, header))

    def load(self, path: PathLike, passphrase: bytes | None) -> bytes:
        """Return a file's payload. Raises like `load_identity`."""
        header, body = self._split(_read(path), path)
        costs = header[len(self.magic) + 1 :]
        if not costs:
            return body
        if passphrase is None:
            raise PassphraseNeededError(
                f"cannot open the key file '{os.fspath(path)}': it is encrypted; "
                "give its passphrase"
            )
        passes, memory_kib, salt, nonce = _COSTS.unpack(costs)
        try:
            cost = PassphraseCost(passes, memory_kib)
        except ValueError as error:
            raise malformed(
                path, f"its costs ({passes} passes, {memory_kib:,} KiB) are out of bounds"
            ) from error
        key = _stretch(passphrase, salt, cost)
        try:
            return XChaCha20Poly1305(key).decrypt(nonce, body, header)
        except INVALID_TAG_ERRORS as error:
            raise WrongPassphraseError(
                f"wrong passphrase, or the key file {os.fspath(path)} was altered"
            ) from error

    def is_sealed(self, path: PathLike) -> bool:
        """Return whether a file is encrypted; raises like `load`."""
        header, _ = self._split(_read(path), path)
        return len(header) > len(self.magic) + 1

    def _split(self, data: bytes, path: PathLike) -> tuple[bytes, bytes]:
        start = len(self.magic) + 1
        magic, form = data[: len(self.magic)], data[len(self.magic) : start]
        if magic != self.magic or form not in (_PLAIN, _SEALED):
            raise malformed(path, f"it is not {self.name} of version 1")
        if form == _SEALED:
            start += _COSTS.size
            if len(data) < start:
                raise malformed(path, f"it is truncated to {len(data)} bytes")
        return data[:start], data[start:]


def malformed(path: PathLike, reason: str) -> KeyFileMalformedError:
    return KeyFileMalformedError(
        f"cannot read the key file '{os.fspath(path)}': {reason}; check the path, or restore the "
        "file from a backup"
    )


def _stretch(passphrase: bytes, salt: bytes, cost: PassphraseCost) -> bytes:
    try:
        return nacl.bindings.crypto_pwhash_alg(
            _KEY_SIZE,
            passphrase,
            salt,
            cost.passes,
            cost.memory_kib * 1024,
            nacl.bindings.crypto_pwhash_ALG_ARGON2ID13,
        )
    except RuntimeError as error:  # libsodium could not get the memory
        raise PassphraseError(
            "cannot derive the key of the passphrase: "
            f"there is no memory for {cost.memory_kib:,} KiB"
        ) from error


def _read(path: PathLike) -> bytes:
    """Return a key file's bytes, after checking the file that was opened."""
    try:
        # Not blocking: a pipe at that path would otherwise hold the caller for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyFileUnreadableError(f"cannot open the key file {os.fspath(path)}") from error
    try:
        _require_private(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise KeyFileUnreadableError(f"cannot read the key file {os.fspath(path)}") from error
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_SIZE:
        raise malformed(path, f"it has more than {MAX_FILE_SIZE:,} bytes")
    return data


def _require_private(status: os.stat_result, path: PathLike) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileUnreadableError(f"{os.fspath(path)} is not a regular file")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileTooOpenError(f"others can use {os.fspath(path)}: chmod 600 it")
    if status.st_uid not in (os.geteuid(), 0):  # root can read every file anyway
        raise KeyFileTooOpenError(f"{os.fspath(path)} belongs to another user")


def _write(path: PathLike, data: bytes) -> None:
    """Create a file of mode 0600 with these bytes, or no file."""
    try:
        # O_EXCL follows no symbolic link and makes the file ours; 0600 from its first byte.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        what = "directory" if os.path.isdir(path) else "file"
        raise KeyFileExistsError(f"there is a {what} at {os.fspath(path)} already") from error
    except OSError as error:
        raise KeyFileUnreadableError(f"cannot create the key file {os.fspath(path)}") from error
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # a umask may have taken the owner's own rights
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        os.unlink(path)
        raise KeyFileUnreadableError(f"cannot write the key file {os.fspath(path)}") from error


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
    """Write a new key file, encrypted if a passphrase is given.

    KeyFileExistsError if there is a file at `path`, KeyFileUnreadableError if the system refuses,
    PassphraseError for an empty passphrase.

    Example:

        from parley import Identity, load_identity, save_identity

        save_identity("node.key", Identity.create())
        identity = load_identity("node.key")
    """
    keys = [[key.algorithm, key.private_bytes(), key.public] for key in identity.keys]
    _FILE.save(path, encode({_KEYS: keys}), passphrase, cost)


def load_identity(path: PathLike, passphrase: bytes | None = None) -> Identity:
    """Read a key file; the passphrase of a file that isn't encrypted is ignored.

    KeyFileUnreadableError, KeyFileTooOpenError, KeyFileMalformedError, PassphraseNeededError or
    WrongPassphraseError.

    Example:

        from parley import Identity, load_identity, save_identity

        save_identity("node.key", Identity.create())
        identity = load_identity("node.key")
    """
    return _identity(_FILE.load(path, passphrase), path)


def describe_keyfile(path: PathLike) -> bool:
    """Return whether a key file is encrypted with a passphrase; raises like `load_identity`."""
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


AUDITOR_MAGIC: Final = b"parley1 auditor key\n"

_AUDITOR_FILE: Final = Container(AUDITOR_MAGIC, "an auditor's key file")


def is_auditor_file(path: PathLike) -> bool:
    """Return whether a file begins as an auditor's key file does; False if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(AUDITOR_MAGIC)) == AUDITOR_MAGIC
    except OSError:
        return False


def save_auditor_key(
    path: PathLike,
    key: AuditorPrivateKey,
    passphrase: bytes | None = None,
    *,
    cost: PassphraseCost = DEFAULT_COST,
) -> None:
    """Write a new file, encrypted if a passphrase is given. Raises like `save_identity`."""
    _AUDITOR_FILE.save(path, key.private_bytes() + key.public, passphrase, cost)


def load_auditor_key(path: PathLike, passphrase: bytes | None = None) -> AuditorPrivateKey:
    """Read an auditor's key. Raises like `load_identity`."""
    payload = _AUDITOR_FILE.load(path, passphrase)
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
