r"""Key files: an identity, a recovery key or an auditor's key in a file (docs/protocol.md
sections 4 and 22).

The file is created with access only for its owner and never overwritten. Every byte is verified
when it is read. It can be encrypted with a passphrase.

`change_passphrase` replaces only this file. Data in other files must therefore be encrypted with a
key derived from the primary's private key, never with the passphrase.

    file    = magic || u8 form || costs || body
    costs   = form 0: nothing; form 1: u32 passes || u32 memory in KiB || salt 16 || nonce 24
    body    = form 0: the payload; form 1: XChaCha20-Poly1305 of the payload with the key
              Argon2id(passphrase, salt, costs); associated data: all bytes before the body

Identity (magic `parley1 key file\n`): LBM, key 256: [[algorithm, private key, public key], ..],
the primary first; key 257, if the identity has a recovery key: the commitment to it (32 bytes).
Recovery key (`parley1 recovery file\n`): LBM, key 256: [[algorithm, private key, public key]],
key 257: [[algorithm, public key]] of the primary key.
Auditor (`parley1 auditor key\n`): private key (32 bytes) || public key, X25519.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nacl.bindings

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorPrivateKey
from parley._crypto.ciphers import INVALID_TAG_ERRORS, XChaCha20Poly1305
from parley._crypto.errors import (
    CryptoError,
    IdentityError,
    KeyFileError,
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    WrongPassphraseError,
)
from parley._crypto.files import create_file, replace_file
from parley._crypto.identity import Identity, RecoveryKey
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningKey
from parley._lbm.codec import Value, decode, encode
from parley._lbm.errors import LbmDecodeError, os_reason
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
    """The cost of one guess at a passphrase: Argon2id with `passes` over `memory_kib` KiB.

    The bounds also apply to files that are read, so that a malicious file can't exhaust memory or
    time.

    Raises:
        ValueError: not 1..16 passes, or not 8 KiB..1 GiB.

    Example:

        from parley import Identity, PassphraseCost, save_identity

        cost = PassphraseCost(passes=3, memory_kib=65_536)
        save_identity("node.key", Identity.create(), b"correct horse", cost=cost)
    """

    passes: int = 3
    memory_kib: int = 262_144

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= MAX_PASSES:
            raise ValueError(
                f"invalid passes {self.passes} of Argon2id: expected 1 to {MAX_PASSES}"
            )
        if not MIN_MEMORY_KIB <= self.memory_kib <= MAX_MEMORY_KIB:
            raise ValueError(f"Argon2id takes {MIN_MEMORY_KIB} to {MAX_MEMORY_KIB} KiB here")


DEFAULT_COST: Final = PassphraseCost()


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of key file: its `magic`, and its `name` in errors."""

    magic: bytes
    name: str

    def save(
        self, path: PathLike, payload: bytes, passphrase: bytes | None, cost: PassphraseCost
    ) -> None:
        """Write a new file, encrypted if a passphrase is given. Raises the same errors as
        `save_identity`.
        """
        _write(path, self.encode(path, payload, passphrase, cost))

    def load(self, path: PathLike, passphrase: bytes | None) -> bytes:
        """Return a file's payload. Raises the same errors as `load_identity`."""
        return self.decode(path, _read(path), passphrase)

    def is_sealed(self, path: PathLike) -> bool:
        """Return whether a file is encrypted. Raises the same errors as `load`."""
        return self.cost(path, _read(path)) is not None

    def encode(
        self, path: PathLike, payload: bytes, passphrase: bytes | None, cost: PassphraseCost
    ) -> bytes:
        """Return the bytes of a file for `path`; PassphraseError if the passphrase is empty."""
        if passphrase is None:
            return self.magic + _PLAIN + payload
        if not passphrase:
            raise PassphraseError(
                f"cannot encrypt the key file '{os.fspath(path)}': the passphrase is empty"
            )
        salt, nonce = random_bytes(_SALT_SIZE), random_bytes(_NONCE_SIZE)
        header = self.magic + _SEALED + _COSTS.pack(cost.passes, cost.memory_kib, salt, nonce)
        key = _stretch(passphrase, salt, cost)
        return header + XChaCha20Poly1305(key).encrypt(nonce, payload, header)

    def decode(self, path: PathLike, data: bytes, passphrase: bytes | None) -> bytes:
        """Return the payload in the bytes of a file. Raises the same errors as `load_identity`."""
        header, body = self._split(path, data)
        cost = self.cost(path, data)
        if cost is None:
            return body
        if passphrase is None:
            raise PassphraseNeededError(
                f"cannot open the key file '{os.fspath(path)}': it is encrypted; "
                "give its passphrase"
            )
        _, _, salt, nonce = _COSTS.unpack(header[-_COSTS.size :])
        key = _stretch(passphrase, salt, cost)
        try:
            return XChaCha20Poly1305(key).decrypt(nonce, body, header)
        except INVALID_TAG_ERRORS as error:
            raise WrongPassphraseError(
                f"cannot decrypt the key file '{os.fspath(path)}': the passphrase is wrong, "
                "or the file was altered"
            ) from error

    def cost(self, path: PathLike, data: bytes) -> PassphraseCost | None:
        """Return the cost in the bytes of a file; None without encryption. Raises
        KeyFileMalformedError.
        """
        header, _ = self._split(path, data)
        if len(header) == len(self.magic) + 1:
            return None
        passes, memory_kib, _, _ = _COSTS.unpack(header[-_COSTS.size :])
        try:
            return PassphraseCost(passes, memory_kib)
        except ValueError as error:
            raise malformed(
                path, f"its costs ({passes} passes, {memory_kib:,} KiB) are out of bounds"
            ) from error

    def _split(self, path: PathLike, data: bytes) -> tuple[bytes, bytes]:
        start = len(self.magic) + 1
        magic, form = data[: len(self.magic)], data[len(self.magic) : start]
        if magic != self.magic or form not in (_PLAIN, _SEALED):
            others = [kind.name for kind in _KINDS if kind != self and data.startswith(kind.magic)]
            is_other = "".join(f"it is {name}; " for name in others)
            raise malformed(path, f"{is_other}it is not {self.name} of version 1")
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
    except RuntimeError as error:  # libsodium could not allocate the memory
        raise PassphraseError(
            f"cannot derive the key of the passphrase: cannot allocate {cost.memory_kib:,} KiB"
        ) from error


