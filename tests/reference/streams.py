"""Stream states and credit of one connection (section 8).

`written` and `read` process every event of category 2 and above on streams from 2, and the events
on stream 0 about them. This module doesn't send anything.
"""

from dataclasses import dataclass
from typing import Any, Final

from tests.reference.wire import CELLS, TYPES, Event, Violation

GREATEST_CREDIT: Final = 2**31 - 1
EVENT_COST: Final = 64
FREE: Final = frozenset({TYPES["Open"], TYPES["Finish"], TYPES["Chunk"]})


@dataclass
class Stream:
    """One stream: credit each way, and which directions have ended."""

    send_credit: int
    receive_credit: int
    by_remote: bool
    consumed: int = 0
    local_ended: bool = False
    remote_ended: bool = False
    local_reset: bool = False

    @property
    def gone(self) -> bool:
        """Both directions have ended."""
        return self.local_ended and self.remote_ended


def cost(event: Event) -> int:
    """What an event costs of its stream's credit."""
    return 0 if event.type in FREE else len(event.payload) + EVENT_COST


class Streams:
    """All streams from 2 up."""

    def __init__(self, window: int, max_streams: int, *, is_initiator: bool) -> None:
        self.window = window
        self.max_streams = max_streams
        self.next_local = 3 if is_initiator else 2
        self.last_remote = 0
        self.streams: dict[int, Stream] = {}

    def written(self, event: Event, cells: dict[int, Any]) -> None:
        """An event that this side sends, right or wrong; never raises."""
        number = cells.get(CELLS["stream"], 0) if event.stream == 0 else event.stream
        if event.type == TYPES["Open"]:
            window = cells.get(CELLS["window"], self.window)
            self.streams.setdefault(number, Stream(self.window, window, by_remote=False))
            self.next_local = max(self.next_local, number + 2)
        stream = self.streams.get(number)
        if stream is None:
            return
        if event.type == TYPES["Finish"]:
            stream.local_ended = True
        elif event.type == TYPES["Reset"]:
            stream.local_ended = stream.local_reset = True
        elif event.type == TYPES["Window"]:
            stream.receive_credit += cells.get(CELLS["credit"], 0)
        elif event.stream:
            stream.send_credit -= cost(event)

    def read(self, event: Event, cells: dict[int, Any]) -> bool:
        """An event on a stream from 2 up; False where it is to be dropped. Raises Violation."""
        if event.type == TYPES["Open"]:
            self._opened(event.stream, cells)
            return True
        stream = self.streams.get(event.stream)
        if stream is None or stream.remote_ended:
            raise Violation("protocol-error", "a stream that is not open")
        if event.type == TYPES["Finish"]:
            stream.remote_ended = True
        elif cost(event):
            if stream.receive_credit <= 0:
                raise Violation("protocol-error", "no credit")
            stream.receive_credit -= cost(event)
        return not stream.local_reset

    def _opened(self, number: int, cells: dict[int, Any]) -> None:
        if number % 2 != 1 - self.next_local % 2 or number <= self.last_remote:
            raise Violation("protocol-error", "stream id")
        window = cells.get(CELLS["window"], self.window)
        if CELLS["label"] not in cells or not 1 <= window <= GREATEST_CREDIT:
            raise Violation("protocol-error", "malformed Open")
        standing = [s for s in self.streams.values() if s.by_remote and not s.gone]
        if len(standing) >= self.max_streams:
            raise Violation("too-many-streams")
        self.last_remote = number
        self.streams[number] = Stream(window, self.window, by_remote=True)

    def read_window(self, cells: dict[int, Any]) -> None:
        """2/2 Window for a stream's credit (not of a call)."""
        number, credit = cells.get(CELLS["stream"]), cells.get(CELLS["credit"])
        if number is None or credit is None:
            raise Violation("protocol-error", "malformed Window")
        if number < 2:
            raise Violation("protocol-error", "streams 0 and 1 have no window")
        stream = self._named(number)
        if stream is not None and not stream.local_ended:
            stream.send_credit += credit
            if stream.send_credit > GREATEST_CREDIT:
                raise Violation("protocol-error", "credit")

    def read_reset(self, cells: dict[int, Any]) -> int | None:
        """2/4 Reset: the stream to answer with Reset, if it is to be answered."""
        number = cells.get(CELLS["stream"])
        if number is None or CELLS["code"] not in cells or number < 2:
            raise Violation("protocol-error", "malformed Reset")
        stream = self._named(number)
        if stream is None or stream.gone:
            return None
        stream.remote_ended = True
        return None if stream.local_ended else int(number)

    def _named(self, number: int) -> Stream | None:
        """A stream that Window or Reset names; one never opened is a violation."""
        known = self.last_remote if number % 2 != self.next_local % 2 else self.next_local - 2
        if number >= 2 and number not in self.streams and number > known:
            raise Violation("protocol-error", "a stream never opened")
        return self.streams.get(number)

    def consumed(self, event: Event) -> int:
        """The application took the event: the credit to grant, 0 while under half a window."""
        stream = self.streams.get(event.stream)
        if stream is None:
            return 0
        stream.consumed += cost(event)
        if stream.remote_ended or stream.consumed * 2 < self.window:
            return 0
        grant, stream.consumed = stream.consumed, 0
        return grant
