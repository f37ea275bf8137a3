"""A connection as the messaging layer sees it, written by the test."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, decode, encode
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.logins import Decide
from parley._node.messaging.named_events import NO_HANDLER
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.messaging.requests import RequestMux
from parley._node.protocol.codes import CALL, CANCEL, CHUNK, RESULT, SIM, SUBSCRIBE, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import Limits
from parley._node.protocol.memory_budget import MemoryBudget

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
        """Return the decoded payload."""
        return decode(self.payload)


class FakeStreams:
    """The multiplexer: which streams are held, and the credit that was granted."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.granted: list[tuple[int, int, int]] = []
        self.dropped: list[int] = []

    def hold(self, stream: int) -> None:
        self.held.add(stream)

    def release(self, stream: int) -> None:
        self.held.discard(stream)

    def grant(self, stream: int, request: int, credit: int) -> None:
        self.granted.append((stream, request, credit))

    def drop_waiting(self, stream: int) -> None:
        self.dropped.append(stream)


class FakeConnection:
    """Record sent events and returned credit. `padding` bytes are added to every payload;
    `releases` are the streams that sent events release.
    """

    def __init__(self, memory: int = 1 << 30) -> None:
        self.account = MemoryBudget(memory)
        self.sent: list[Sent] = []
        self.consumed: list[tuple[int, int]] = []
        self.gone: set[int] = set()
        self.closed = False
        self.unwritten: dict[int, int] = {}
        self.limits = Limits(max_payload=MAX_PAYLOAD, stream_window=2048)
        self.padding = 0
        self.releases: list[int] = []
        self.asked: list[int] = []  # Streams that are reported once no event waits.
        self._streams = FakeStreams()
        self._charged = 0
        self.charged: list[bool] = []  # Of each event without a consumer.

    @property
    def dropped(self) -> int:
        return len(self.charged)

    def count_dropped(self, *, charged: bool = True) -> None:
        self.charged.append(charged)

    def send(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes,
        *,
        lbm: bool = True,
        seal: bool = False,
        releases: int = 0,
    ) -> int:
        if self.closed:
            raise ConnectionClosedError(0)
        if len(payload) > MAX_PAYLOAD:
            raise PayloadTooLargeError("too large")
        if stream in self.gone:
            raise LocalProtocolError("the stream is gone")
        self.sent.append(Sent(stream, async_id, category, subcategory, payload))
        self.releases += [releases] if releases else []
        self.unwritten[stream] = self.unwritten.get(stream, 0) + 1
        self._charged += len(payload)
        self.account.charge(len(payload))
        return len(payload) + self.padding

    @property
    def streams(self) -> FakeStreams:
        if self.closed:
            raise ConnectionClosedError(0)
        return self._streams

    @property
    def outbox(self) -> SimpleNamespace:
        return SimpleNamespace(
            count=sum(self.unwritten.values()),
            waiting=lambda stream: self.unwritten.get(stream, 0),
        )

    def notify_writable(self, stream: int) -> None:
        if self.closed:
            raise ConnectionClosedError(0)
        self.asked.append(stream)

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        if cost:
            self.consumed.append((stream, cost))

    def take(self) -> list[Sent]:
        """Return the events sent since the last call, which count as written."""
        sent, self.sent = self.sent, []
        self.unwritten.clear()
        self.account.release(self._charged)
        self._charged = 0
        return sent

    @property
    def as_connection(self) -> Connection:
        """For what wants the real one."""
        return cast(Connection, self)


class Handlers:
    """Runs handlers with the functions that a test gives. None has begun when it is stopped."""

    def __init__(
        self,
        find: Callable[[int, str], object],
        run: Callable[[Any], object] = lambda call: None,
        stop: Callable[[IncomingCall], object] = lambda call: None,
        *,
        find_event: Callable[[str, str], object] = lambda namespace, name: NO_HANDLER,
        login: Decide = lambda exports: ResultCode.NOT_AUTHORISED,
    ) -> None:
        self.find = find
        self.find_event = find_event
        self.login = login
        self._run = run
        self._stop = stop

    def run(self, call: IncomingCall) -> None:
        self._run(call)

    def run_event(self, emit: IncomingCall) -> None:
        self._run(emit)

    def stop(self, call: IncomingCall) -> bool:
        self._stop(call)
        return False

    def request_ended(self, call: IncomingCall | None, code: int) -> None:
        """Ignore the count."""


