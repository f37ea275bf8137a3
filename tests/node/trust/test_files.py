"""Owners and modes of small files that root and services share."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from parley._node.errors import KnownPeersError
from parley._node.trust.files import locked, make_directories, replace_file

# IDs of users and groups that need not exist.
SERVICE, GROUP, OTHERS = 54_321, 54_322, 54_323
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
    os.chown(tmp_path, OTHERS, OTHERS)
    path = file_of(tmp_path / "known_peers", SERVICE, GROUP, 0o640)
    replace(path)
    assert access(path) == (SERVICE, GROUP, 0o640)


@as_root
def test_root_gives_new_files_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, SERVICE, GROUP)
    inner = tmp_path / "config" / "parley"
    with locked(inner / "known_peers", KnownPeersError):
        replace_file(inner / "known_peers", b"new", KnownPeersError)
    for path in (inner / "known_peers", inner / "known_peers.lock"):
        assert access(path) == (SERVICE, GROUP, 0o600)
    for path in (inner, inner.parent):
        assert access(path) == (SERVICE, GROUP, 0o700)


@as_root
def test_root_gives_nothing_away_that_was_there_before(tmp_path: Path) -> None:
    """The owner of a directory must not get files by links to them."""
    os.chown(tmp_path, SERVICE, GROUP)
    (tmp_path / "directory").mkdir()
    make_directories(tmp_path / "directory")
    assert access(tmp_path / "directory")[0] == 0
    secret = file_of(tmp_path / "secret", 0, 0, 0o600)
    for name in ("linked.lock", "known_peers"):
        (tmp_path / name).symlink_to(secret)
    os.link(secret, tmp_path / "hard.lock")
    for name in ("linked", "hard"):
        with locked(tmp_path / name, KnownPeersError):
            pass
    replace_file(tmp_path / "known_peers", b"new", KnownPeersError)
    assert access(secret) == (0, 0, 0o600)
    assert secret.read_bytes() == b"old"


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
