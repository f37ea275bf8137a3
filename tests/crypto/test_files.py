"""Root changes files only where no other user can redirect the change."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from parley._crypto.files import check_owners, replace_file

# The ID of a user that need not exist.
USER = 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root can change the files of all users")


def in_child(run: Callable[[], object]) -> None:
    """Run a function in another process, which it may change."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in two directories of root."""
    path = tmp_path / "upper" / "home" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old")
    return path


@as_root
@pytest.mark.parametrize("level", ["upper/home", "upper"])
def test_a_directory_of_another_user(path: Path, tmp_path: Path, level: str) -> None:
    os.chown(tmp_path / level, USER, USER)
    with pytest.raises(PermissionError, match=rf"{level}' belongs to .* sudo -u '#{USER}'"):
        replace_file(path, b"new")
    assert os.listdir(path.parent) == ["file"]
    assert path.read_bytes() == b"old"


@as_root
@pytest.mark.parametrize("target", ["relative", "absolute", "through another"])
def test_a_directory_of_another_user_behind_links(path: Path, tmp_path: Path, target: str) -> None:
    """The user can move a directory away, and put a link in its place, at any moment."""
    os.chown(path.parents[1], USER, USER)
    link = tmp_path / "link"
    if target == "through another":
        (path.parents[1] / "evil").symlink_to("/etc")
        link.symlink_to("upper/evil")
    else:
        link.symlink_to(path.parent if target == "absolute" else "upper/home")
    with pytest.raises(PermissionError, match=r"upper' belongs to"):
        check_owners(link / "file")


@as_root
@pytest.mark.parametrize("name", ["link", "link/file"])
def test_a_link_of_another_user(path: Path, tmp_path: Path, name: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    check_owners(tmp_path / name)
    os.chown(link, USER, USER, follow_symlinks=False)
    with pytest.raises(PermissionError, match=r"link' belongs to"):
        check_owners(tmp_path / name)


@as_root
def test_the_hint_names_the_user(path: Path) -> None:
    os.chown(path.parent, 65_534, -1)
    with pytest.raises(PermissionError, match=r"run this as that user: sudo -u nobody$"):
        check_owners(path)


@as_root
def test_files_that_root_may_change(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(path, USER, USER)
    check_owners(path)
    check_owners(tmp_path / "missing" / "file")
    check_owners(tmp_path / "upper" / ".." / "upper" / "home")
    monkeypatch.chdir(path.parent)
    check_owners(Path("file"))
    replace_file(Path("file"), b"new")
    assert path.read_bytes() == b"new"


@as_root
def test_links_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        check_owners(tmp_path / "loop" / "file")


@as_root
@pytest.mark.process
def test_a_container_whose_root_directory_belongs_to_another_user(path: Path) -> None:
    """That user can change everything anyway."""
    directory = path.parents[1]
    os.chown(directory, USER, USER)
    os.chown(path.parent, USER, USER)

    def inside() -> None:
        os.chroot(directory)
        check_owners(Path("/home/file"))

    in_child(inside)


@as_root
@pytest.mark.process
def test_other_users_are_not_restricted(path: Path) -> None:
    """They can change nothing for which the owner needs them."""
    os.chown(path.parent, USER + 1, USER + 1)

    def as_user() -> None:
        os.chdir(path.parent)  # this user may not pass the directories above it
        os.setuid(USER)
        check_owners(path)
        check_owners(Path("file"))

    in_child(as_user)
