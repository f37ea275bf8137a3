"""`parley doctor`: which hosts can reach the address of an unencrypted dialect."""

from dataclasses import replace
from pathlib import Path

import pytest

from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.doctor.settings_checks import (
    check_address,
    check_dialects,
    check_settings,
    keeps_out,
)
from parley._node.errors import AddressError
from parley._node.settings import (
    DialectSettings,
    NamedSettings,
    RelaySettings,
    Settings,
    SimProtoSettings,
)


@pytest.mark.parametrize(
    ("place", "level", "said"),
    [
        ("tcp://127.0.0.1:7101", Level.NOTE, "every program on this machine"),
        ("tcp://[::1]:7101", Level.NOTE, "every program on this machine"),
        ("tcp://0.0.0.0:7101", Level.PROBLEM, "any address of this machine"),
        ("tcp://[::]:7101", Level.PROBLEM, "any address of this machine"),
        ("tcp://192.168.1.7:7101", Level.PROBLEM, "the network of 192.168.1.7"),
        ("tcp://[fe80::1%eth0]:7101", Level.PROBLEM, "the network of fe80::1%eth0"),
        ("tcp://8.8.8.8:7101", Level.PROBLEM, "possibly from anywhere"),
        ("tcp://example.org:7101", Level.PROBLEM, "every host that can reach example.org"),
    ],
)
def test_each_kind_of_address(place: str, level: Level, said: str) -> None:
    found = check_address("SimProto", place)
    assert (found.level, found.subject) == (level, f"SimProto {place}")
    assert "unencrypted" in found.text
    assert said in found.text
    assert found.mend


def test_a_socket_is_as_open_as_what_is_above_it(tmp_path: Path) -> None:
    # pytest's own directory keeps others out.
    assert check_address("x", f"unix://{tmp_path}/s") == Diagnosis(
        Level.OK,
        f"x unix://{tmp_path}/s",
        "unencrypted; only you (and root) can connect",
    )
    found = check_address("x", "unix:///nowhere/of-all/s")
    assert (found.level, found.mend) == (Level.NOTE, "use a private directory: chmod 700")
    assert "other users who can enter /nowhere/of-all may connect" in found.text


@pytest.mark.parametrize(("mode", "kept"), [(0o700, True), (0o744, True), (0o711, False)])
def test_who_can_enter_a_directory(tmp_path: Path, mode: int, kept: bool) -> None:
    directory = tmp_path / "sockets"
    directory.mkdir()
    directory.chmod(mode)
    assert keeps_out(directory, 0o011) is kept
    assert not keeps_out(tmp_path / "none", 0o011)


def test_what_is_no_address_is_none() -> None:
    with pytest.raises(AddressError):
        check_address("x", "here")


def test_every_address_of_the_settings() -> None:
    settings = Settings(
        simproto=SimProtoSettings(listen=("tcp://127.0.0.1:1",)),
        named=NamedSettings(listen=("tcp://10.0.0.1:3",)),
        relay=RelaySettings(listen=("tcp://[::1]:4",)),
    )
    first, refused, last = check_dialects(settings)
    insecure = replace(settings, dialects=DialectSettings(allow_insecure=True))
    allowed = list(check_dialects(insecure))[1]
    assert (first.level, last.level) == (Level.NOTE, Level.NOTE)
    assert refused.level is allowed.level is Level.PROBLEM
    assert "without allow_insecure the server does not listen there" in refused.text
    assert "allow_insecure" not in allowed.text
    assert [f.subject.partition(" tcp")[0] for f in (first, allowed, last)] == [
        "SimProto",
        "named events",
        "event relay",
    ]


def test_settings_from_a_file_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nothing,) = check_settings(None)
    assert (nothing.level, nothing.subject) == (Level.OK, "dialects")
    file = tmp_path / "parley.toml"
    file.write_text("simproto.listen = ['tcp://127.0.0.1:1']")
    monkeypatch.setenv("PARLEY_NAMED_LISTEN", "tcp://0.0.0.0:2")
    assert [found.level for found in check_settings(file)] == [Level.NOTE, Level.PROBLEM]
    file.write_text("simproto.listen = 1")
    (wrong,) = check_settings(file)
    assert (wrong.level, wrong.subject) == (Level.PROBLEM, "settings")
    assert "simproto.listen" in wrong.text