def _read(path: PathLike) -> bytes:
    """Return a key file's bytes after checking permissions of the opened file."""
    with _opened(path) as descriptor:
        return _contents(path, descriptor)


@contextmanager
def _opened(path: PathLike, flags: int = 0) -> Iterator[int]:
    try:
        # Non-blocking, because opening a pipe at that path would otherwise block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError as error:
        raise _unusable("open", path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _contents(path: PathLike, descriptor: int) -> bytes:
    try:
        _require_private(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise _unusable("read", path, error) from error
    if len(data) > MAX_FILE_SIZE:
        raise malformed(path, f"it has more than {MAX_FILE_SIZE:,} bytes")
    return data


def _unusable(verb: str, path: PathLike, error: OSError) -> KeyFileUnreadableError:
    reason = os_reason(error)
    if error.errno == errno.ELOOP and os.path.islink(path):
        reason = "it is a symbolic link; give the path of the file"
    return KeyFileUnreadableError(f"cannot {verb} the key file '{os.fspath(path)}': {reason}")


def _require_private(status: os.stat_result, path: PathLike) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileUnreadableError(
            f"cannot use the key file '{os.fspath(path)}': it is not a regular file"
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileTooOpenError(
            f"cannot use the key file '{os.fspath(path)}': other users can access it; run chmod 600"
        )
    if status.st_uid not in (os.geteuid(), 0):  # root can read every file anyway
        raise KeyFileTooOpenError(
            f"cannot use the key file '{os.fspath(path)}': it belongs to another user"
        )


def _write(path: PathLike, data: bytes) -> None:
    """Create a file of mode 0600 with these bytes; on failure, leave no file behind."""
    try:
        create_file(path, data)
    except FileExistsError as error:
        what = "directory" if os.path.isdir(path) else "file"
        raise KeyFileExistsError(
            f"cannot create the key file '{os.fspath(path)}': a {what} already exists there"
        ) from error
    except OSError as error:
        raise _unusable("create", path, error) from error


__all__ = [
    "PassphraseCost",
    "change_passphrase",
    "describe_keyfile",
    "load_identity",
    "load_recovery",
    "save_identity",
    "save_recovery",
]

_FILE: Final = Container(b"parley1 key file\n", "a key file")
_KEYS: Final = 256
_COMMITMENT: Final = 257


def save_identity(
    path: PathLike,
    identity: Identity,
    passphrase: bytes | None = None,
    *,
    cost: PassphraseCost = DEFAULT_COST,
) -> None:
    """Write an identity to a new key file, encrypted if a passphrase is given.

    Raises:
        KeyFileExistsError: there is a file at `path`.
        KeyFileUnreadableError: the file can't be written.
        PassphraseError: the passphrase is empty.

    Example:

        from parley import Identity, save_identity

        save_identity("node.key", Identity.create())
    """
    cells: dict[int, Value] = {_KEYS: [_private(key) for key in identity.keys]}
    if identity.primary_key.commitment is not None:
        cells[_COMMITMENT] = identity.primary_key.commitment
    _FILE.save(path, encode(cells), passphrase, cost)


def load_identity(path: PathLike, passphrase: bytes | None = None) -> Identity:
    """Read an identity from a key file. Without encryption, the passphrase is ignored.

    Raises:
        KeyFileUnreadableError: the file can't be read.
        KeyFileTooOpenError: other users can read or write it.
        KeyFileMalformedError: it is truncated or altered.
        PassphraseNeededError: it is encrypted, and there is no passphrase.
        WrongPassphraseError: the passphrase is wrong, or the file was altered.

    Example:

        from parley import Identity, load_identity, save_identity

        save_identity("node.key", Identity.create(), b"correct horse")
        identity = load_identity("node.key", b"correct horse")
    """
    return _identity(_FILE.load(path, passphrase), path)


def describe_keyfile(path: PathLike) -> bool:
    """Return whether a key file is encrypted with a passphrase.

    Raises the same errors as `load_identity`.

    Example:

        from parley import Identity, describe_keyfile, save_identity

        save_identity("node.key", Identity.create())
        assert not describe_keyfile("node.key")
    """
    return _FILE.is_sealed(path)


def _identity(payload: bytes, path: PathLike) -> Identity:
    cells = _cells(payload, path)
    entries = cells.get(_KEYS)
    if not isinstance(entries, list) or not cells.keys() <= {_KEYS, _COMMITMENT}:
        raise malformed(path, "it has no list of keys")
    commitment: bytes | None = None
    if _COMMITMENT in cells:
        value = cells[_COMMITMENT]
        if not isinstance(value, bytes):
            raise malformed(path, "its commitment is not a byte string")
        commitment = value
    keys = [_key(entry, path) for entry in entries]
    try:
        return Identity.from_keys(keys, commitment)
    except CryptoError as error:
        raise malformed(path, f"its keys are not an identity ({error})") from error


def _cells(payload: bytes, path: PathLike) -> dict[int, Value]:
    try:
        return decode(payload, HANDSHAKE_LIMITS, keep_noise=True)
    except LbmDecodeError as error:
        raise malformed(path, f"it is truncated or altered ({error})") from error


def _private(key: SigningKey) -> list[str | bytes]:
    return [key.algorithm, key.private_bytes(), key.public]


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
    # Detects an altered private key, which would be a valid key of another node.
    if key.public != public:
        raise malformed(path, f"its private key of {algorithm} was altered")
    return key


_RECOVERY_FILE: Final = Container(b"parley1 recovery file\n", "a recovery file")
_PRIMARY: Final = 257  # of a recovery file


def save_recovery(
    path: PathLike,
    recovery: RecoveryKey,
    passphrase: bytes | None = None,
    *,
    cost: PassphraseCost = DEFAULT_COST,
) -> None:
    """Write a recovery key to a new recovery file, encrypted if a passphrase is given.

    Raises the same errors as `save_identity`.

    Example:

        from parley import Identity, save_identity, save_recovery

        identity, recovery = Identity.create_recoverable()
        save_identity("node.key", identity)
        save_recovery("node.recovery", recovery, b"correct horse")
    """
    primary = recovery.primary_key
    cells: dict[int, Value] = {
        _KEYS: [_private(recovery.key)],
        _PRIMARY: [[primary.algorithm, primary.public]],
    }
    _RECOVERY_FILE.save(path, encode(cells), passphrase, cost)


def load_recovery(path: PathLike, passphrase: bytes | None = None) -> RecoveryKey:
    """Read a recovery key from a recovery file. Without encryption, the passphrase is ignored.

    Raises the same errors as `load_identity`.

    Example:

        from parley import Identity, load_recovery, save_recovery

        identity, recovery = Identity.create_recoverable()
        save_recovery("node.recovery", recovery)
        assert load_recovery("node.recovery").node_id == identity.node_id
    """
    return _recovery(_RECOVERY_FILE.load(path, passphrase), path)


def _recovery(payload: bytes, path: PathLike) -> RecoveryKey:
    cells = _cells(payload, path)
    keys, primaries = cells.get(_KEYS), cells.get(_PRIMARY)
    if (
        cells.keys() != {_KEYS, _PRIMARY}
        or not isinstance(keys, list)
        or not isinstance(primaries, list)
        or (len(keys), len(primaries)) != (1, 1)
    ):
        raise malformed(path, "it does not have one recovery key and one primary key")
    match primaries[0]:
        case [str(algorithm), bytes(public)]:
            pass
        case _:
            raise malformed(path, "its primary key is not an array of algorithm and public key")
    try:
        return RecoveryKey(_key(keys[0], path), algorithm, public)
    except IdentityError as error:
        raise malformed(path, f"its keys do not match ({error})") from error


AUDITOR_MAGIC: Final = b"parley1 auditor key\n"

_AUDITOR_FILE: Final = Container(AUDITOR_MAGIC, "an auditor's key file")


def is_auditor_file(path: PathLike) -> bool:
    """Return whether a file is an auditor's key file, by its first bytes; False if it can't be
    read.
    """
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
    """Write an auditor's key to a new file, encrypted if a passphrase is given.

    Raises the same errors as `save_identity`.

    Example:

        from parley.journal import AuditorPrivateKey, save_auditor_key

        save_auditor_key("auditor.key", AuditorPrivateKey.create())
    """
    _AUDITOR_FILE.save(path, key.private_bytes() + key.public, passphrase, cost)


def load_auditor_key(path: PathLike, passphrase: bytes | None = None) -> AuditorPrivateKey:
    """Read an auditor's key from a file. Raises the same errors as `load_identity`.

    Example:

        from parley.journal import AuditorPrivateKey, load_auditor_key, save_auditor_key

        save_auditor_key("auditor.key", AuditorPrivateKey.create())
        auditor = load_auditor_key("auditor.key")
    """
    return _auditor_key(_AUDITOR_FILE.load(path, passphrase), path)


def _auditor_key(payload: bytes, path: PathLike) -> AuditorPrivateKey:
    if len(payload) != 2 * AUDITOR_KEY_SIZE:
        raise malformed(
            path, f"it has {len(payload)} bytes of keys in place of {2 * AUDITOR_KEY_SIZE}"
        )
    key = AuditorPrivateKey(payload[:AUDITOR_KEY_SIZE])
    # Detects an altered private key, which would be valid but unable to decrypt any box.
    if key.public != payload[AUDITOR_KEY_SIZE:]:
        raise malformed(
            path, f"its private key belongs to {key.public}, which is not the public key in it"
        )
    return key


# The kinds of key files, each with the function that checks its payload.
_KINDS: Final[Mapping[Container, Callable[[bytes, PathLike], object]]] = {
    _FILE: _identity,
    _RECOVERY_FILE: _recovery,
    _AUDITOR_FILE: _auditor_key,
}


def is_encrypted(path: PathLike) -> bool:
    """Return whether a key file of any kind is encrypted with a passphrase.

    Raises the same errors as `load_identity`.
    """
    data = _read(path)
    return _container(path, data).cost(path, data) is not None


def change_passphrase(
    path: PathLike,
    old: bytes | None,
    new: bytes | None,
    *,
    cost: PassphraseCost | None = None,
) -> None:
    """Replace a key file, recovery file or auditor's key file by one with another passphrase.

    The new file has a new salt and nonce, and is read back before it replaces the old one. A crash
    leaves the old or the new file. If an error is raised, the file is unchanged, unless the error
    says otherwise. Copies of the file keep the old passphrase.

    Args:
        path: the key file; its directory must be writable.
        old: the present passphrase; ignored if the file isn't encrypted.
        new: the new passphrase, at least 1 byte; None removes the encryption.
        cost: the cost of a guess; by default that of the present file, or else 3 passes over
            256 MiB.

    Raises:
        KeyFileUnreadableError: the file can't be read or replaced, is a symbolic link, another
            process is changing it, or this process is root and another user could redirect it.
        KeyFileTooOpenError: other users can read or write it.
        KeyFileMalformedError: it is truncated or altered, or not a key file.
        PassphraseNeededError: it is encrypted, and `old` is None.
        WrongPassphraseError: `old` is wrong, or the file was altered.
        PassphraseError: `new` is empty.

    Example:

        from parley import Identity, change_passphrase, load_identity, save_identity

        save_identity("node.key", Identity.create(), b"correct horse")
        change_passphrase("node.key", b"correct horse", b"battery staple")
        identity = load_identity("node.key", b"battery staple")
    """
    # Renaming would replace a symbolic link, and leave its target with the old passphrase.
    with _opened(path, os.O_NOFOLLOW) as descriptor:
        _lock(path, descriptor)
        data = _contents(path, descriptor)
        kind = _container(path, data)
        payload = kind.decode(path, data, old)
        _KINDS[kind](payload, path)
        fresh = kind.encode(path, payload, new, cost or kind.cost(path, data) or DEFAULT_COST)

        def check(copy: Path) -> None:
            try:
                same = kind.load(copy, new) == payload
            except KeyFileError as error:
                raise _unchanged(path, f"cannot read the new file back: {error}") from error
            if not same:
                raise _unchanged(path, "the new file has other bytes than were written")
            _require_locked(path, descriptor)

        try:
            replace_file(Path(path), fresh, check)
        except OSError as error:
            raise _unusable("replace", path, error) from error


def _container(path: PathLike, data: bytes) -> Container:
    for kind in _KINDS:
        if data.startswith(kind.magic):
            return kind
    raise malformed(path, "it is not a key file of version 1")


def _lock(path: PathLike, descriptor: int) -> None:
    """Lock the open file, so that two processes don't both replace it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _unchanged(path, "another process is changing it; try again") from error
    except OSError:
        pass  # a file system without locks
    # Another process can have replaced the file after we opened it.
    _require_locked(path, descriptor)


def _require_locked(path: PathLike, descriptor: int) -> None:
    try:
        same = os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except OSError as error:
        raise _unusable("replace", path, error) from error
    if not same:
        raise _unchanged(path, "another process has replaced it; try again")


def _unchanged(path: PathLike, reason: str) -> KeyFileUnreadableError:
    return KeyFileUnreadableError(f"cannot replace the key file '{os.fspath(path)}': {reason}")
