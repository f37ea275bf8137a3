"""`parley doctor`: each finding about this machine is provoked once."""

import os
import resource
from pathlib import Path

import pytest

import parley._node.cli.doctor.machine
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.doctor.machine import (
    check_algorithms,
    check_descriptors,
    check_home,
    check_machine,
    versions,
)
from tests.compiled import is_compiled


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("PARLEY_HOME", str(place))
    place.mkdir(mode=0o700)
    return place


def file(home: Path, name: str, mode: int) -> Path:
    path = home / name
    path.touch()
    path.chmod(mode)
    return path


def levels(found: list[Diagnosis]) -> dict[str, Level]:
    return {f.subject: f.level for f in found}


@pytest.mark.process
def test_versions() -> None:
    found = versions()
    assert list(found)[:4] == ["parley", "python", "core", "platform"]
    assert found["core"] == (
        "compiled" if is_compiled("parley._node.protocol.session") else "pure Python"
    )
    assert found["anyio"]
    assert found["openssl"]
    assert {"uvloop", "trio", "pynacl", "cryptography"} <= set(found)


def test_what_is_not_installed_has_no_version() -> None:
    assert parley._node.cli.doctor.machine.installed_version("no-such-distribution-here") is None


def test_algorithms() -> None:
    (good,) = check_algorithms([("kex", "x25519", None), ("hash", "sha256", None)])
    assert good == Diagnosis(Level.OK, "algorithms", "x25519, sha256 work here")
    bad, rest = check_algorithms([("kex", "x25519", "it fails"), ("hash", "sha256", None)])
    assert (bad.level, bad.subject, bad.text) == (Level.PROBLEM, "kex x25519", "it fails")
    assert "leave x25519 out of --kex" in bad.mend
    assert (rest.level, rest.text) == (Level.NOTE, "sha256 work here")


def test_a_home_of_ones_own(home: Path) -> None:
    for name in ("known_peers", "key"):
        file(home, name, 0o600)
    (home / "link").symlink_to("/")
    assert levels(list(check_home())) == {"known peers": Level.OK, "home": Level.OK}


def test_a_home_that_is_not_there(home: Path) -> None:
    home.rmdir()
    (found,) = check_home()
    assert (found.level, found.subject) == (Level.OK, "home")
    assert "does not exist yet" in found.text


def test_no_home_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("PARLEY_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    (found,) = check_home()
    assert (found.level, found.mend) == (Level.PROBLEM, "export PARLEY_HOME=DIRECTORY")


@pytest.mark.parametrize(
    ("mode", "level", "mend"),
    [
        (0o640, Level.WEAK, "chmod go="),
        (0o604, Level.WEAK, "chmod go="),
        (0o620, Level.PROBLEM, "chmod go-w"),
        (0o666, Level.PROBLEM, "chmod go-w"),
    ],
)
def test_a_file_that_others_may_use(home: Path, mode: int, level: Level, mend: str) -> None:
    key = file(home, "my key", mode)
    (found,) = (f for f in check_home() if f.subject == f"file {key}")
    assert (found.level, found.mend) == (level, f"{mend} '{key}'")


def test_a_home_that_others_may_write_to(home: Path) -> None:
    home.chmod(0o770)
    found = list(check_home())
    assert levels(found) == {f"file {home}": Level.PROBLEM, "known peers": Level.OK}
    home.chmod(0o755)
    assert levels(list(check_home()))["home"] is Level.OK


def test_somebody_elses_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    found = {f.subject: f for f in check_home()}[f"file {home}"]
    assert found.level is Level.PROBLEM
    assert found.mend == f"chown 54321 '{home}'"


def test_a_home_that_cannot_be_looked_into(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    (found,) = check_home()
    assert (found.level, found.text) == (
        Level.PROBLEM,
        f"cannot read {home}: Permission denied",
    )


def test_a_broken_file_of_known_peers(home: Path) -> None:
    file(home, "known_peers", 0o600).write_text("nonsense\n")
    found = {f.subject: f for f in check_home()}["known peers"]
    assert found.level is Level.PROBLEM
    assert "line 1" in found.text
    assert str(home / "known_peers") in found.mend


@pytest.mark.parametrize(
    ("soft", "level"),
    [
        (resource.RLIM_INFINITY, Level.OK),
        (10_064, Level.OK),
        (10_063, Level.NOTE),
        (256, Level.NOTE),
        (255, Level.WEAK),
        (0, Level.WEAK),
    ],
)
def test_descriptors(soft: int, level: Level) -> None:
    found = check_descriptors(soft)
    assert found.level is level
    assert found.mend == ("" if level is Level.OK else "ulimit -n 10064")


def test_this_machine(home: Path) -> None:
    found = list(check_machine())
    assert [f.subject for f in found if f.level is Level.PROBLEM] == []
    assert {"algorithms", "home", "descriptors"} <= {f.subject for f in found}
    for finding in found:
        assert finding.text
        assert finding.mend or finding.level is Level.OK
