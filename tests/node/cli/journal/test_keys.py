"""`parley journal keygen`, and `parley id show` for auditors' keys."""

from pathlib import Path

import pytest

from parley._crypto import keyfile as container
from parley._crypto.auditor import AuditorKey
from parley._crypto.keyfile import load_auditor_key
from tests.node.cli.conftest import Parley


def test_a_pair_is_made(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "auditor.key"
    made = parley("journal", "keygen", "--out", str(path))
    private = load_auditor_key(path)
    assert (made.code, made.out) == (0, f"{private.public.text}\n")
    assert AuditorKey.parse(made.out.strip()) == private.public
    assert str(path) in made.err
    assert path.stat().st_mode & 0o777 == 0o600
    shown = parley("id", "show", str(path), "--json")
    assert shown.lines == [{"event": "done", "path": str(path), "auditor": private.public.text}]
    assert private.private_bytes().hex() not in made.out + made.err + shown.out


def test_no_file_is_overwritten(
    parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parley("journal", "keygen").code == 0
    before = Path("auditor.key").read_bytes()
    assert parley("journal", "keygen").code == 6
    assert Path("auditor.key").read_bytes() == before


def test_a_passphrase(parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a guess costs is tested with the container; here it would only take its second.
    monkeypatch.setattr(container, "_stretch", lambda passphrase, *_: passphrase.ljust(32))
    passphrase = tmp_path / "passphrase"
    passphrase.touch(0o600)
    passphrase.write_text("correct horse\n")
    path = str(tmp_path / "auditor.key")
    made = parley("journal", "keygen", "--out", path, "--passphrase-file", str(passphrase))
    assert made.code == 0
    assert parley("id", "show", path).code == 6
    shown = parley("id", "show", path, "--passphrase-file", str(passphrase))
    assert shown.out == made.out
    identity = str(tmp_path / "identity")
    assert parley("id", "new", identity).code == 0
    assert parley("id", "show", identity, "--json").last["algorithms"] == ["ed25519"]
