"""Keys and options of ZeroMQ, for its blocking and its asyncio side alike.

Both sides prove who they are: CURVE with the server's key and one for the client, which the server
looks up (the `ironhouse` of ZeroMQ's own examples).
"""

from pathlib import Path
from typing import Any, Final

import zmq
import zmq.auth

from benchmarks.task import Task

# Bytes of a long row that may be on their way, as a number of messages for the high-water marks.
IN_FLIGHT: Final = 4 << 20
_FEWEST: Final = 4
_USUAL: Final = 1000  # messages: what ZeroMQ has without being told
_PUBLIC: Final = "public"


def write_keys(where: Path) -> None:
    """Write both sides' keys; those of clients that are let in have a directory of their own."""
    public = where / _PUBLIC
    public.mkdir()
    for name in ("server", "client"):
        zmq.auth.create_certificates(where, name)
    (where / "client.key").rename(public / "client.key")


def clients(where: Path) -> str:
    """The directory with the keys of clients."""
    return str(where / _PUBLIC)


def as_server(socket: Any, task: Task) -> int:
    """Give it the server's key and a port, which is returned."""
    public, secret = zmq.auth.load_certificate(Path(task.how) / "server.key_secret")
    socket.curve_publickey, socket.curve_secretkey = public, secret
    socket.curve_server = True
    _bound(socket, task)
    return int(socket.bind_to_random_port("tcp://127.0.0.1"))


def as_client(socket: Any, task: Task, port: int) -> None:
    """Give it the client's key, and connect it."""
    where = Path(task.how)
    socket.curve_serverkey, _ = zmq.auth.load_certificate(where / "server.key")
    public, secret = zmq.auth.load_certificate(where / "client.key_secret")
    socket.curve_publickey, socket.curve_secretkey = public, secret
    _bound(socket, task)
    socket.connect(f"tcp://127.0.0.1:{port}")


def _bound(socket: Any, task: Task) -> None:
    """High-water marks as they come, but for large pieces, which would fill gigabytes."""
    socket.linger = 0
    socket.set_hwm(min(_USUAL, max(_FEWEST, IN_FLIGHT // max(1, task.size))))
