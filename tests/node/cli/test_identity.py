"""`parley id`: key files made and shown, and those that are refused."""

import json
from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, load_identity, save_identity
from tests.node.cli.conftest import Parley


def _passphrase(path: Path, text: bytes) -> str:
    path.write_bytes(text)
    path.chmod(0o600)
    return str(path)


def test_new_and_show_tell_the_same(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = parley("id", "new", str(path))
    assert made.code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    identity = load_identity(path)
    assert str(identity.node_id) in made.out
    assert str(identity.node_id.uuid) in made.out
    assert "ed25519" in made.out
    shown = parley("id", "show", str(path))
    assert (shown.code, shown.out) == (0, made.out)


def test_json_of_an_identity(parley: Parley, tmp_path: Path) -> None:
    path = str(tmp_path / "key")
    made = parley("id", "new", path, "--json", "--algorithm", "ml-dsa-65, ed25519,ecdsa-p256")
    assert made.code == 0
    (line,) = made.lines
    assert line["event"] == "done"
    assert line["algorithms"] == ["ml-dsa-65", "ed25519", "ecdsa-p256"]
    sizes = {name: len(key) // 2 for name, key in line["public_keys"].items()}
    assert sizes == {"ml-dsa-65": 1952, "ed25519": 32, "ecdsa-p256": 65}
    assert line["encrypted"] is False
    assert line["path"] == path
    assert parley("id", "show", path, "--json").lines == [line]


def test_private_keys_are_never_shown(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = parley("id", "new", str(path), "--json").out + parley("id", "show", str(path)).out
    private = load_identity(path).keys[0].private_bytes()
    assert private.hex() not in made


def test_a_passphrase_seals_the_file(parley: Parley, tmp_path: Path) -> None:
    path = str(tmp_path / "key")
    right = _passphrase(tmp_path / "right", b"correct horse\r\n")
    same = _passphrase(tmp_path / "same", b"correct horse")
    wrong = _passphrase(tmp_path / "wrong", b"battery staple\n")
    save_identity(path, Identity.create(), b"correct horse", cost=PassphraseCost(1, 8))
    for file in (right, same):
        assert parley("id", "show", path, "--passphrase-file", file, "--json").last["encrypted"]
    for arguments, sentence in (
        (
            ["--passphrase-file", wrong],
            f"cannot decrypt the key file '{path}': the passphrase is wrong, "
            "or the file was altered",
        ),
        ([], f"cannot open the key file '{path}': it is encrypted; give its passphrase"),
    ):
        done = parley("id", "show", path, *arguments)
        assert done == (6, "", f"parley: {sentence}\n")
        assert parley("id", "show", path, "--json", *arguments).last["code"] == 6


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot read the passphrase in '{}': the file is empty"),
        (b"\n", "cannot read the passphrase in '{}': the file is empty"),
        (b"x" * 5000, "cannot read '{}': it is longer than 4,096 bytes"),
    ],
)
def test_a_passphrase_file_holds_one(
    parley: Parley, tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = _passphrase(tmp_path / "passphrase", content)
    done = parley("id", "new", str(tmp_path / "key"), "--passphrase-file", file)
    assert done == (6, "", f"parley: {sentence.format(file)}\n")
    assert not (tmp_path / "key").exists()


@pytest.mark.slow
def test_a_passphrase_that_others_can_read_is_warned_of(parley: Parley, tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_bytes(b"secret")
    file.chmod(0o644)
    done = parley("id", "new", str(tmp_path / "key"), "--passphrase-file", str(file), "--json")
    assert done.code == 0
    assert len(done.lines) == 1
    assert (
        done.err
        == f"parley: warning: other users can read {file}; make it private with: chmod 600 {file}\n"
    )
    assert done.last["encrypted"] is True
    assert load_identity(tmp_path / "key", b"secret").keys


def test_a_key_file_is_never_overwritten(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"dear")
    done = parley("id", "new", str(path))
    assert done == (
        6,
        "",
        f"parley: cannot create the key file '{path}': a file already exists there\n",
    )
    assert path.read_bytes() == b"dear"
    done = parley("id", "new", str(tmp_path))
    assert done == (
        6,
        "",
        f"parley: cannot create the key file '{tmp_path}': a directory already exists there\n",
    )


@pytest.mark.parametrize(
    "command", [["id", "new", ""], ["id", "show", ""], ["journal", "keygen", "--out", ""]]
)
def test_an_empty_path_is_none(parley: Parley, command: list[str]) -> None:
    done = parley(*command)
    assert (done.code, done.out) == (2, "")
    assert "the path '' is empty" in done.err


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_key_file_that_others_can_use_is_refused(
    parley: Parley, tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "key"
    assert parley("id", "new", str(path)).code == 0
    path.chmod(mode)
    done = parley("id", "show", str(path))
    assert done == (
        6,
        "",
        f"parley: cannot use the key file '{path}': other users can access it; run chmod 600\n",
    )
    for command in (["serve"], ["call", "tcp://127.0.0.1:1", "t"], ["ping", "tcp://127.0.0.1:1"]):
        refused = parley(*command, "--identity", str(path), "--json")
        assert refused.code == 6
        assert [line["event"] for line in refused.lines] == ["error"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "open the key file"),
        (b"", "it is not a key file of version 1"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "it is not a key file of version 1"),
        (b"parley1 key file\n\x00", "it is truncated or altered"),
    ],
)
def test_what_is_no_key_file(
    parley: Parley, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    done = parley("id", "show", str(path))
    assert done.code == 6
    assert done.err.startswith("parley: cannot ")
    assert sentence in done.err
    assert str(path) in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("path", ["missing/key", "."])
def test_where_no_key_file_can_be_made(
    parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = parley("id", "new", path)
    assert done.code == 6
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("rsa", "unknown signing 'rsa'"),
        ("ed25519,rsa", "unknown signing 'rsa'"),
        ("", "invalid --algorithm '': the list is empty"),
        (" , ", "invalid --algorithm ' , ': the list is empty"),
    ],
)
def test_algorithms_that_make_no_identity(
    parley: Parley, tmp_path: Path, algorithm: str, sentence: str
) -> None:
    path = tmp_path / "key"
    done = parley("id", "new", str(path), "--algorithm", algorithm)
    assert done.code == 2
    assert done.err.startswith(f"parley: {sentence}")
    assert not path.exists()


def test_an_algorithm_named_twice_is_one_key(parley: Parley, tmp_path: Path) -> None:
    made = parley("id", "new", str(tmp_path / "key"), "--json", "--algorithm", "ed25519,ed25519")
    assert json.loads(made.out)["algorithms"] == ["ed25519"]
