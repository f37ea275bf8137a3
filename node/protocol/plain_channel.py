"""What a connection asks of its channel, and the channel of an unencrypted connection.

One rule: the two kinds of channel are one seam. The encrypted one is `SecureChannel`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from node.protocol.errors import violation
from node.protocol.event import Event, parse_raw, serialise_raw
from node.protocol.frames import frame

NEVER = float("inf")


class Channel(Protocol):
    """What a connection asks of either kind of channel."""

    def protect(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes | memoryview,
        seal: bool,
        now: float,
    ) -> bytes:
        """One or more frames: the event, and what became due with it."""

    def open(self, data: bytes | memoryview) -> tuple[Event, bool]:
        """One event from the wire, and whether all events up to it are vouched for."""

    def control(self, subcategory: int, cells: Mapping[int, Any], now: float) -> bytes:
        """Act on a key update, rekey or seal event; returns the frames that answer it."""

    def flush_seal(self, now: float) -> bytes:
        """What a flush has to end with."""

    def forget(self, stream: int, *, sent: bool) -> None:
        """A direction of a stream ended."""

    def reading_began(self, now: float) -> None:
        """Bytes came."""

    def reading_ended(self, now: float) -> None:
        """All that came has been read."""

    def deadline(self) -> float:
        """When `handle_deadline` has something to do."""

    def handle_deadline(self, now: float) -> bytes:
        """Frames that became due."""


class PlainChannel:
    """No keys, no chain, no seals: for local sockets and debugging."""

    def protect(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes | memoryview,
        seal: bool,
        now: float,
    ) -> bytes:
        return frame(serialise_raw(Event(stream, async_id, category, subcategory, bytes(payload))))

    def open(self, data: bytes | memoryview) -> tuple[Event, bool]:
        return parse_raw(data), True

    def control(self, subcategory: int, cells: Mapping[int, Any], now: float) -> bytes:
        raise violation("an event of encryption on an unencrypted connection")

    def flush_seal(self, now: float) -> bytes:
        return b""

    def forget(self, stream: int, *, sent: bool) -> None:
        return

    def reading_began(self, now: float) -> None:
        return

    def reading_ended(self, now: float) -> None:
        return

    def deadline(self) -> float:
        return NEVER

    def handle_deadline(self, now: float) -> bytes:
        return b""
