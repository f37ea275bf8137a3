"""Owners and modes of small files that root and services share."""

import errno
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.statements import create_revocation
from parley._node.errors import KnownPeersError, ParleyError
from parley._node.trust.files import locked, read_file, replace_file
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import KnownPeers

# IDs of users and groups that need not exist.
SERVICE, GROUP, OTHERS = 54_321, 54_322, 54_323
NODE_ID, NOW = NodeId(bytes(32)), datetime(2027, 1, 1, tzinfo=UTC)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")


def access(path: Path) -> tuple[int, int, int]:
    """Return the owner, the group and the permissions of a file."""
    status = os.stat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def file_of(path: Path, uid: int, gid: int, mode: int) -> Path:
    """Create a file with this owner, group and mode."""
    path.write_bytes(b"old")
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def replace(path: Path) -> None:
    """Replace a file."""
    replace_file(path, b"new", KnownPeersError)
    assert os.listdir(path.parent) == [path.name]  # no temporary file


def as_service(directory: Path, run: Callable[[], object]) -> None:
    """Run a function in a directory as an unprivileged user of the groups GROUP and OTHERS."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(directory)  # this user may not pass the directories above it
            os.setgroups([OTHERS])
            os.setgid(GROUP)
            os.setuid(SERVICE)
            run()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = file_of(tmp_path / "known_peers", os.geteuid(), os.getegid(), mode)
    replace(path)
    assert access(path) == (os.geteuid(), os.getegid(), mode)
    assert path.read_bytes() == b"new"


def test_a_new_file_is_private(tmp_path: Path) -> None:
    replace(tmp_path / "known_peers")
    assert access(tmp_path / "known_peers")[2] == 0o600


@as_root
def test_root_keeps_the_owner_of_a_file(tmp_path: Path) -> None:
    """As in a directory that a service can only read."""
    path = file_of(tmp_path / "known_peers", SERVICE, GROUP, 0o640)
    replace(path)
    assert access(path) == (SERVICE, GROUP, 0o640)


def lock(path: Path) -> None:
    """Lock a file."""
    with locked(path, KnownPeersError):
        pass


@as_root
@pytest.mark.parametrize(
    "change",
    [
        lock,
        lambda path: lock(path.parent / "config" / path.name),
        lambda path: replace_file(path, b"new", KnownPeersError),
        lambda path: KnownPeers(path).add(NODE_ID, "bob", NOW),
        lambda path: KeyStatements(path).apply(create_revocation(Identity.create()).encoded),
    ],
)
@pytest.mark.parametrize("place", ["home", "outside"])
def test_root_changes_nothing_in_a_directory_of_another_user(
    tmp_path: Path, change: Callable[[Path], object], place: str
) -> None:
    """The owner could put links in the place of directories and files, at any moment."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    if place == "outside":
        # The file or its directory leads to root's files, as `/etc` or a file there.
        (home / "known_peers").symlink_to(outside / "file")
        (home / "swapped").symlink_to(outside)
    os.chown(home, SERVICE, GROUP)
    before = sorted(os.listdir(home))
    for path in (home / "known_peers", home / "swapped" / "known_peers"):
        with pytest.raises(ParleyError, match=f"belongs to the user .* sudo -u '#{SERVICE}'"):
            change(path)
    assert sorted(os.listdir(home)) == before
    assert os.listdir(outside) == []


@as_root
def test_root_can_read_files_of_another_user(tmp_path: Path) -> None:
    known = KnownPeers(tmp_path / "known_peers")
    known.add(NODE_ID, "bob", NOW)
    os.chown(tmp_path, SERVICE, GROUP)
    again = KnownPeers(known.path)
    assert again.by_name("bob") is not None
    with pytest.raises(KnownPeersError, match="sudo -u"):
        again.forget(NODE_ID)


def test_a_lock_is_not_opened_through_a_link(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "known_peers"
    (tmp_path / "known_peers.lock").symlink_to(target)
    for _ in range(2):
        with pytest.raises(KnownPeersError, match=r"cannot open .*known_peers\.lock"):
            lock(path)
        target.touch()


def test_files_are_reached_through_links(tmp_path: Path) -> None:
    """A link stays, and its target is locked and replaced."""
    path, link = tmp_path / "known_peers", tmp_path / "link"
    link.symlink_to(path)
    KnownPeers(link).add(NODE_ID, "bob", NOW)
    assert link.is_symlink()
    assert KnownPeers(path).by_name("bob") is not None
    assert not (tmp_path / "link.lock").exists()


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_a_failed_read_leaves_no_open_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "known_peers"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    opened: list[int] = []
    original = os.open

    def recording(*args: Any, **options: Any) -> int:
        opened.append(original(*args, **options))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", recording)
        with pytest.raises(KnownPeersError, match="not a regular file"):
            read_file(path, 100, KnownPeersError)
    (descriptor,) = opened
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


@as_root
@pytest.mark.process
@pytest.mark.parametrize(
    ("uid", "gid", "mode", "after"),
    [
        (SERVICE, GROUP, 0o640, (SERVICE, GROUP, 0o640)),
        (SERVICE, OTHERS, 0o640, (SERVICE, OTHERS, 0o640)),
        # The group is kept, and so is its right.
        (0, OTHERS, 0o660, (SERVICE, OTHERS, 0o660)),
        # The right of another group is not given to the group of this user.
        (0, 0, 0o664, (SERVICE, GROUP, 0o600)),
    ],
)
def test_an_unprivileged_user_keeps_what_it_may(
    tmp_path: Path, uid: int, gid: int, mode: int, after: tuple[int, int, int]
) -> None:
    os.chown(tmp_path, SERVICE, GROUP)
    path = file_of(tmp_path / "known_peers", uid, gid, mode)
    as_service(tmp_path, lambda: replace(Path("known_peers")))
    assert access(path) == after
