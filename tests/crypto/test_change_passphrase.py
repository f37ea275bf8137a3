"""Changing the passphrase of a key file: the old or the new file, and nothing else, remains."""

import errno
import fcntl
import os
import resource
import stat
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.errors import (
    KeyFileError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    WrongPassphraseError,
)
from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    MAX_FILE_SIZE,
    PassphraseCost,
    change_passphrase,
    is_encrypted,
    load_auditor_key,
    load_identity,
    load_recovery,
    save_auditor_key,
    save_identity,
    save_recovery,
)
from parley._crypto.registry import SIGNING
from parley._lbm.codec import encode
from tests.crypto.test_files import USER, as_root

CHEAP: Final = PassphraseCost(passes=1, memory_kib=8)
OTHER: Final = PassphraseCost(passes=2, memory_kib=16)
OLD, NEW = b"correct horse", b"battery staple"
IDENTITY: Final = Identity.create(tuple(SIGNING))
RECOVERABLE, RECOVERY = Identity.create_recoverable()
AUDITOR: Final = AuditorPrivateKey.create()
MAGIC: Final = b"parley1 key file\n"
COSTS: Final = len(MAGIC) + 1
LEFTOVER: Final = ".node.key.0123456789abcdef.new"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A key file under the old passphrase, alone in its directory."""
    path = tmp_path / "node.key"
    save_identity(path, IDENTITY, OLD, cost=CHEAP)
    return path


@pytest.fixture
def unchanged(path: Path) -> Iterator[None]:
    """Check that the test leaves the key file as it was, and no other file."""
    before = path.read_bytes(), path.stat()
    yield
    assert (path.read_bytes(), path.stat().st_ino) == (before[0], before[1].st_ino)
    assert os.listdir(path.parent) == [path.name]


# Changes


@pytest.mark.parametrize("new", [NEW, OLD, None], ids=["other", "same", "none"])
@pytest.mark.parametrize("old", [OLD, None], ids=["sealed", "plain"])
@pytest.mark.parametrize("kind", ["identity", "recovery", "auditor"])
def test_it_is_changed(tmp_path: Path, kind: str, old: bytes | None, new: bytes | None) -> None:
    path = tmp_path / "a key"
    if kind == "identity":
        save_identity(path, IDENTITY, old, cost=CHEAP)
    elif kind == "recovery":
        save_recovery(path, RECOVERY, old, cost=CHEAP)
    else:
        save_auditor_key(path, AUDITOR, old, cost=CHEAP)
    before = path.read_bytes()
    change_passphrase(str(path), old, new, cost=CHEAP)
    assert is_encrypted(path) is (new is not None)
    if kind == "identity":
        assert [key.private_bytes() for key in load_identity(path, new).keys] == [
            key.private_bytes() for key in IDENTITY.keys
        ]
    elif kind == "recovery":
        assert load_recovery(path, new).node_id == RECOVERABLE.node_id
    else:
        assert load_auditor_key(path, new).private_bytes() == AUDITOR.private_bytes()
    assert (path.read_bytes() == before) is (old is new is None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a key"]


def test_the_old_passphrase_no_longer_opens_it(path: Path) -> None:
    change_passphrase(path, OLD, NEW)
    with pytest.raises(WrongPassphraseError):
        load_identity(path, OLD)


def test_salt_and_nonce_are_new_even_for_the_same_passphrase(path: Path) -> None:
    old = path.read_bytes()
    change_passphrase(path, OLD, OLD)
    new = path.read_bytes()
    assert old[: COSTS + 8] == new[: COSTS + 8]
    assert old[COSTS + 8 : COSTS + 24] != new[COSTS + 8 : COSTS + 24]
    assert old[COSTS + 24 : COSTS + 48] != new[COSTS + 24 : COSTS + 48]


def test_the_payload_is_copied_byte_by_byte(path: Path) -> None:
    change_passphrase(path, OLD, None)
    keys = [[key.algorithm, key.private_bytes(), key.public] for key in IDENTITY.keys]
    assert path.read_bytes() == MAGIC + b"\0" + encode({256: keys})


def test_the_costs_stay_or_are_given(path: Path) -> None:
    change_passphrase(path, OLD, NEW)
    assert struct.unpack_from(">II", path.read_bytes(), COSTS) == (1, 8)
    change_passphrase(path, NEW, OLD, cost=OTHER)
    assert struct.unpack_from(">II", path.read_bytes(), COSTS) == (2, 16)
    change_passphrase(path, OLD, NEW)
    assert struct.unpack_from(">II", path.read_bytes(), COSTS) == (2, 16)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


@pytest.mark.slow
def test_a_plain_file_gets_the_usual_costs(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    save_identity(path, IDENTITY)
    change_passphrase(path, None, NEW)
    assert struct.unpack_from(">II", path.read_bytes(), COSTS) == (3, 262_144)


def test_a_file_that_its_owner_cannot_write_is_replaced(path: Path) -> None:
    path.chmod(0o400)
    change_passphrase(path, OLD, NEW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_name_of_the_file_keeps_the_old_passphrase(path: Path) -> None:
    copy = path.with_name("copy.key")
    os.link(path, copy)
    change_passphrase(path, OLD, NEW)
    assert load_identity(copy, OLD).node_id == load_identity(path, NEW).node_id


def test_a_relative_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    change_passphrase(path.name, OLD, NEW)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


def test_a_directory_behind_a_symbolic_link_is_used(path: Path) -> None:
    directory = path.parent / "linked"
    directory.symlink_to(path.parent)
    change_passphrase(directory / path.name, OLD, NEW)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


# Wrong arguments and files


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, NEW, PassphraseNeededError),
        (NEW, NEW, WrongPassphraseError),
        (b"", NEW, WrongPassphraseError),
        (OLD, b"", PassphraseError),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_wrong_passphrases(
    path: Path, old: bytes | None, new: bytes, expected: type[KeyFileError]
) -> None:
    with pytest.raises(expected) as caught:
        change_passphrase(path, old, new)
    assert OLD.decode() not in str(caught.value)
    assert NEW.decode() not in str(caught.value)


@pytest.mark.usefixtures("unchanged")
def test_a_file_that_others_can_read(path: Path) -> None:
    path.chmod(0o640)
    with pytest.raises(KeyFileTooOpenError):
        change_passphrase(path, OLD, NEW)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir(0o700)
    for name in ("pipe", "directory", "absent", "absent/node.key"):
        with pytest.raises(KeyFileUnreadableError):
            change_passphrase(tmp_path / name, None, NEW)
    assert sorted(os.listdir(tmp_path)) == ["directory", "pipe"]


def test_a_symbolic_link_is_refused(path: Path) -> None:
    link, before = path.with_name("link.key"), path.read_bytes()
    link.symlink_to(path.name)
    with pytest.raises(KeyFileUnreadableError, match="it is a symbolic link; give the path of"):
        change_passphrase(link, OLD, NEW)
    assert link.is_symlink()
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["link.key", "node.key"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"parley1 other file\n\0" + bytes(64),
        MAGIC,
        MAGIC + b"\2",
        MAGIC + b"\0" + encode({256: []}),  # would be encrypted although it is damaged
        MAGIC + b"\0" + encode({256: [["ed25519", bytes(32), bytes(32)]]}),
        MAGIC + b"\1" + struct.pack(">II", 17, 8) + bytes(80),
        b"parley1 recovery file\n\0" + encode({256: [], 257: []}),
        b"parley1 auditor key\n\0" + bytes(63),
        MAGIC + bytes(MAX_FILE_SIZE),
    ],
)
def test_damaged_files(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(KeyFileMalformedError):
        change_passphrase(path, OLD, NEW, cost=CHEAP)
    assert path.read_bytes() == data
    assert os.listdir(path.parent) == [path.name]


def test_every_flipped_bit_is_found_first(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    save_auditor_key(path, AUDITOR)
    data = path.read_bytes()
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 1 << position % 8
        path.write_bytes(altered)
        with pytest.raises(KeyFileMalformedError):
            change_passphrase(path, None, NEW, cost=CHEAP)
        assert path.read_bytes() == altered
    assert os.listdir(tmp_path) == ["node.key"]


# Failures of the system


@contextmanager
def owned_by_an_ordinary_user(directory: Path) -> Iterator[None]:
    """Run as an ordinary user who owns the directory and is in it, because root can write to every
    directory.
    """
    if os.geteuid() != 0:
        yield
        return
    user = 12_345
    for each in (directory, *directory.iterdir()):
        os.chown(each, user, -1)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.usefixtures("unchanged")
def test_a_directory_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)  # an ordinary user can't reach it by its absolute path
    path.parent.chmod(0o500)
    try:
        with owned_by_an_ordinary_user(path.parent):
            assert load_identity(path.name, OLD).node_id == IDENTITY.node_id
            with pytest.raises(KeyFileUnreadableError, match="Permission denied"):
                change_passphrase(path.name, OLD, NEW)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("size", [0, 1, 100, 500])
@pytest.mark.usefixtures("unchanged")
def test_a_full_disk(path: Path, size: int) -> None:
    """A limit of the size of files stands for the full disk: a part of the file is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(KeyFileUnreadableError, match="File too large"):
            change_passphrase(path, OLD, NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("free", [0, 1, 2, 3])
@pytest.mark.usefixtures("unchanged")
def test_too_many_open_files(path: Path, free: int) -> None:
    """The key file, its directory, the new file, and reading that need four descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 8, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        with pytest.raises(KeyFileUnreadableError, match="Too many open files"):
            change_passphrase(path, OLD, NEW)
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_name_without_space_for_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / ("k" * 250)
    save_identity(path, IDENTITY, OLD, cost=CHEAP)
    with pytest.raises(KeyFileUnreadableError, match="File name too long"):
        change_passphrase(path, OLD, NEW)
    assert load_identity(path, OLD).node_id == IDENTITY.node_id
    assert os.listdir(tmp_path) == [path.name]


Fsync = Callable[[int], None]


@pytest.fixture
def at_sync(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fsync], None]:
    """Calls a function before each flush to the disk."""
    fsync = os.fsync

    def install(hook: Fsync) -> None:
        def hooked(descriptor: int) -> None:
            hook(descriptor)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", hooked)

    return install


def _is_directory(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.usefixtures("unchanged")
def test_a_disk_that_fails(path: Path, at_sync: Callable[[Fsync], None]) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    at_sync(fail)
    with pytest.raises(KeyFileUnreadableError, match="Input/output error"):
        change_passphrase(path, OLD, NEW)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.usefixtures("unchanged")
def test_an_interruption(
    path: Path, at_sync: Callable[[Fsync], None], raised: type[BaseException]
) -> None:
    def interrupt(descriptor: int) -> None:
        raise raised

    at_sync(interrupt)
    with pytest.raises(raised):
        change_passphrase(path, OLD, NEW)


def test_a_directory_that_cannot_be_flushed(path: Path, at_sync: Callable[[Fsync], None]) -> None:
    def fail(descriptor: int) -> None:
        if _is_directory(descriptor):
            raise OSError(errno.EIO, "Input/output error")

    at_sync(fail)
    with pytest.raises(KeyFileUnreadableError, match="the new file is in place, but"):
        change_passphrase(path, OLD, NEW)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id
    assert os.listdir(path.parent) == [path.name]


def test_a_file_system_that_does_not_flush_directories(
    path: Path, at_sync: Callable[[Fsync], None]
) -> None:
    def refuse(descriptor: int) -> None:
        if _is_directory(descriptor):
            raise OSError(errno.EINVAL, "Invalid argument")

    at_sync(refuse)
    change_passphrase(path, OLD, NEW)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


@pytest.mark.usefixtures("unchanged")
def test_a_disk_that_stores_other_bytes(path: Path, at_sync: Callable[[Fsync], None]) -> None:
    def alter(descriptor: int) -> None:
        os.pwrite(descriptor, b"\xff", os.fstat(descriptor).st_size - 1)

    at_sync(alter)
    with pytest.raises(KeyFileUnreadableError, match="cannot read the new file back"):
        change_passphrase(path, OLD, NEW)


@pytest.mark.usefixtures("unchanged")
def test_a_disk_that_alters_the_keys(path: Path, at_sync: Callable[[Fsync], None]) -> None:
    def alter(descriptor: int) -> None:
        os.pwrite(descriptor, b"\xff", os.fstat(descriptor).st_size - 1)

    at_sync(alter)
    with pytest.raises(KeyFileUnreadableError, match="other bytes than were written"):
        change_passphrase(path, OLD, None)


def test_the_order_of_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is on the disk before it gets the name, and the name before we return."""
    calls: list[str] = []
    for name in ("fsync", "rename"):
        original = getattr(os, name)

        def call(*args: Any, name: str = name, original: Any = original) -> None:
            of_directory = name == "fsync" and _is_directory(args[0])
            calls.append("fsync directory" if of_directory else name)
            original(*args)

        monkeypatch.setattr(os, name, call)
    change_passphrase(path, OLD, NEW)
    assert calls == ["fsync", "rename", "fsync directory"]


@as_root
@pytest.mark.usefixtures("unchanged")
def test_root_changes_no_file_in_a_directory_of_another_user(path: Path) -> None:
    """Otherwise the owner could not read the key file any more, and could redirect root."""
    os.chown(path.parent, USER, USER)
    with pytest.raises(KeyFileUnreadableError, match=f"cannot replace .* sudo -u '#{USER}'"):
        change_passphrase(path, OLD, NEW)


# Other processes


@pytest.mark.usefixtures("unchanged")
def test_a_file_that_is_being_changed(path: Path) -> None:
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(KeyFileUnreadableError, match="another process is changing it"):
            change_passphrase(path, OLD, NEW)


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    change_passphrase(path, OLD, NEW)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


@pytest.mark.parametrize("moment", ["before the lock", "before the rename"])
def test_a_file_that_another_program_replaces(
    path: Path, monkeypatch: pytest.MonkeyPatch, at_sync: Callable[[Fsync], None], moment: str
) -> None:
    other, lock = path.with_name("other.key"), fcntl.flock
    save_identity(other, Identity.create(), OLD, cost=CHEAP)
    expected = other.read_bytes()

    def replace(*_: int) -> None:
        if other.exists():
            other.rename(path)

    def after_replacing(*args: int) -> None:
        replace()
        lock(*args)

    if moment == "before the lock":
        monkeypatch.setattr(fcntl, "flock", after_replacing)
    else:
        at_sync(replace)
    with pytest.raises(KeyFileUnreadableError, match="another process has replaced it"):
        change_passphrase(path, OLD, NEW)
    assert path.read_bytes() == expected
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_another_program_removes(path: Path, at_sync: Callable[[Fsync], None]) -> None:
    at_sync(lambda _: path.unlink())
    with pytest.raises(KeyFileUnreadableError, match="No such file"):
        change_passphrase(path, OLD, NEW)
    assert os.listdir(path.parent) == []


def test_of_many_changes_at_once_one_succeeds(path: Path) -> None:
    passphrases = [f"passphrase {number}".encode() for number in range(16)]

    def change(new: bytes) -> bytes | None:
        try:
            change_passphrase(path, OLD, new)
        except KeyFileError:
            return None
        return new

    with ThreadPoolExecutor(8) as threads:
        changed = [new for new in threads.map(change, passphrases) if new is not None]
    assert len(changed) == 1
    assert load_identity(path, changed[0]).node_id == IDENTITY.node_id
    assert os.listdir(path.parent) == [path.name]


def test_leftovers_of_killed_processes_are_removed(path: Path) -> None:
    kept = [
        ".node.key.0123456789abcde.new",
        ".node.key.0123456789ABCDEF.new",
        ".other.key.0123456789abcdef.new",
        ".node.key.0123456789abcdef.old",
        "node.key.new",
    ]
    for name in (LEFTOVER, *kept):
        path.with_name(name).write_bytes(b"parley1")
    path.with_name(".node.key.fedcba9876543210.new").mkdir()
    change_passphrase(path, OLD, NEW)
    assert sorted(os.listdir(path.parent)) == sorted(
        [*kept, ".node.key.fedcba9876543210.new", "node.key"]
    )
