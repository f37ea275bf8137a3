"""The user's own key is created once, even by concurrent processes, and is never replaced."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parley._crypto.errors import KeyFileMalformedError, KeyFileTooOpenError, PassphraseNeededError
from parley._crypto.identity import Identity
from parley._crypto.keyfile import describe_keyfile, load_identity, save_identity
from parley._node.cli import default_identity as own_key
from parley._node.cli.default_identity import default_identity, default_key_path
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.node.cli.test_options import common


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home, which is not there yet."""
    return tmp_path / "home"


def silent(sentence: str) -> None:
    """Fail if a warning is printed."""
    raise AssertionError(sentence)


def test_it_is_made_once(home: Path) -> None:
    first = default_identity(None, silent)
    assert default_identity(None, silent).node_id == first.node_id
    assert default_key_path().stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert os.listdir(home) == ["identity.key"]  # and leaves no temporary file


def test_two_that_make_it_at_once_have_the_same(home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: default_identity(None, silent).node_id, range(16)))
    assert len(set(made)) == 1
    assert os.listdir(home) == ["identity.key"]


def test_nobody_sees_half_of_the_one_that_id_new_makes(
    home: Path, parley: Parley, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Identity] = []
    give_mode = os.fchmod

    def while_it_is_written(descriptor: int, mode: int) -> None:
        monkeypatch.setattr(os, "fchmod", give_mode)
        made.append(default_identity(None, silent))
        give_mode(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", while_it_is_written)
    done = parley("id", "new")
    assert (done.code, done.err) == (
        6,
        f"parley: cannot create the key file '{default_key_path()}': it exists already\n",
    )
    assert [one.node_id for one in made] == [default_identity(None, silent).node_id]
    assert os.listdir(home) == ["identity.key"]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system as FAT is, and some mounts."""

    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


def test_where_there_are_no_links_it_is_made_once_too(no_links: None, home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: default_identity(None, silent).node_id, range(16)))
    assert len(set(made)) == 1
    assert default_key_path().stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(home)) == ["identity.key", "identity.key.lock"]


def test_where_others_could_read_it_none_is_kept(
    no_links: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def save(path: Path, identity: Identity, passphrase: bytes | None) -> None:
        save_identity(path, identity, passphrase)
        path.chmod(0o755)  # as FAT has it of all files

    monkeypatch.setattr(own_key, "save_identity", save)
    default_identity(None, said.append)
    assert said == [
        f"cannot save the key (cannot create a key file in '{home}': its file system cannot "
        "make a file readable only by its owner): "
        "using a temporary identity, so peers will not recognise this node next time"
    ]
    assert os.listdir(home) == []


@pytest.mark.slow
def test_it_is_made_under_the_passphrase_that_is_given() -> None:
    default_identity(b"secret", silent)
    assert describe_keyfile(default_key_path())
    with pytest.raises(PassphraseNeededError):
        default_identity(None, silent)


def test_a_broken_one_is_never_replaced(home: Path) -> None:
    home.mkdir()
    path = default_key_path()
    path.write_bytes(b"half of a key")
    path.chmod(0o600)
    with pytest.raises(KeyFileMalformedError):
        default_identity(None, silent)
    assert path.read_bytes() == b"half of a key"
    path.chmod(0o644)
    with pytest.raises(KeyFileTooOpenError):
        default_identity(None, silent)


def test_where_nothing_can_be_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    home.write_text("a file where the directory would be")
    made = default_identity(None, said.append)
    assert default_identity(None, said.append).node_id != made.node_id
    monkeypatch.setenv("PARLEY_HOME", "~no-such-user-of-this-system")
    default_identity(None, said.append)
    assert all(one.startswith("cannot save the key (") for one in said)
    assert "cannot find the home directory; set PARLEY_HOME" in said[-1]
    assert len(said) == 3


def test_which_identity_options_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = Identity.create()
    save_identity(tmp_path / "key", named)
    assert common(identity_path=tmp_path / "key").identity().node_id == named.node_id
    assert not common(identity_path=tmp_path / "key").uses_own_identity
    assert not default_key_path().exists()
    common(plaintext=True).identity()  # the warning is not printed
    assert common(fresh=True).identity().node_id != common(fresh=True).identity().node_id
    assert not common(fresh=True).uses_own_identity
    assert not default_key_path().exists()
    own = common().identity()
    assert common().uses_own_identity
    assert own.node_id == common().identity().node_id == load_identity(default_key_path()).node_id
    assert common(signing="ml-dsa-65,ed25519").identity().node_id == own.node_id
    assert capsys.readouterr().err == ""
    assert common(signing="ml-dsa-65").identity().algorithms == ("ml-dsa-65",)
    said = capsys.readouterr().err
    assert said == (
        "parley: warning: your key has no ml-dsa-65 part: using a temporary identity, so "
        "peers will not recognise this node next time\n"
    )


def test_identity_and_fresh_exclude_each_other(parley: Parley, tmp_path: Path) -> None:
    key = tmp_path / "key"
    done = parley("serve", "--fresh", "--identity", str(key))
    text = f"parley: cannot use --identity '{key}' with --fresh: leave one of the options out\n"
    assert done == (2, "", text)


def test_it_is_shown(parley: Parley, home: Path) -> None:
    path = str(home / "identity.key")
    none = parley("id", "show")
    assert (none.code, none.out) == (6, "")
    assert none.err.startswith(f"parley: cannot show your key '{path}': it does not exist yet; ")
    made = parley("id", "new", "--json")
    assert (made.code, made.last["path"]) == (0, path)
    shown = parley("id", "show", "--json").last
    assert shown == made.last
    assert len(shown["words"].split()) == 10
    assert shown["words"] in parley("id", "show").out
    assert "it exists already" in parley("id", "new").err  # it is never written over


def test_a_server_that_starts_again_is_the_same_node(processes: Processes, parley: Parley) -> None:
    first, (address,) = processes.serve()
    # Who dials their own node does so with a throw-away key.
    asked = parley("call", address, "parley.info", "--json").last["data"]
    assert (
        asked["node_id"]
        == address.partition("#")[2]
        == parley("id", "show", "--json").last["node_id"]
    )
    assert asked["caller"] not in (None, asked["node_id"])
    first.stop()
    second, (again,) = processes.serve()
    assert again.partition("#")[2] == address.partition("#")[2]
    second.stop()
    third, (fresh,) = processes.serve("--fresh")
    assert fresh.partition("#")[2] != address.partition("#")[2]
    third.stop()
