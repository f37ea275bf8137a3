"""`Peer`: the other node of one connection, as applications use it.

One rule: what waits here ends with the connection, at once, with its code. The core
decides, `Calls` and `Stream` keep what waits, this file joins them and the handlers.
"""

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lbm.codec import Encodable, Value
from node.config import NodeConfig
from node.handlers.registry import Handlers
from node.handlers.topic import Topic
from node.messaging.calls import Calls
from node.messaging.dispatch import Dispatch
from node.messaging.emits import IncomingEmit
from node.messaging.formats import FormatName
from node.messaging.payloads import Payload, Tandem, make_payload
from node.messaging.pending import IncomingCall
from node.messaging.topics import Topics
from node.peer.answer_stream import AnswerStream, answer_of
from node.peer.calls import Serving
from node.peer.emitter import NativeEmitter
from node.peer.endings import Endings
from node.peer.events import Eventing
from node.peer.reports import PeerState
from node.peer.subscribers import Publishing
from node.peer.subscription import Subscription
from node.peer_view import PeerView
from node.protocol.codes import CALL, CloseCode, ResultCode
from node.protocol.connection import Connection
from node.protocol.errors import ConnectionClosedError
from node.protocol.states import State
from node.remote.emission import Emission
from node.streams.stream import Stream
from node.streams.table import StreamTable
from node.transport.backend import Backend
from node.transport.driver import Driver
from node.transport.loop import Runner
from node.transport.waiting import Changes, left_after
from node.trust.accept_hook import Decider
from node.trust.deciding import Deciding

if TYPE_CHECKING:
    from node.bus.bus import Bus
    from node.bus.config import BusConfig

DEFAULT_TIMEOUT = 30.0


