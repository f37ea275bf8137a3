"""`Peer`: the other node of one connection, as applications use it.

One rule: what waits here ends with the connection, at once, with its code. The core
decides, `Calls` and `Stream` keep what waits, this file joins them and the handlers.
"""

import logging
from collections.abc import Callable, Mapping

import anyio

from crypto.identity import NodeId
from crypto.registry import Suite
from lbm.codec import Encodable, Value
from node.accept_hook import Decider
from node.config import NodeConfig
from node.deciding import Deciding
from node.endings import Endings
from node.errors import (
    CallRefused,
    CallTimeout,
    PeerClosedError,
    handshake_error,
)
from node.messaging.dispatch import Dispatch
from node.messaging.pending import LOST
from node.protocol.codes import CloseCode, ResultCode
from node.protocol.connection import Connection
from node.protocol.errors import ConnectionClosedError, RemoteProtocolError
from node.protocol.handshake import Agreed
from node.protocol.limits import Limits
from node.protocol.reports import (
    ConnectionEnded,
    EventReceived,
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
    PongReceived,
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
)
from node.protocol.states import State
from node.serving import CallHandler, Serving, StreamHandler
from node.stream import Stream
from node.stream_table import StreamTable
from node.transport.backend import Backend
from node.transport.driver import Driver
from node.transport.loop import Waiter
from node.waiting import Changes

logger = logging.getLogger("parley.peer")

DEFAULT_TIMEOUT = 30.0


