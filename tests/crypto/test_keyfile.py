"""Tests of crypto/keyfile.py: modes, passphrases, and every invalid file (row 23)."""

import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto import keyfile as container
from parley._crypto.errors import (
    KeyFileError,
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    WrongPassphraseError,
)
from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, describe_keyfile, load_identity, save_identity
from parley._crypto.registry import SIGNING
from parley._lbm.codec import encode

MAGIC = b"parley1 key file\n"
COSTS = len(MAGIC) + 1
CHEAP = PassphraseCost(passes=1, memory_kib=8)  # the least that libsodium accepts
PASSPHRASE = b"correct horse"
IDENTITY = Identity.create(tuple(SIGNING))

both_forms = pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "identity.key"


def put(path: Path, data: bytes) -> Path:
    """Replace the file at `path` by one of mode 0600."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(data)
    return path


def saved(path: Path, passphrase: bytes | None) -> bytes:
    save_identity(path, IDENTITY, passphrase, cost=CHEAP)
    return path.read_bytes()


@both_forms
@pytest.mark.parametrize("algorithms", [("ed25519",), ("ml-dsa-65", "ed25519"), tuple(SIGNING)])
def test_what_was_saved_is_loaded(
    path: Path, passphrase: bytes | None, algorithms: tuple[str, ...]
) -> None:
    identity = Identity.create(algorithms)
    save_identity(path, identity, passphrase, cost=CHEAP)
    assert describe_keyfile(path) is (passphrase is not None)
    again = load_identity(str(path), passphrase)
    assert again.node_id == identity.node_id
    assert again.public == identity.public
    assert [key.private_bytes() for key in again.keys] == [
        key.private_bytes() for key in identity.keys
    ]


@both_forms
def test_the_format_is_the_documented_one(path: Path, passphrase: bytes | None) -> None:
    data = saved(path, passphrase)
    assert data[:COSTS] == MAGIC + bytes((passphrase is not None,))
    if passphrase is None:
        keys = [[key.algorithm, key.private_bytes(), key.public] for key in IDENTITY.keys]
        assert data[COSTS:] == encode({256: keys})
    else:
        assert struct.unpack_from(">II", data, COSTS) == (1, 8)
        for key in IDENTITY.keys:
            assert key.private_bytes() not in data
            assert key.public not in data


# Modes


def test_mode_is_0600_under_a_closed_umask(path: Path) -> None:
    before = os.umask(0o777)
    try:
        save_identity(path, IDENTITY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(path, None)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:  # root can read root's files anyway
        assert load_identity(path).node_id == IDENTITY.node_id
        os.chown(path, 12345, -1)
    with pytest.raises(KeyFileTooOpenError):
        load_identity(path)


# Files that cannot be written or read


@both_forms
def test_nothing_is_overwritten(path: Path, passphrase: bytes | None) -> None:
    data = saved(path, None)
    with pytest.raises(KeyFileExistsError):
        save_identity(path, Identity.create(), passphrase, cost=CHEAP)
    assert path.read_bytes() == data


def test_no_link_is_followed_in_writing(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.symlink_to(target)
    with pytest.raises(KeyFileExistsError):
        save_identity(path, IDENTITY)
    assert not target.exists()


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    directory = tmp_path / "directory"
    directory.mkdir(0o700)
    for path in (tmp_path / "absent", pipe, directory, tmp_path / "absent" / "x"):
        with pytest.raises(KeyFileUnreadableError):
            load_identity(path)
        with pytest.raises(KeyFileUnreadableError):
            describe_keyfile(path)
    with pytest.raises(KeyFileUnreadableError):
        save_identity(tmp_path / "absent" / "x", IDENTITY)


def test_a_failed_read_is_a_typed_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(path, None)

    def fstat(descriptor: int) -> os.stat_result:
        raise OSError(5, "input/output error")

    # Undo immediately, because pytest itself checks the status of its files after the test.
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fstat)
        with pytest.raises(KeyFileUnreadableError):
            load_identity(path)


def test_a_failed_write_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyFileUnreadableError):
        save_identity(path, IDENTITY)
    assert not path.exists()


# Passphrases


def test_wrong_missing_and_empty_passphrases(path: Path) -> None:
    saved(path, PASSPHRASE)
    with pytest.raises(PassphraseNeededError):
        load_identity(path)
    for wrong in (b"", b"correct horsf", PASSPHRASE + b"\0", PASSPHRASE[:-1]):
        with pytest.raises(WrongPassphraseError):
            load_identity(path, wrong)
    with pytest.raises(PassphraseError):
        save_identity(path.with_name("other"), IDENTITY, b"", cost=CHEAP)
    assert not path.with_name("other").exists()


def test_a_plain_file_takes_any_passphrase(path: Path) -> None:
    saved(path, None)
    assert load_identity(path, PASSPHRASE).node_id == IDENTITY.node_id


def test_salt_and_nonce_are_fresh(path: Path) -> None:
    one = saved(path, PASSPHRASE)
    other = saved(path.with_name("other"), PASSPHRASE)
    assert one[COSTS + 8 : COSTS + 24] != other[COSTS + 8 : COSTS + 24]
    assert one[COSTS + 24 : COSTS + 48] != other[COSTS + 24 : COSTS + 48]


@pytest.mark.parametrize(
    ("passes", "memory_kib"),
    [(0, 8), (17, 8), (2**32 - 1, 8), (1, 0), (1, 7), (1, 1_048_577), (1, 2**32 - 1)],
)
def test_hostile_costs_are_refused_before_any_work(
    path: Path, passes: int, memory_kib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(saved(path, PASSPHRASE))
    struct.pack_into(">II", data, COSTS, passes, memory_kib)
    put(path, bytes(data))

    def stretch(*_: object) -> bytes:
        raise AssertionError("the costs were paid")

    monkeypatch.setattr(container, "_stretch", stretch)
    with pytest.raises(KeyFileMalformedError):
        load_identity(path, PASSPHRASE)
    with pytest.raises(ValueError, match="Argon2id"):
        PassphraseCost(passes, memory_kib)


def test_costs_are_authenticated(path: Path) -> None:
    data = bytearray(saved(path, PASSPHRASE))
    struct.pack_into(">II", data, COSTS, 2, 8)
    with pytest.raises(WrongPassphraseError):
        load_identity(put(path, bytes(data)), PASSPHRASE)


def test_memory_that_cannot_be_had(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(path, PASSPHRASE)

    def pwhash(*_: object) -> bytes:
        raise RuntimeError("Unexpected library error")

    monkeypatch.setattr("nacl.bindings.crypto_pwhash_alg", pwhash)
    with pytest.raises(KeyFileError):
        load_identity(path, PASSPHRASE)


# Truncated and altered files


@both_forms
def test_truncated_files(path: Path, passphrase: bytes | None) -> None:
    data = saved(path, passphrase)
    for size in {0, 1, len(MAGIC), COSTS, COSTS + 1, COSTS + 47, *range(0, len(data), 97)}:
        with pytest.raises((KeyFileMalformedError, WrongPassphraseError)):
            load_identity(put(path, data[:size]), passphrase)
    with pytest.raises((KeyFileMalformedError, WrongPassphraseError)):
        load_identity(put(path, data + b"\0"), passphrase)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_flipped_bits(path: Path, passphrase: bytes | None) -> None:
    save_identity(path, Identity.create(("ed25519", "ecdsa-p256")), passphrase, cost=CHEAP)
    data = path.read_bytes()
    # In an encrypted file, except the costs, because flipped bits in them can make reading slow.
    for position in set(range(len(data))) - set(range(COSTS, COSTS + 8)):
        altered = bytearray(data)
        altered[position] ^= 1 << position % 8
        with pytest.raises((KeyFileMalformedError, WrongPassphraseError)):
            load_identity(put(path, bytes(altered)), passphrase)


def test_a_file_too_long_to_be_one(path: Path) -> None:
    with pytest.raises(KeyFileMalformedError):
        load_identity(put(path, MAGIC + bytes(container.MAX_FILE_SIZE)))


ED25519 = IDENTITY.key("ed25519")
GOOD = ["ed25519", ED25519.private_bytes(), ED25519.public]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {256: []},
        {256: {}},
        {256: [GOOD, GOOD]},
        {256: [GOOD], 257: 1},
        {0: b"", 256: [GOOD]},
        {256: ["ed25519"]},
        {256: [GOOD[:2]]},
        {256: [[*GOOD, b""]]},
        {256: [["rsa", *GOOD[1:]]]},
        {256: [[1, *GOOD[1:]]]},
        {256: [["ed25519", "text", GOOD[2]]]},
        {256: [["ed25519", b"short", GOOD[2]]]},
        {256: [["ed25519", bytes(32), GOOD[2]]]},
        {256: [["ed25519", GOOD[1], "text"]]},
        {256: [["ecdsa-p256", bytes(32), bytes(65)]]},
    ],
)
def test_payloads_that_hold_no_identity(path: Path, payload: dict[int, Any]) -> None:
    with pytest.raises(KeyFileMalformedError):
        load_identity(put(path, MAGIC + b"\0" + encode(payload)))


@given(st.binary(max_size=80), st.sampled_from([b"", MAGIC, MAGIC + b"\0", MAGIC + b"\2"]))
def test_any_bytes_give_the_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    path = put(tmp_path_factory.getbasetemp() / "any.key", start + data)
    with pytest.raises(KeyFileError) as caught:
        load_identity(path)
    assert PASSPHRASE.decode() not in str(caught.value)
    assert type(caught.value) in (KeyFileMalformedError, PassphraseNeededError)