class Peer(PeerView):
    """The other node. Made by `Node`.

    `name` is for the log: the address dialled (then `dialled` too, under which trust
    policies know it), or where the connection came from.
    """

    def __init__(
        self,
        core: Connection,
        backend: Backend,
        trust: Decider,
        name: str,
        dialled: str | None,
        handlers: Handlers,
        topics: Mapping[str, Topic],
        on_change: Callable[["Peer"], None],
        endings: Endings,
        config: NodeConfig,
    ) -> None:
        self.core = core
        self.backend = backend
        self.config = config
        self.name = name
        self.deciding = Deciding(self, trust, dialled)
        self.serving = Serving(self, handlers)
        self._publishing = Publishing(self, handlers, topics)
        self._eventing = Eventing(self, handlers)
        self._emitter = NativeEmitter(self)
        self.calls = calls = Calls(
            core,
            self._find,
            self._run,
            _stop,
            find_event=self._eventing.find,
        )
        self.asking = calls.asking
        self.answering = calls.answering
        self.topics = Topics(core, calls.answering, topics.__contains__)
        self.streams = StreamTable(self, calls.stream_requests)
        self.dispatch = Dispatch(core, calls, self.topics, self.streams.receive)
        self._state = PeerState(self, endings)
        self._buses: dict[Bus, Runner] = {}
        self._on_change = on_change
        self._changes = Changes(backend.waiter)
        self.driver = Driver(
            core, backend, self._state.take, calls.next_deadline, calls.handle_deadline
        )
        self.driver.high_water = config.write_buffer
        self.driver.on_closed = self._state.transport_closed

    # What to ask of it.

    async def call(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
    ) -> Value:
        """Call a topic and return the data of its answer.

        `timeout` is seconds for all of it and travels as the call's deadline; None waits
        as long as the connection lives.

        Raises:
            CallRefused: answered with a code other than 0. CallTimeout: no answer in time.
            PeerClosedError: the connection is over. PayloadTooLargeError: not sent.
            LocalProtocolError: 65,535 calls wait for their answers.
            LbmEncodeError: `data` has no encoding. StreamedAnswerError: use `call_stream`.
        """
        if not self.driver.has_room:
            timeout = await self.room(timeout)
        waiter = self.backend.waiter()
        try:
            call = self.asking.call(topic, data, self.backend.now(), timeout, waiter.wake, headers)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        try:
            await waiter.wait()
        finally:
            if not call.done:
                self.asking.give_up(call)
        return answer_of(call)

    def call_stream(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Encodable] | None = None,
        window: int | None = None,
    ) -> AnswerStream:
        """Call a topic whose handler answers in items: `async with` it, then `async for`.

        `timeout` is seconds for all of it. `window` is what may wait unread here, in bytes
        of cost (an item's payload and 64), 1..2^31-1; by default the agreed window.
        """
        return AnswerStream(self, topic, data, timeout, headers, window)

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> Emission:
        """Emit a named event: `await` it, or ask it for its `reply()` or `replies()`.

        `format` is what the data travels in; `raw` takes bytes as they are, a Tandem two
        payloads. What is raised, and when: `Emission`.

        Raises:
            FormatError: there is no such format, or data that is no bytes for `raw`.
        """
        return Emission(self._emitter, name, namespace, make_payload(data, format))

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int | None = None,
    ) -> Subscription:
        """Subscribe to a topic that the peer publishes: `async with` it, then `async for`.

        `timeout` is seconds until the answer, `data` is for the publisher to decide on;
        `window` as in `call_stream`. What is raised, and when: `Subscription`.
        """
        return Subscription(self, topic, data, timeout, window)

    async def room(self, timeout: float | None = None) -> float | None:
        """Wait while too much waits to be written; returns what is left of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        if self.driver.has_room:
            return timeout
        return await left_after(self.driver.room, timeout, self.backend.now)

    def open_stream(self, label: str, answers: Iterable[tuple[int, int]] = ()) -> Stream:
        """Open a stream to the handler that the other side has for `label`.

        `answers` are the types of events, as (category, subcategory), that answer
        `stream.request`.

        Raises:
            PeerClosedError: the connection is over. ConfigError: `answers` are no types.
            LocalProtocolError: as many streams are open as were agreed.
        """
        return self.streams.open(label, answers)

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """The bus that the other side offers (docs/bus.md): for as long as this connection
        lives, and as far as the other side allows. `config` has what is decided on this side:
        `service`, `consumer`, `timeout`.

        One on the next connection goes on as the same consumer if `config.consumer` is the same.
        """
        from node.bus.bus import Bus
        from node.bus.config import BusConfig
        from node.remote_bus.remote_store import RemoteStore

        for one, runner in list(self._buses.items()):
            if one.is_closed:
                runner.cancel()
                del self._buses[one]
        config = config or BusConfig()
        bus = Bus(RemoteStore(self, config), config, loop=lambda: self.backend)
        self._buses[bus] = self.backend.spawn(self._close_at_end, bus)
        bus.begin()
        return bus

    async def ping(self) -> float:
        """The round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: 64 wait already,
                or there were more than 8,192 at once and 512 a second.
        """
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self._state.pings[async_id] = waiter, answer
        try:
            await waiter.wait()
        finally:
            self._state.pings.pop(async_id, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def update_keys(self) -> None:
        """Go on under the next keys in our direction.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: more than 32 at once,
                and one in 2 s.
        """
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error

    async def rekey(self) -> int:
        """Agree on fresh keys for both directions; returns the rekey's number.

        While one is under way, by either side's wish, that is the one.

        Raises:
            PeerClosedError: the connection is over, or ended meanwhile: also because the peer
                did not finish the rekey within 30 s. LocalProtocolError: the last rekey is
                less than 10 s old.
        """
        number = min(self._state.rekeys) + 1
        try:
            self.core.rekey(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        await self._changes.until(lambda: min(self._state.rekeys) >= number or not self.is_open)
        if min(self._state.rekeys) < number:
            raise self.closed_error()
        return number

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first; returns when the transport is closed.

        Raises:
            ValueError: `code` is not one that Close may carry.
        """
        for bus in list(self._buses):
            await bus.aclose()  # as long as events can be given back
        self.drain()
        self.topics.flush()
        self.core.close(self.backend.now(), code, text)
        self.driver.settle()
        await self._changes.until(lambda: self._state.gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close; by an exception without waiting for it."""
        if exc_type is None:
            await self.close()
        else:
            self.drop(CloseCode.NORMAL)

    # For streams and for the node.

    def drain(self) -> None:
        """Take nothing new: calls are answered with code 19, streams reset with `refused`."""
        self.serving.draining = True

    def drop(self, code: CloseCode) -> None:
        """End what nobody wants any more: a handshake at once and in silence, an open
        connection with Close."""
        now = self.backend.now()
        if self.core.state is State.FAREWELL:
            self.core.receive_eof(now)  # its farewell was said; nobody lingers for it
        else:
            self.core.close(now, code)
        self.driver.settle()

    def call_ended(self) -> None:
        """A handler is over: its answer waits, and who drains may look again."""
        if self.serving.draining:
            self.changed()

    def changed(self) -> None:
        """The connection's state is another one."""
        self._on_change(self)
        self._changes.notify()

    async def _close_at_end(self, bus: "Bus") -> None:
        """A bus ends with the connection."""
        await self.closed()
        await bus.aclose(because=f"the connection ended: {self.closed_error()}")

    # Requests of the other side.

    def _find(self, subcategory: int, topic: str) -> ResultCode:
        if subcategory == CALL:
            return self.serving.find_call(topic)
        return self._publishing.find(topic)

    def _run(self, request: IncomingCall) -> None:
        if isinstance(request, IncomingEmit):
            self._eventing.run(request)
        elif request.subcategory == CALL:
            self.serving.run_call(request)
        else:
            self._publishing.run(request)


def _stop(request: IncomingCall) -> None:
    if request.runner is not None:
        request.runner.cancel()