class Peer:
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
        call_handlers: Mapping[str, CallHandler],
        stream_handlers: Mapping[str, StreamHandler],
        on_change: Callable[["Peer"], None],
        endings: Endings,
        config: NodeConfig,
    ) -> None:
        self.core = core
        self.backend = backend
        self.config = config
        self.name = name
        self._deciding = Deciding(self, trust, dialled)
        self._agreed: Agreed | None = None
        self._ended: ConnectionEnded | None = None
        self._on_change = on_change
        self._endings = endings
        self._serving = Serving(self, call_handlers, stream_handlers)
        self._calls = calls = self._serving.calls
        self.streams = StreamTable(self)
        self._dispatch = Dispatch(core, self._calls, self.streams.data_received)
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}
        self._rekeys = [0, 0]  # the number of the last rekey of each direction
        self._changes = Changes(backend.waiter)
        self._gone = False
        self.driver = Driver(
            core, backend, self._reports, calls.next_deadline, calls.handle_deadline
        )
        self.driver.high_water = config.write_buffer
        self.driver.on_closed = self._transport_closed

    # Who it is.

    @property
    def node_id(self) -> NodeId | None:
        """Who the other side proved to be; None on an unencrypted connection."""
        identity = self._agreed.identity if self._agreed else None
        return identity.node_id if identity else None

    @property
    def suite(self) -> Suite | None:
        """The algorithms agreed on; None on an unencrypted connection."""
        return self._agreed.suite if self._agreed else None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and its peer authenticated."""
        return self.suite is not None

    @property
    def role(self) -> str:
        """What the other side claims to be: a claim, from which no rights follow."""
        return self._agreed.remote_role if self._agreed else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """What the other side says of itself."""
        return self._agreed.info if self._agreed else {}

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self._agreed.limits if self._agreed else self.core.config.limits

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over and the connection is not."""
        return self._agreed is not None and self._ended is None

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""
        return self._gone

    @property
    def running_calls(self) -> int:
        """How many handlers of this peer's calls run."""
        return len(self._calls.waiting())

    @property
    def dropped(self) -> int:
        """Events that nobody took."""
        return self._dispatch.dropped + self._calls.dropped

    def __repr__(self) -> str:
        return f"<Peer {self.node_id.short if self.node_id else self.name}>"

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
            LbmEncodeError: `data` has no encoding.
        """
        if not self.driver.has_room:
            timeout = await self._room(timeout)
        waiter = self.backend.waiter()
        try:
            call = self._calls.call(topic, data, self.backend.now(), timeout, waiter.wake, headers)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        self.touch()
        try:
            await waiter.wait()
        finally:
            if not call.done:
                self._calls.give_up(call)
                self.touch()
        if call.code == ResultCode.ACCEPTED:
            return call.data
        if call.code == LOST:
            raise PeerClosedError(call.close_code, call.close_text)
        late = call.code == ResultCode.DEADLINE_EXCEEDED
        refused = CallTimeout(call.data) if late else CallRefused(call.code, call.data)
        refused.received = True
        raise refused

    async def _room(self, timeout: float | None) -> float | None:
        """Wait until the transport takes more; returns what is left of `timeout`."""
        began = self.backend.now()
        with anyio.move_on_after(timeout) as scope:
            await self.driver.room()
        if scope.cancelled_caught:
            raise CallTimeout
        return None if timeout is None else began + timeout - self.backend.now()

    def open_stream(self, label: str) -> Stream:
        """Open a byte stream to the handler that the other side has for `label`.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: as many streams
                are open as were agreed.
        """
        try:
            stream_id = self.core.open_stream(label)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        stream = self.streams.add(stream_id, label)
        self.touch()
        return stream

    async def ping(self) -> float:
        """The round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: 64 wait already.
        """
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self._pings[async_id] = waiter, answer
        self.touch()
        try:
            await waiter.wait()
        finally:
            self._pings.pop(async_id, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def update_keys(self) -> None:
        """Go on under the next keys in our direction; raises PeerClosedError."""
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        self.touch()

    async def rekey(self) -> int:
        """Agree on fresh keys for both directions; returns the rekey's number.

        While one is under way, by either side's wish, that is the one.

        Raises:
            PeerClosedError: the connection is over, or ended meanwhile.
            LocalProtocolError: the last rekey is less than 10 s old.
        """
        number = min(self._rekeys) + 1
        try:
            self.core.rekey(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        self.touch()
        await self._changes.until(lambda: min(self._rekeys) >= number or not self.is_open)
        if min(self._rekeys) < number:
            raise self.closed_error()
        return number

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first; returns when the transport is closed.

        Raises:
            ValueError: `code` is not one that Close may carry.
        """
        self.core.close(self.backend.now(), code, text)
        self.driver.settle()
        await self._changes.until(lambda: self._gone)

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        while self._ended is None:
            await self._changes.until(lambda: self._ended is not None)
        return self._ended

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: a side refused the other. HandshakeError: they could not agree.
        """
        await self._changes.until(lambda: self._agreed is not None or self._ended is not None)
        ended = self._ended
        if self._agreed is None and ended is not None:
            refused = self._deciding.refused
            raise refused or handshake_error(ended.code, ended.text, ended.reason)

    # For streams and for the node.

    def drain(self) -> None:
        """Take nothing new: calls are answered with code 19, streams reset with `refused`."""
        self._serving.draining = True

    def touch(self) -> None:
        """Something was queued: flush soon."""
        self.driver.touch()

    def consume(self, stream: int, cost: int) -> None:
        """A reader took what had come on a stream."""
        self.core.consume(stream, cost)
        self.touch()

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
        self._changed()
        self.touch()

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
        if self._ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self._ended.code, self._ended.text)

    # Reports.

    def _reports(self, reports: list[Report]) -> None:
        now = self.backend.now()
        dispatch = self._dispatch.receive
        aborted = False
        for report in reports:
            if type(report) is not EventReceived:
                self._report(report, now)
            elif not aborted:
                try:
                    dispatch(report, now)
                except RemoteProtocolError as error:
                    self.core.abort(now, CloseCode(error.code), error.reason)
                    aborted = True

    def _report(self, report: Report, now: float) -> None:
        match report:
            case PongReceived(async_id, round_trip):
                waiting = self._pings.get(async_id)
                if waiting is not None:
                    waiting[1].append(round_trip)
                    waiting[0].wake()
            case StreamOpened(stream, label):
                self._serving.stream_opened(stream, label)
            case StreamFinished() | StreamReset() | StreamWritable():
                self.streams.changed(report)
                if isinstance(report, StreamReset):
                    self._calls.stream_reset(report.stream)
            case KeysUpdated(sent, _, rekey):
                if rekey:
                    self._rekeys[sent] = rekey
                self._changed()
            case PeerIdentified():
                self._deciding.decide(report)
            case HandshakeCompleted(agreed):
                self._agreed = agreed
                logger.info("%s open: %s", self, agreed.suite or "UNENCRYPTED")
                self._changed()
            case ConnectionEnded():
                self._connection_ended(report)

    def _connection_ended(self, ended: ConnectionEnded) -> None:
        self._ended = ended
        self._deciding.stop()
        self._endings.ended(self, ended, self.backend.now(), stranger=self._agreed is None)
        self._calls.connection_ended(ended.code, ended.text)
        self.streams.connection_ended(ended.code, ended.text)
        for waiter, _ in self._pings.values():
            waiter.wake()
        self._changed()

    def _transport_closed(self) -> None:
        self._gone = True
        if self._ended is None:  # a bug kept the core from telling
            self._connection_ended(ConnectionEnded(CloseCode.INTERNAL_ERROR, "", False, "a bug"))
        self._changed()

    def _changed(self) -> None:
        self._on_change(self)
        self._changes.notify()
