"""Frames over a blocking socket (section 2).

Reads and writes whole events; each call is bounded by the socket's timeout. It doesn't interpret
events; `send_raw` sends arbitrary bytes.
"""

import socket
from typing import Final

from tests.reference.wire import HANDSHAKE_LIMIT, Violation, frame

DEFAULT_TIMEOUT: Final = 5.0


class ConnectionLost(Exception):
    """The transport ended, or broke, without a Close."""


class Channel:
    """`limit` is the greatest event taken; every event that passed is in `sent` and `received`."""

    def __init__(self, sock: socket.socket, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.sock = sock
        self.limit = HANDSHAKE_LIMIT
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        sock.settimeout(timeout)

    def send_frame(self, event: bytes) -> None:
        """One event in its frame."""
        self.sent.append(event)
        self.send_raw(frame(event))

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are; raises ConnectionLost."""
        try:
            self.sock.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost("while sending") from error

    def receive_frame(self) -> bytes:
        """The next event; raises ConnectionLost, TimeoutError or Violation frame-too-large."""
        length = int.from_bytes(self._exactly(4))
        if length > self.limit:
            raise Violation("frame-too-large", f"{length} bytes")
        event = self._exactly(length)
        self.received.append(event)
        return event

    def finish(self) -> None:
        """Shuts the sending side."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other side was faster

    def close(self) -> None:
        """Ends the transport without a word."""
        self.sock.close()

    def drain(self, timeout: float) -> None:
        """Reads and discards until the end, a break or `timeout` seconds of silence."""
        try:
            self.sock.settimeout(timeout)
            while self.sock.recv(65_536):
                pass
        except OSError:
            return

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.sock.recv(min(count - len(data), 1 << 20))
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionLost("while receiving") from error
            if not part:
                raise ConnectionLost("end without Close")
            data += part
        return data
