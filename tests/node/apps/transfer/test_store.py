"""Tests of node/apps/transfer/store.py: it writes only in its directory, and never overwrites."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import parley._node.apps.transfer.store as store_module
from parley._node.apps.transfer.names import PARTIAL_ENDING, partial_name
from parley._node.apps.transfer.protocol import (
    FileOffer,
    RefusalCode,
    TransferRefused,
    storage_refusal,
)
from parley._node.apps.transfer.store import FileStore, Partial

CONTENT = b"content"


def offer(content: bytes = CONTENT, name: str = "a") -> FileOffer:
    return FileOffer(name, len(content), hashlib.sha256(content).digest())


def partial_of(wanted: FileOffer) -> str:
    return partial_name(wanted.name, wanted.size, wanted.sha256)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


@pytest.fixture
def store(directory: Path) -> Iterator[FileStore]:
    with FileStore(directory) as store:
        yield store


@pytest.fixture
def forcing(directory: Path) -> Iterator[FileStore]:
    with FileStore(directory, force=True) as store:
        yield store


def put(store: FileStore, content: bytes = CONTENT, name: str = "a") -> None:
    partial = store.open_partial(offer(content, name))
    try:
        partial.write(content)
        assert partial.digest() == hashlib.sha256(content).digest()
        store.place(partial, name)
    finally:
        partial.close()


def refused(code: RefusalCode) -> "pytest.RaisesExc[TransferRefused]":
    return pytest.RaisesExc(TransferRefused, check=lambda error: error.code == code)


def test_a_file_is_placed_for_its_owner_only(store: FileStore, directory: Path) -> None:
    put(store)
    assert os.listdir(directory) == ["a"]
    assert (directory / "a").read_bytes() == CONTENT
    assert stat.S_IMODE((directory / "a").stat().st_mode) == 0o600
    assert (directory / "a").stat().st_nlink == 1


def test_partial_file_is_resumed_only_for_the_same_offer(store: FileStore, directory: Path) -> None:
    first = store.open_partial(offer())
    first.write(CONTENT[:3])
    first.close()
    for other in (offer(b"another"), offer(name="b")):
        partial = store.open_partial(other)
        assert partial.size == 0
        partial.close()
    again = store.open_partial(offer())
    assert again.size == 3
    again.close()


def test_partial_file_that_is_too_long_is_restarted(store: FileStore, directory: Path) -> None:
    (directory / partial_of(offer())).write_bytes(CONTENT * 2)
    partial = store.open_partial(offer())
    assert partial.size == 0
    partial.close()


def test_another_file_keeps_its_name(store: FileStore, directory: Path) -> None:
    (directory / "a").write_bytes(b"mine")
    with refused(RefusalCode.EXISTS):
        store.open_existing(offer())
    with refused(RefusalCode.EXISTS):
        put(store)
    assert (directory / "a").read_bytes() == b"mine"


def test_one_that_came_meanwhile_keeps_it_too(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "require_replaceable", lambda name: None)  # created after that
    (directory / "a").write_bytes(b"mine")
    with refused(RefusalCode.EXISTS):
        put(store)
    assert (directory / "a").read_bytes() == b"mine"


def test_force_replaces(forcing: FileStore, directory: Path) -> None:
    (directory / "a").write_bytes(b"mine")
    assert forcing.open_existing(offer()) is None
    put(forcing)
    assert (directory / "a").read_bytes() == CONTENT
    assert os.listdir(directory) == ["a"]


def test_a_directory_is_never_replaced(forcing: FileStore, directory: Path) -> None:
    (directory / "a").mkdir()
    with refused(RefusalCode.EXISTS):
        forcing.open_existing(offer())
    with refused(RefusalCode.EXISTS):
        put(forcing)


@pytest.mark.parametrize("force", [False, True])
def test_links_are_not_followed(directory: Path, tmp_path: Path, force: bool) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(CONTENT)
    (directory / "a").symlink_to(outside)
    with FileStore(directory, force=force) as store:
        if force:
            assert store.open_existing(offer()) is None
            put(store, b"new")
            assert not (directory / "a").is_symlink()
        else:
            with refused(RefusalCode.EXISTS):
                store.open_existing(offer())
    assert outside.read_bytes() == CONTENT


def test_a_partial_is_no_link_and_no_pipe(
    store: FileStore, directory: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    path = directory / partial_of(offer())
    path.symlink_to(outside)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        store.open_partial(offer())
    path.unlink()
    os.mkfifo(path)
    with refused(RefusalCode.STORAGE):
        store.open_partial(offer())
    path.unlink()
    outside.write_bytes(b"")
    path.hardlink_to(outside)
    with refused(RefusalCode.STORAGE):
        store.open_partial(offer())
    assert outside.read_bytes() == b""


def test_two_processes_do_not_mix(store: FileStore, directory: Path) -> None:
    partial = store.open_partial(offer())
    with FileStore(directory) as other, refused(RefusalCode.BUSY):
        other.open_partial(offer())
    partial.close()
    with FileStore(directory) as other:
        other.open_partial(offer()).close()


def test_a_partial_that_was_placed_while_one_waited(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def placed_meanwhile(self: Partial, fd: int, name: str) -> None:
        really(self, fd, name)
        (directory / name).rename(directory / "a")

    really = Partial.__init__
    monkeypatch.setattr(Partial, "__init__", placed_meanwhile)
    with refused(RefusalCode.BUSY):
        store.open_partial(offer())


def test_limits(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(directory, max_size=6) as store, refused(RefusalCode.TOO_LARGE):
        store.open_partial(offer())
    with FileStore(directory) as store:
        full = SimpleNamespace(f_bavail=0, f_frsize=4096)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstatvfs", lambda fd: full)
            with refused(RefusalCode.NO_SPACE):
                store.open_partial(offer())
        assert os.listdir(directory) == []
        store.open_partial(offer()).close()


def begun(store: FileStore, name: str, sender: str, at: int) -> str:
    """Begin a transfer and stop it at a time in seconds; return the name of its partial file."""
    partial = store.open_partial(offer(name=name), sender)
    partial.write(CONTENT[:3])
    partial.close()
    os.utime(store.directory / partial.name, (at, at))
    return partial.name


def test_sender_with_many_partial_files_loses_one_to_another(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_PARTIALS", 4)
    good = begun(store, "good", "ann", 1)
    bad = [begun(store, f"bad{number}", "mallory", 100 - number) for number in range(3)]
    for number in range(9):
        begun(store, f"more{number}", "mallory", 200 + number)
    assert good in os.listdir(directory)
    assert not set(bad) & set(os.listdir(directory))
    new = begun(store, "new", "bob", 300)
    assert {good, new} < set(os.listdir(directory))
    assert len(os.listdir(directory)) == 4
    # A partial file is resumed, whichever node sends it now.
    assert store.open_partial(offer(name="good"), "carol").size == 3
    assert len(os.listdir(directory)) == 4


def test_files_being_written_are_not_evicted(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_PARTIALS", 2)
    open_ones = [store.open_partial(offer(name=name), "mallory") for name in "ab"]
    with refused(RefusalCode.NO_SPACE):
        store.open_partial(offer(name="c"), "ann")
    for partial in open_ones:
        partial.close()
    store.open_partial(offer(name="c"), "ann").close()
    assert len(os.listdir(directory)) == 2


def test_partial_files_without_a_sender_are_evicted(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_PARTIALS", 2)
    for name in "abc":
        (directory / partial_of(offer(name=name))).write_bytes(CONTENT[:1])
    new = begun(store, "new", "ann", 1)
    assert new in os.listdir(directory)
    assert len(os.listdir(directory)) == 2


def test_files_that_are_named_like_partial_ones_do_not_count(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_PARTIALS", 2)
    for number in range(3):
        put(store, name=f"f{number}{PARTIAL_ENDING}")
    store.open_partial(offer()).close()


def test_disks_without_hard_links(
    store: FileStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "")

    monkeypatch.setattr(os, "link", no_links)
    put(store)
    assert (directory / "a").read_bytes() == CONTENT
    monkeypatch.setattr(store, "require_replaceable", lambda name: None)
    with refused(RefusalCode.EXISTS):
        put(store, b"other")
    assert (directory / "a").read_bytes() == CONTENT


def test_discarded_file_is_deleted(store: FileStore, directory: Path) -> None:
    partial = store.open_partial(offer())
    store.discard(partial)
    store.discard(partial)
    partial.close()
    assert os.listdir(directory) == []


def test_the_directory_stays_the_one_that_was_opened(
    store: FileStore, directory: Path, tmp_path: Path
) -> None:
    directory.rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    directory.symlink_to(tmp_path / "elsewhere")
    put(store)
    assert os.listdir(tmp_path / "moved") == ["a"]
    assert os.listdir(tmp_path / "elsewhere") == []


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileStore(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        FileStore(tmp_path / "file")


def test_disk_errors_sent_to_the_sender_reveal_no_details() -> None:
    full = storage_refusal(OSError(errno.ENOSPC, "No space", "/secret/path"))
    broken = storage_refusal(OSError(errno.EIO, "I/O error", "/secret/path"))
    assert (full.code, broken.code) == (RefusalCode.NO_SPACE, RefusalCode.STORAGE)
    assert "secret" not in full.text + broken.text
