"""Tests of auditors' key files; the shared container is tested with identities."""

import stat
import struct
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.errors import (
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
)
from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    PassphraseCost,
    load_auditor_key,
    load_identity,
    save_auditor_key,
    save_identity,
)

MAGIC = b"parley1 auditor key\n"
CHEAP = PassphraseCost(passes=1, memory_kib=8)
PASSPHRASE = b"correct horse"
KEY = AuditorPrivateKey(bytes(range(32)))

both_forms = pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "auditor.key"


@both_forms
def test_what_was_saved_is_loaded(path: Path, passphrase: bytes | None) -> None:
    save_auditor_key(path, KEY, passphrase, cost=CHEAP)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = load_auditor_key(path, passphrase)
    assert again.private_bytes() == KEY.private_bytes()
    assert again.public == KEY.public


def test_the_format_is_the_documented_one(path: Path) -> None:
    save_auditor_key(path, KEY)
    assert path.read_bytes() == MAGIC + b"\0" + KEY.private_bytes() + KEY.public
    path.unlink()
    save_auditor_key(path, KEY, PASSPHRASE, cost=CHEAP)
    data = path.read_bytes()
    assert data.startswith(MAGIC + b"\1" + struct.pack(">II", 1, 8))
    assert KEY.private_bytes() not in data


def test_nothing_is_overwritten_and_nobody_else_may_read(path: Path) -> None:
    with pytest.raises(KeyFileUnreadableError):
        load_auditor_key(path)
    save_auditor_key(path, KEY)
    with pytest.raises(KeyFileExistsError):
        save_auditor_key(path, AuditorPrivateKey.create())
    path.chmod(0o640)
    with pytest.raises(KeyFileTooOpenError):
        load_auditor_key(path)


def test_neither_kind_of_key_passes_for_the_other(tmp_path: Path) -> None:
    save_identity(tmp_path / "identity", Identity.create())
    save_auditor_key(tmp_path / "auditor", KEY)
    with pytest.raises(KeyFileMalformedError, match="not an auditor's key file"):
        load_auditor_key(tmp_path / "identity")
    with pytest.raises(KeyFileMalformedError, match="not a key file"):
        load_identity(tmp_path / "auditor")
