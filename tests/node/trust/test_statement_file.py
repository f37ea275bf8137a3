"""Statement files: vectors, and files that are written, read and refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import StatementError
from parley._crypto.identity import Identity
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._node.errors import FileError
from parley._node.trust.statement_file import (
    FIRST_LINE,
    MAX_FILE_SIZE,
    format_statement,
    load_statement,
    read_statement,
    save_statement,
)
from tests.vectors.load import Vector, of_kind, unhex, vectors

STATEMENT = create_revocation(Identity.create())


@vectors("keys", of_kind("file"), fails=False)
def test_a_file(vector: Vector, tmp_path: Path) -> None:
    (tmp_path / "statement").write_bytes(unhex(vector["input"]))
    statement = load_statement(tmp_path / "statement")
    assert statement.encoded.hex() == vector["expected"]["statement"]
    assert read_statement(format_statement(statement)) == statement


@vectors("keys", of_kind("file"), fails=True)
def test_a_refused_file(vector: Vector, tmp_path: Path) -> None:
    (tmp_path / "statement").write_bytes(unhex(vector["input"]))
    with pytest.raises(StatementError) as caught:
        load_statement(tmp_path / "statement")
    assert caught.value.reason == vector["fails"]


@pytest.mark.parametrize("algorithm", ["ed25519", "ml-dsa-65"])
def test_a_saved_statement_is_loaded(tmp_path: Path, algorithm: str) -> None:
    _, recovery = Identity.create_recoverable((algorithm,))
    statement = create_succession(recovery, Identity.create_recoverable((algorithm,))[0])
    path = tmp_path / "statement"
    save_statement(path, statement)
    assert load_statement(path) == statement
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines()
    assert lines[0] == FIRST_LINE
    assert max(map(len, lines)) <= 76


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "statement"
    path.write_bytes(b"dear")
    with pytest.raises(FileError, match="cannot create the statement file"):
        save_statement(path, STATEMENT)
    assert path.read_bytes() == b"dear"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError):
        save_statement(link, STATEMENT)
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot create"):
        save_statement(tmp_path / "missing" / "statement", STATEMENT)
    with pytest.raises(FileError, match="cannot read"):
        load_statement(tmp_path / "missing")
    with pytest.raises(FileError, match="cannot read"):
        load_statement(tmp_path)


def test_a_long_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "statement"
    path.touch()
    with open(path, "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(StatementError, match=f"more than {MAX_FILE_SIZE:,} bytes"):
        load_statement(path)


@given(st.binary(max_size=80) | st.text("AB=\n\r ", max_size=100).map(str.encode))
def test_any_bytes_give_the_typed_error(data: bytes) -> None:
    for contents in (data, FIRST_LINE + b"\n" + data):
        with pytest.raises(StatementError):
            read_statement(contents)


def test_a_read_statement_is_not_verified_yet() -> None:
    changed = bytearray(STATEMENT.encoded)
    changed[-1] ^= 1
    forged = Statement.parse(bytes(changed))
    read = read_statement(format_statement(forged))
    with pytest.raises(StatementError) as caught:
        read.verify()
    assert caught.value.reason == "signature"
