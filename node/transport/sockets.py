"""Error messages of sockets, and the files of Unix sockets."""

import errno
import os
import socket
import stat

from anyio import to_thread

from parley._node.errors import AddressError, UnreachableError, os_reason
from parley._node.transport.address import Address


def remote_name(peer: object) -> str:
    """Return the host of a TCP connection, otherwise `unix`."""
    if isinstance(peer, tuple) and peer:
        return str(peer[0])
    return "unix"


def check_socket_scheme(address: Address) -> None:
    """Raise AddressError for an address without a socket."""
    if address.scheme == "via":
        raise AddressError(
            f"cannot use {address} here: only native nodes support via:// addresses, and only "
            "to connect"
        )


def connect_error(address: Address, error: OSError) -> UnreachableError:
    reasons = {
        errno.ECONNREFUSED: "nothing is listening there",
        errno.ENOENT: "there is no such socket",
        errno.EACCES: "permission denied",
        errno.ENETUNREACH: "the network is unreachable",
        errno.EHOSTUNREACH: "the host is unreachable",
    }
    return UnreachableError(f"cannot reach {address.without_node_id()}: {_why(error, reasons)}")


def listen_error(address: Address, error: OSError) -> UnreachableError:
    reasons = {
        errno.EADDRINUSE: "the address is in use",
        errno.EEXIST: "another kind of file is in the way",
        errno.EACCES: "permission denied",
        errno.EADDRNOTAVAIL: "this machine has no such address",
        errno.ENOENT: "the directory does not exist",
    }
    return UnreachableError(f"cannot listen on {address.without_node_id()}: {_why(error, reasons)}")


async def claim_unix_path(address: Address) -> None:
    """Remove a socket file on which no process listens.

    Raises:
        OSError: EADDRINUSE if a process listens; EEXIST if it is another kind of file.
    """
    try:
        if await to_thread.run_sync(_is_stale, address.path):
            os.unlink(address.path)
    except FileNotFoundError:
        return


class SocketFile:
    """The file of a Unix socket that this process bound; nothing for tcp."""

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._made = _file_number(address.path) if address.scheme == "unix" else None

    def remove(self) -> None:
        """Remove it, unless another file has replaced it."""
        if self._made is not None and _file_number(self._path) == self._made:
            os.unlink(self._path)


def _file_number(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None  # it is gone already, or the directory is
    return status.st_dev, status.st_ino


def _is_stale(path: str) -> bool:
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except (BlockingIOError, TimeoutError):
            pass  # its backlog is full, so a process listens
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _why(error: OSError, reasons: dict[int, str]) -> str:
    # anyio sets the cause of a failed dial as the cause of its own error. Both it and asyncio join
    # the errors of several addresses of one name, without an error number.
    if not error.errno and isinstance(error.__cause__, OSError):
        error = error.__cause__
    number = error.errno or 0
    if not number and "could not bind on any address" in str(error):
        number = errno.EADDRNOTAVAIL  # asyncio drops the number here since Python 3.12
    return reasons.get(number) or os_reason(error)
