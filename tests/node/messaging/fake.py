"""A connection as calls and dispatch see it, with its pen in the test's hands."""

from typing import Any, NamedTuple, cast

from lbm import keys
from lbm.codec import Encodable, Value, decode, encode
from node.protocol.codes import CALL, CANCEL, RESULT, SIM
from node.protocol.connection import Connection
from node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
)
from node.protocol.reports import EventReceived

MAX_PAYLOAD = 4096


class Sent(NamedTuple):
    """An event that was sent."""

    stream: int
    async_id: int
    category: int
    subcategory: int
    payload: bytes

    @property
    def cells(self) -> dict[int, Value]:
        """What the payload says."""
        return decode(self.payload)


class FakeConnection:
    """Records what is sent and given back. `error` is raised in place of sending."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.consumed: list[tuple[int, int]] = []
        self.gone: set[int] = set()
        self.closed = False
        self.unwritten: dict[int, int] = {}

    def send(
        self, stream: int, async_id: int, category: int, subcategory: int, payload: bytes
    ) -> None:
        if self.closed:
            raise ConnectionClosedError(0)
        if len(payload) > MAX_PAYLOAD:
            raise PayloadTooLargeError("too large")
        if stream in self.gone:
            raise LocalProtocolError("the stream is gone")
        self.sent.append(Sent(stream, async_id, category, subcategory, payload))
        self.unwritten[stream] = self.unwritten.get(stream, 0) + 1

    @property
    def queued_events(self) -> int:
        return sum(self.unwritten.values())

    def waiting_events(self, stream: int) -> int:
        return self.unwritten.get(stream, 0)

    def consume(self, stream: int, cost: int) -> None:
        if cost:
            self.consumed.append((stream, cost))

    def take(self) -> list[Sent]:
        """What was sent since the last time, which counts as written."""
        sent, self.sent = self.sent, []
        self.unwritten.clear()
        return sent

    @property
    def as_connection(self) -> Connection:
        """For what wants the real one."""
        return cast(Connection, self)


def event(
    subcategory: int,
    cells: dict[int, Encodable] | bytes,
    *,
    async_id: int = 0,
    stream: int = 1,
    category: int = SIM,
    cost: int = 0,
) -> EventReceived:
    """An event that came; `cells` may be the payload itself."""
    payload = cells if isinstance(cells, bytes) else encode(cells)
    return EventReceived(stream, async_id, category, subcategory, payload, cost)


def call_event(topic: Any, async_id: int, *, stream: int = 1, cost: int = 0, **more: Any) -> Any:
    """A Call. `more` may have data, deadline and headers."""
    names = {"data": keys.DATA, "deadline": keys.DEADLINE_MS, "headers": keys.HEADERS}
    cells: dict[int, Encodable] = {keys.TOPIC: topic}
    cells.update({names[name]: value for name, value in more.items()})
    return event(CALL, cells, async_id=async_id, stream=stream, cost=cost)


def result_event(async_id: int, code: Any, data: Encodable = None) -> EventReceived:
    """A Result."""
    return event(RESULT, {keys.CODE: code, keys.DATA: data}, async_id=async_id)


def cancel_event(request: Any, *, stream: int = 1) -> EventReceived:
    """A Cancel."""
    return event(CANCEL, {keys.REQUEST: request}, stream=stream)
