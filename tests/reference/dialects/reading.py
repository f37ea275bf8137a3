"""Shared parts of the three dialects' readers: one error, and exact reads.

A reader raises only Wrong, with the word that the vectors use. The module is independent of the
dialects.
"""

from socket import socket
from typing import Final

CLOSES: Final = "closes"
INCOMPLETE: Final = "incomplete"
MALFORMED: Final = "malformed"
LOCAL: Final = "local"


class Wrong(ValueError):
    """Bytes or fields that the document does not allow.

    `fails` is `closes` (a violation: the byte stream is closed), `incomplete` (more bytes
    are needed; a stream that ends here was cut), `malformed` (a payload that cannot be
    read: its reader gets an error, the stream lives), `local` (one's own side may not
    send it), or `code N` of the relay, with `, closes` where the relay closes after it.
    """

    def __init__(self, fails: str, why: str) -> None:
        super().__init__(f"{fails}: {why}")
        self.fails = fails
        self.why = why


class Cut(ConnectionError):
    """The other side closed the socket; `got` contains the bytes received of those expected."""

    def __init__(self, got: bytes) -> None:
        super().__init__(f"closed after {len(got)} bytes")
        self.got = got


class Fields:
    """A cursor over bytes; `short` is what too few of them are."""

    def __init__(self, data: bytes, short: str) -> None:
        self.rest = data
        self._short = short

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes; raises Wrong where there are fewer."""
        if len(self.rest) < size:
            raise Wrong(self._short, f"{what}: {len(self.rest)} of {size} bytes")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


def text(data: bytes, fails: str, what: str) -> str:
    """UTF-8, strictly; raises Wrong(fails)."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Wrong(fails, f"{what} is not UTF-8") from error


def receive(sock: socket, size: int) -> bytes:
    """Exactly `size` bytes; raises Cut at the end of the stream, TimeoutError as set."""
    got = b""
    while len(got) < size:
        try:
            piece = sock.recv(size - len(got))
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise Cut(got)
        got += piece
    return got


def closed(sock: socket) -> bytes:
    """What still came before the other side closed; raises TimeoutError if it does not."""
    rest = b""
    while True:
        try:
            piece = sock.recv(65_536)
        except ConnectionResetError:
            return rest
        if not piece:
            return rest
        rest += piece
