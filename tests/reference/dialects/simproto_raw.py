"""A blocking SimProto client over a socket; it sends whatever a test requests, valid or not.

Its only state is the next ID, so that a test can break every rule.
"""

from socket import socket
from typing import Final

from tests.reference.dialects import simproto
from tests.reference.dialects.reading import closed, receive
from tests.reference.dialects.simproto import HEADER, Message


class SimProtoRaw:
    """One side of a SimProto connection; the socket's own timeout bounds every read."""

    LIMIT: Final = 1 << 24

    def __init__(self, sock: socket) -> None:
        self.sock = sock
        self._next_id = 1

    def send_raw(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def send_frame(self, kind: str, ident: int, payload: bytes = b"") -> None:
        """A message: `request`, `response`, `ping` or `pong`."""
        self.send_raw(Message(kind, ident, payload).raw)

    def send_request(
        self, kind: str, topic: bytes, data: bytes = b"", ident: int | None = None
    ) -> int:
        """Send a request (`rpc`, `subscribe`, `unsubscribe`, `notify`) and return its ID, by
        default the next one.
        """
        if ident is None:
            ident, self._next_id = self._next_id, self._next_id + 1
        self.send_frame("request", ident, simproto.request(kind, topic, data))
        return ident

    def send_response(self, ident: int, kind: str, meaning: str, data: bytes = b"") -> None:
        """The answer to a request of that kind: `accepted`, `topic not found`, ..."""
        self.send_frame("response", ident, simproto.response(kind, meaning, data))

    def read_frame(self) -> Message:
        """The next message; raises Wrong, Cut or TimeoutError."""
        header = receive(self.sock, HEADER)
        size = min(int.from_bytes(header[9:], "little"), self.LIMIT + 1)
        payload = receive(self.sock, size) if size <= self.LIMIT else b""
        return simproto.read_message(header + payload, self.LIMIT)[0]

    def read_request(self) -> tuple[int, str, bytes, bytes]:
        """The next message, a request: (id, kind, topic, data)."""
        message = self.read_frame()
        assert message.type == "request", message
        return (message.id, *simproto.read_request(message.payload))

    def read_response(self, ident: int, kind: str) -> tuple[str, bytes]:
        """The next message, the response of that id: (meaning, data)."""
        message = self.read_frame()
        assert (message.type, message.id) == ("response", ident), message
        return simproto.read_response(kind, message.payload)

    def ask(self, kind: str, topic: bytes, data: bytes = b"") -> tuple[str, bytes]:
        """Send a request and return its response, which must be the next message."""
        return self.read_response(self.send_request(kind, topic, data), kind)

    def closed(self) -> bytes:
        """Return the bytes received before the other side closed. Raises TimeoutError if it doesn't
        close.
        """
        return closed(self.sock)