class Shell:
    """A handler runner that only records its calls."""

    def __init__(self, *, memory: int = 1 << 30, **limits: Any) -> None:
        self.connection = FakeConnection(memory)
        self.started: list[IncomingCall] = []
        self.stopped: list[IncomingCall] = []
        self.woken = 0
        self.calls = RequestMux(
            self.connection.as_connection,
            Handlers(find, self.started.append, self.stopped.append),
            **limits,
        )
        self.outgoing = self.calls.outgoing
        self.incoming = self.calls.incoming
        self._takes: dict[int, Callable[[Event, float], bool]] = {
            CALL: self.incoming.request_received,
            SUBSCRIBE: self.incoming.request_received,
            CANCEL: self.incoming.cancel_received,
            RESULT: self.outgoing.result_received,
            CHUNK: self.outgoing.chunk_received,
        }

    def receive(self, event: Event, now: float = 0.0) -> None:
        """Take an event; its cost is given back unless it is kept, as `Dispatch` does."""
        if not self._takes[event.subcategory](event, now):
            self.connection.consume(event.stream, event.cost)

    def ask(self, timeout: float | None = None, now: float = 0.0) -> OutgoingCall:
        """Call a topic."""
        return self.outgoing.call("x", None, now, timeout, self.wake)

    def wake(self) -> None:
        """A local answer is ready."""
        self.woken += 1

    def waiting(self) -> list[IncomingCall]:
        """The requests that were started and have no answer yet."""
        waiting = [call for call in self.started if not call.answered]
        assert len(self.incoming) == len(waiting)
        return waiting

    def codes(self) -> list[tuple[int, object]]:
        """The async ids and codes of the answers sent since the last time."""
        sent = self.connection.take()
        assert all((event.category, event.subcategory) == (SIM, RESULT) for event in sent)
        return [(event.async_id, event.cells[keys.CODE]) for event in sent]


def find(subcategory: int, topic: str) -> ResultCode:
    """Find a handler for every topic except one."""
    return ResultCode.TOPIC_NOT_FOUND if topic == "nobody" else ResultCode.ACCEPTED


def event(
    subcategory: int,
    cells: dict[int, Encodable] | bytes,
    *,
    async_id: int = 0,
    stream: int = 1,
    category: int = SIM,
    cost: int = 0,
) -> Event:
    """An event that came; `cells` may be the payload itself."""
    payload = cells if isinstance(cells, bytes) else encode(cells)
    return Event(stream, async_id, category, subcategory, payload, cost)


def call_event(topic: Any, async_id: int, *, stream: int = 1, cost: int = 0, **more: Any) -> Any:
    """A Call. `more` may have data, deadline, headers and window."""
    names = {
        "data": keys.DATA,
        "deadline": keys.DEADLINE_MS,
        "headers": keys.HEADERS,
        "window": keys.WINDOW,
    }
    cells: dict[int, Encodable] = {keys.TOPIC: topic}
    cells.update({names[name]: value for name, value in more.items()})
    return event(CALL, cells, async_id=async_id, stream=stream, cost=cost)


def result_event(async_id: int, code: Any, data: Encodable = None) -> Event:
    """A Result."""
    return event(RESULT, {keys.CODE: code, keys.DATA: data}, async_id=async_id)


def cancel_event(request: Any, *, stream: int = 1) -> Event:
    """A Cancel."""
    return event(CANCEL, {keys.REQUEST: request}, stream=stream)


def chunk_event(async_id: int, data: Encodable = None, *, stream: int = 1) -> Event:
    """A Chunk."""
    return event(CHUNK, {keys.DATA: data}, async_id=async_id, stream=stream)
