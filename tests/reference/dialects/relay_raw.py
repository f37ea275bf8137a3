"""A blocking client of the event relay over a socket; it sends whatever a test requests, valid or
not.

Its only state is its UUID, which it sends only when a test requests it.
"""

from socket import socket
from typing import Final

from tests.reference.dialects import relay
from tests.reference.dialects.reading import closed, receive
from tests.reference.dialects.relay import BROADCAST, SERVER, RelayMessage


class RelayRaw:
    """One client; the socket's own timeout bounds every read."""

    LIMIT: Final = 1 << 24

    def __init__(self, sock: socket, uuid: bytes) -> None:
        self.sock = sock
        self.uuid = uuid

    def send_raw(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def say_uuid(self) -> None:
        """The first sixteen bytes of a connection. The relay does not answer a good one."""
        self.send_raw(self.uuid)

    def send(self, to: bytes, payload: bytes = b"", *, sender: bytes | None = None) -> None:
        """A message to the client `to`, from oneself unless another sender is given."""
        self.send_raw(RelayMessage(to, self.uuid if sender is None else sender, payload).raw)

    def broadcast(self, payload: bytes = b"") -> None:
        """A message to all others."""
        self.send(BROADCAST, payload)

    def read_message(self) -> RelayMessage:
        """The next message or error frame; raises Wrong, Cut or TimeoutError."""
        prefix = receive(self.sock, 4)
        size = int.from_bytes(prefix)
        body = receive(self.sock, size) if size <= self.LIMIT else b""
        return relay.read_message(prefix + body, self.LIMIT)[0]

    def read_error(self) -> tuple[int, str]:
        """The next message, an error frame for this client: (code, text)."""
        message = self.read_message()
        assert message.sender == SERVER, message
        return message.error

    def settle(self) -> None:
        """Return once the relay has read everything sent: a message to itself came back.

        Only for a connected client that waits for no other message.
        """
        self.send(self.uuid, b"settled")
        assert self.read_message() == RelayMessage(self.uuid, self.uuid, b"settled")

    def closed(self) -> bytes:
        """Return the bytes received before the relay closed. Raises TimeoutError if it doesn't
        close.
        """
        return closed(self.sock)
