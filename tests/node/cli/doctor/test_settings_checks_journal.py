"""`parley doctor`: findings about the journal in the settings."""

import os
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import save_auditor_key
from parley._node.cli.doctor import settings_checks as checks
from parley._node.cli.doctor.settings_checks import check_journal
from tests.node.cli.conftest import Parley

ONE, OTHER = (AuditorPrivateKey.create() for _ in range(2))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal's, that the settings name."""
    directory, home = tmp_path / "journal", tmp_path / "home"
    directory.mkdir(0o700)
    home.mkdir(0o700)
    monkeypatch.setenv("PARLEY_HOME", str(home))
    monkeypatch.setenv("PARLEY_JOURNAL_DIRECTORY", str(directory))
    monkeypatch.setenv("PARLEY_JOURNAL_AUDITORS", f"{ONE.public},{OTHER.public}")
    monkeypatch.setattr(checks, "FEW_SEGMENTS", 0)  # however little room this machine has
    return directory


def levels() -> dict[str, str]:
    return {finding.subject.split()[0]: str(finding.level) for finding in check_journal(None)}


def test_as_it_should_be(directory: Path) -> None:
    assert levels() == {"journal": "ok", "auditors": "ok"}
    directory.rmdir()
    assert levels() == {"journal": "ok", "auditors": "ok"}


@pytest.mark.parametrize(
    ("mode", "level"), [(0o750, "weak"), (0o770, "problem"), (0o777, "problem")]
)
def test_others_in_the_directory(directory: Path, mode: int, level: str) -> None:
    directory.chmod(mode)
    assert levels()["journal"] == level


def test_no_directory(directory: Path) -> None:
    directory.rmdir()
    directory.touch()
    assert levels()["journal"] == "problem"


def test_another_user_s(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = directory.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert levels()["journal"] == "problem"


def test_little_room(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FEW_SEGMENTS", 2**60)
    assert levels()["journal's"] == "weak"
    monkeypatch.setenv("PARLEY_JOURNAL_ON_FAILURE", "stop")
    (found,) = (each for each in check_journal(None) if each.subject == "journal's disk")
    assert "the node will stop" in found.text


def test_keys(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_JOURNAL_AUDITORS", f"{ONE.public},{ONE.public}")
    assert levels()["auditors"] == "note"
    (directory / "other").write_bytes(b"no key")
    assert "file" not in levels()
    for place in (directory, tmp_path / "home"):
        save_auditor_key(place / "auditor.key", ONE)
        assert levels()["file"] == "weak"
        (place / "auditor.key").unlink()


@pytest.mark.parametrize("name", ["DIRECTORY", "AUDITORS"])
def test_one_half_of_it(directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(f"PARLEY_JOURNAL_{name}")
    assert levels() == {"journal": "problem"}


@pytest.mark.process
def test_doctor_says_it(parley: Parley, directory: Path) -> None:
    directory.chmod(0o777)
    done = parley("doctor", "--json")
    assert (done.code, done.last["problem"]) == (1, 1)
    assert "chmod 700" in parley("doctor").out
