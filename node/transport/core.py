"""What the driver asks of the core that it serves, native or of a foreign dialect.

A core is told bytes and the time, and tells bytes and reports; it never waits.
`node.protocol.connection.Connection` is one, those of `node.dialects` are the others.
"""

from typing import Any, Protocol

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.send_queue import Waker


class Waiting(Protocol):
    """What waits to be written."""

    @property
    def count(self) -> int:
        """How many events or messages."""

    @property
    def size(self) -> int:
        """Bytes of their payloads."""

    @property
    def waker(self) -> Waker:
        """Told when something is queued, or is otherwise to be done."""


class Core(Protocol):
    """One connection's core. `happened` are the reports that `reports` will return; with
    `ended` the transport is to be closed."""

    @property
    def happened(self) -> Any:
        """Whether anything is to be reported, by its truth."""

    @property
    def ended(self) -> bool:
        """Whether the transport is to be closed."""

    @property
    def is_parted(self) -> bool:
        """Whether it goes on without its transport, which is to be closed, and waits for
        another."""

    @property
    def holds_back(self) -> bool:
        """Whether it sends less than its transport takes."""

    @property
    def outbox(self) -> Waiting:
        """What waits to be written."""

    @property
    def wants_data(self) -> bool:
        """Whether bytes should be read."""

    @property
    def wants_eof(self) -> bool:
        """Whether the sending side is to be shut after what was written."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be written."""

    def reports(self) -> list[Any]:
        """What happened since the last call, in order."""

    @property
    def unread(self) -> bool:
        """Whether it has bytes that it was given and has not looked at, though it could."""

    def receive_some(self, data: bytes, now: float) -> None:
        """Bytes came, or none: do a small part of what there is to do with what came."""

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes came: do all of it."""

    def receive_eof(self, now: float) -> None:
        """The transport ended, or broke."""

    def data_to_send(self, now: float) -> bytes:
        """The next bytes for the transport, about 256 KiB; fewer if nothing is left."""

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""

    def handle_deadline(self, now: float) -> None:
        """Do what is due."""

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End at once."""
