"""Tests of node/transport/sockets.py: error messages, and files that must not be removed."""

import errno
import os
import socket
from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._node.errors import UnreachableError
from parley._node.transport.address import Address
from parley._node.transport.sockets import (
    SocketFile,
    claim_unix_path,
    connect_error,
    listen_error,
    remote_name,
)

TCP = Address("tcp", "127.0.0.1", 4000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


def kind_of(path: Path) -> str:
    """Return the kind of a file."""
    if path.is_socket():
        return "socket"
    if path.is_fifo():
        return "pipe"
    if path.is_dir():
        return "directory"
    return "file" if path.exists() else "nothing"


def make(path: Path, kind: str) -> None:
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)


def bound(path: Path, *, listening: bool) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    if listening:
        bound.listen(1)
    return bound


@pytest.mark.parametrize(
    ("peer", "name"),
    [(("192.0.2.1", 5), "192.0.2.1"), (("::1", 5, 0, 0), "::1"), ("", "unix"), (None, "unix")],
)
def test_where_a_connection_comes_from(peer: object, name: str) -> None:
    assert remote_name(peer) == name


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "nothing is listening there"),
        (FileNotFoundError(errno.ENOENT, "x"), "there is no such socket"),
        (PermissionError(errno.EACCES, "x"), "permission denied"),
        (OSError(errno.ENETUNREACH, "x"), "the network is unreachable"),
        (OSError(errno.EHOSTUNREACH, "x"), "the host is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("several at once"), "several at once"),
    ],
)
def test_why_nobody_was_reached(error: OSError, text: str) -> None:
    address = TCP.with_node_id(Identity.create().node_id)
    translated = connect_error(address, error)
    assert isinstance(translated, UnreachableError)
    assert str(translated) == f"cannot reach {TCP}: {text}"


def test_the_cause_of_a_nameless_error_is_told() -> None:
    error = OSError("All connection attempts failed")
    error.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    assert str(connect_error(TCP, error)).endswith("nothing is listening there")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EADDRINUSE, "the address is in use"),
        (errno.EEXIST, "another kind of file is in the way"),
        (errno.EACCES, "permission denied"),
        (errno.EADDRNOTAVAIL, "this machine has no such address"),
        (errno.ENOENT, "the directory does not exist"),
        (errno.EMFILE, os.strerror(errno.EMFILE)),
    ],
)
def test_why_it_cannot_be_listened_on(number: int, text: str) -> None:
    error = listen_error(TCP, OSError(number, os.strerror(number)))
    assert str(error) == f"cannot listen on {TCP}: {text}"


# Claiming.


@pytest.mark.anyio
async def test_a_stale_socket_is_removed(path: Path) -> None:
    bound(path, listening=False).close()
    await claim_unix_path(Address("unix", path=str(path)))
    assert kind_of(path) == "nothing"
    await claim_unix_path(Address("unix", path=str(path)))


@pytest.mark.anyio
async def test_a_served_socket_is_left_alone(path: Path) -> None:
    with bound(path, listening=True):
        with pytest.raises(OSError, match="in use") as caught:
            await claim_unix_path(Address("unix", path=str(path)))
        assert caught.value.errno == errno.EADDRINUSE
        assert kind_of(path) == "socket"


@pytest.mark.anyio
async def test_a_socket_whose_backlog_is_full_is_served(path: Path) -> None:
    waiting = []
    with bound(path, listening=True):
        for _ in range(10):
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting[-1].setblocking(False)
            if waiting[-1].connect_ex(str(path)) == errno.EAGAIN:
                break
        with pytest.raises(OSError, match="in use"):
            await claim_unix_path(Address("unix", path=str(path)))
        assert kind_of(path) == "socket"
    for end in waiting:
        end.close()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["file", "directory", "pipe"])
async def test_other_files_are_left_alone(path: Path, kind: str) -> None:
    make(path, kind)
    with pytest.raises(OSError, match="exists") as caught:
        await claim_unix_path(Address("unix", path=str(path)))
    assert caught.value.errno == errno.EEXIST
    assert kind_of(path) == kind


# Removing.


def test_the_file_is_removed_if_it_is_the_one_that_was_bound(path: Path) -> None:
    with bound(path, listening=True):
        file = SocketFile(Address("unix", path=str(path)))
        file.remove()
        assert not path.exists()
        file.remove()
        with bound(path, listening=True):
            file.remove()
            assert path.exists()


def test_tcp_has_no_file() -> None:
    SocketFile(TCP).remove()
