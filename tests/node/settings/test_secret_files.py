"""Tests of node/settings/secret_files.py: valid and invalid files, and warnings."""

from pathlib import Path

import pytest

from parley._node.errors import FileError
from parley._node.settings.secret_files import LONGEST, read_network_key, read_passphrase

KEY = bytes(range(32))


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), b" " + KEY.hex().encode() + b"\n"])
def test_a_network_key(tmp_path: Path, content: bytes) -> None:
    said: list[str] = []
    assert read_network_key(write(tmp_path / "key", content), said.append) == KEY
    assert said == []


@pytest.mark.parametrize(
    "content", [b"", bytes(32), KEY[:-1], KEY + b"\n", b"zz" * 32, b"\xff" * 64, b"00" * 32]
)
def test_what_is_no_network_key(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(FileError, match="cannot read the network key in"):
        read_network_key(write(tmp_path / "key", content), print)


def test_a_passphrase_without_its_line_s_end(tmp_path: Path) -> None:
    assert read_passphrase(write(tmp_path / "p", b" a b \r\n"), print) == b" a b "
    with pytest.raises(FileError, match="cannot read the passphrase in"):
        read_passphrase(write(tmp_path / "p", b"\n"), print)


def test_files_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*: No such file"):
        read_passphrase(tmp_path / "none", print)
    with pytest.raises(FileError, match="it is longer than"):
        read_passphrase(write(tmp_path / "p", b"x" * (LONGEST + 1)), print)


def test_who_lets_others_read_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    path = write(tmp_path / "key", KEY, 0o640)
    assert read_network_key(path, said.append) == KEY
    assert said == [f"other users can read {path}; make it private with: chmod 600 {path}"]
