"""Key files: one identity in one file, readable by its owner only (section 4).

Rule: the file is private from its first byte, is never overwritten, and every byte of
it is checked on reading. Knows no default place and asks nobody for a passphrase.

    file   = "parley1 key file\\n" || u8 form || costs || body
    costs  = form 0: nothing; form 1: u32 passes || u32 memory in KiB || salt 16 || nonce 24
    body   = form 0: the payload; form 1: XChaCha20-Poly1305 of the payload under
             Argon2id(passphrase, salt, costs), all before the body as associated data
    payload = LBM, key 256: [[algorithm, private key, public key], ..], the primary first
"""

import os
import stat
import struct
from dataclasses import dataclass
from typing import Final

import nacl.bindings

from crypto.ciphers import INVALID_TAG_ERRORS, XChaCha20Poly1305
from crypto.errors import (
    CryptoError,
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    WrongPassphraseError,
)
from crypto.identity import Identity
from crypto.randomness import random_bytes
from crypto.registry import SIGNING
from crypto.signing import SigningKey
from lbm.codec import decode, encode
from lbm.errors import LbmDecodeError
from lbm.limits import HANDSHAKE_LIMITS

PathLike = str | os.PathLike[str]

_MAGIC: Final = b"parley1 key file\n"
_PLAIN: Final = b"\x00"
_SEALED: Final = b"\x01"
_COSTS: Final = struct.Struct(">II16s24s")
_SALT_SIZE: Final = 16
_NONCE_SIZE: Final = 24
_KEY_SIZE: Final = 32
_KEYS: Final = 256  # the payload's one key

MAX_FILE_SIZE: Final = 16_384
MAX_PASSES: Final = 16
MIN_MEMORY_KIB: Final = 8
MAX_MEMORY_KIB: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class PassphraseCost:
    """What one guess at a passphrase costs: Argon2id, `passes` over `memory_kib` KiB.

    ValueError out of the bounds (1..16 passes, 8 KiB..1 GiB). They hold for what a file
    claims too, so that a hostile one takes neither all memory nor an hour.
    """

    passes: int = 3
    memory_kib: int = 262_144

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= MAX_PASSES:
            raise ValueError(f"Argon2id takes 1 to {MAX_PASSES} passes here")
        if not MIN_MEMORY_KIB <= self.memory_kib <= MAX_MEMORY_KIB:
            raise ValueError(f"Argon2id takes {MIN_MEMORY_KIB} to {MAX_MEMORY_KIB} KiB here")


DEFAULT_COST: Final = PassphraseCost()


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
    payload = encode({_KEYS: keys})
    if passphrase is None:
        _write(path, _MAGIC + _PLAIN + payload)
        return
    if not passphrase:
        raise PassphraseError("an empty passphrase protects nothing")
    salt, nonce = random_bytes(_SALT_SIZE), random_bytes(_NONCE_SIZE)
    header = _MAGIC + _SEALED + _COSTS.pack(cost.passes, cost.memory_kib, salt, nonce)
    key = _stretch(passphrase, salt, cost)
    _write(path, header + XChaCha20Poly1305(key).encrypt(nonce, payload, header))


def load_identity(path: PathLike, passphrase: bytes | None = None) -> Identity:
    """Read a key file; a passphrase is not looked at if the file is not sealed.

    KeyFileUnreadableError, KeyFileTooOpenError, KeyFileMalformedError,
    PassphraseNeededError or WrongPassphraseError.
    """
    header, body = _split(_read(path))
    if header.endswith(_PLAIN) and len(header) == len(_MAGIC) + 1:
        return _identity(body)
    if passphrase is None:
        raise PassphraseNeededError("the key file is sealed: it takes a passphrase")
    passes, memory_kib, salt, nonce = _COSTS.unpack(header[len(_MAGIC) + 1 :])
    try:
        cost = PassphraseCost(passes, memory_kib)
    except ValueError as error:
        raise KeyFileMalformedError("the key file asks for costs out of bounds") from error
    try:
        payload = XChaCha20Poly1305(_stretch(passphrase, salt, cost)).decrypt(nonce, body, header)
    except INVALID_TAG_ERRORS as error:
        raise WrongPassphraseError("wrong passphrase, or the key file was altered") from error
    return _identity(payload)


def describe_keyfile(path: PathLike) -> bool:
    """Say whether a key file is sealed under a passphrase; raises as `load_identity` does."""
    header, _ = _split(_read(path))
    return len(header) > len(_MAGIC) + 1


def _stretch(passphrase: bytes, salt: bytes, cost: PassphraseCost) -> bytes:
    """Return the 32-byte key of a passphrase."""
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
        raise PassphraseError("not enough memory for this key file's costs") from error


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Return header and body of a key file."""
    start = len(_MAGIC) + 1
    magic, form = data[: len(_MAGIC)], data[len(_MAGIC) : start]
    if magic != _MAGIC or form not in (_PLAIN, _SEALED):
        raise KeyFileMalformedError("this is no key file of version 1")
    if form == _SEALED:
        start += _COSTS.size
        if len(data) < start:
            raise KeyFileMalformedError("the key file is truncated")
    return data[:start], data[start:]


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
        raise KeyFileMalformedError("the keys of the key file make no identity") from error


def _key(entry: object) -> SigningKey:
    if not isinstance(entry, list) or len(entry) != 3:
        raise KeyFileMalformedError("a key of a key file is an array of three")
    algorithm, private, public = entry
    if not isinstance(algorithm, str) or algorithm not in SIGNING:
        raise KeyFileMalformedError("the key file has a key of an unknown algorithm")
    if not isinstance(private, bytes):
        raise KeyFileMalformedError("a private key of the key file is no byte string")
    try:
        key = SIGNING[algorithm].load(private)
    except CryptoError as error:
        raise KeyFileMalformedError("a private key of the key file is malformed") from error
    # An altered private key would be a good key of some other node: this finds it.
    if key.public != public:
        raise KeyFileMalformedError("a private key of the key file was altered")
    return key


def _read(path: PathLike) -> bytes:
    """Return a key file's bytes, having looked at the very file that was opened."""
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
        raise KeyFileMalformedError("the key file is too long to be one")
    return data


def _require_private(status: os.stat_result, path: PathLike) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileUnreadableError(f"{os.fspath(path)} is no regular file")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileTooOpenError(f"others can use {os.fspath(path)}: chmod 600 it")
    if status.st_uid not in (os.geteuid(), 0):  # root can read every file anyway
        raise KeyFileTooOpenError(f"{os.fspath(path)} belongs to another user")


def _write(path: PathLike, data: bytes) -> None:
    """Create a file of mode 0600 with these bytes, or none at all."""
    try:
        # O_EXCL follows no symbolic link and makes the file ours; 0600 from its first byte.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise KeyFileExistsError(f"there is a file at {os.fspath(path)} already") from error
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
