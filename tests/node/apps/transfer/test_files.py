"""Tests of node/apps/transfer/files.py: a closed descriptor is not used again."""

import os
from pathlib import Path

import pytest

from parley._node.apps.transfer.files import OpenFile


def test_an_open_file_is_read_and_written(tmp_path: Path) -> None:
    file = OpenFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT, 0o600))
    assert file.write(0, memoryview(b"content")) == 7
    file.sync()
    assert file.read(3, 100) == b"tent"
    assert file.status().st_size == 7
    file.truncate()
    assert file.read(0, 1) == b""
    file.close()


def test_a_closed_one_leaves_the_next_with_its_number_alone(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT, 0o600)
    file = OpenFile(fd)
    file.close()
    with (tmp_path / "b").open("wb") as next_one:
        assert next_one.fileno() == fd
        for operation in (
            lambda: file.write(0, memoryview(b"x")),
            file.truncate,
            file.sync,
            lambda: file.read(0, 1),
        ):
            with pytest.raises(OSError, match="Bad file descriptor"):
                operation()
        file.close()
        next_one.write(b"mine")
    assert (tmp_path / "b").read_bytes() == b"mine"
