"""A blocking peer for named events over a socket; it sends whatever a test requests, valid or not.

Its only state is its flavour and the next ID.
"""

from socket import socket
from typing import Final

from tests.reference.dialects import named
from tests.reference.dialects.named import NamedEvent
from tests.reference.dialects.reading import closed, receive


class NamedRaw:
    """One side of a connection; the socket's own timeout bounds every read."""

    LIMIT: Final = 1 << 24

    def __init__(self, sock: socket, *, typed: bool = False) -> None:
        self.sock = sock
        self.typed = typed
        self._next_id = 1

    def send_raw(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def emit(
        self,
        name: str,
        data: bytes = b"",
        *,
        ref_id: int | None = None,
        namespace: str = "",
        kind: str | None = None,
        ident: int | None = None,
    ) -> int:
        """Send an event and return its ID, by default the next one. `kind` follows from ref_id by
        default.
        """
        if ident is None:
            ident, self._next_id = self._next_id, self._next_id + 1
        if self.typed and kind is None:
            kind = "initiator" if ref_id is None else "response"
        self.send_raw(NamedEvent(ident, name, data, ref_id, namespace, kind).raw)
        return ident

    def end(self, ref_id: int, data: bytes = b"") -> int:
        """The end of a handler (typed flavour)."""
        return self.emit("end", data, ref_id=ref_id, kind="end")

    def fail(self, ref_id: int, code: int, message: str) -> int:
        """The error of a handler: an event named `error`, in either flavour."""
        kind = "error" if self.typed else None
        return self.emit("error", named.error_payload(code, message), ref_id=ref_id, kind=kind)

    def read_event(self) -> NamedEvent:
        """The next event; raises Wrong, Cut or TimeoutError."""
        prefix = receive(self.sock, 10)
        total = int.from_bytes(prefix[:8])
        body = receive(self.sock, total) if total <= self.LIMIT else b""
        return named.read_event(prefix + body, self.LIMIT, typed=self.typed)[0]

    def read_replies(self, ref_id: int) -> list[NamedEvent]:
        """Typed flavour: everything up to the end or error of that id, which is the last."""
        replies: list[NamedEvent] = []
        while not replies or replies[-1].kind == "response":
            replies.append(self.read_event())
            assert replies[-1].ref_id == ref_id, replies[-1]
        return replies

    def closed(self) -> bytes:
        """Return the bytes received before the other side closed. Raises TimeoutError if it doesn't
        close.
        """
        return closed(self.sock)
