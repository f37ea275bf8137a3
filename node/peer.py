"""`Peer`: the other node of one connection, as applications use it.

One rule: what waits here ends with the connection, at once, with its code. The core
decides, `Calls` and `Stream` keep what waits, this file joins them and the handlers.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from crypto.identity import NodeId
from crypto.registry import Suite
from lbm.codec import Encodable, Value
from lbm.errors import LbmEncodeError
from node.call import Call
from node.errors import (
    RESULT_SENTENCES,
    CallRefused,
    CallTimeout,
    HandshakeError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
)
from node.messaging.calls import LOST, Calls, IncomingCall
from node.messaging.dispatch import Dispatch
from node.protocol.codes import CloseCode, ResultCode, code_name
from node.protocol.connection import Connection
from node.protocol.errors import (
    ConnectionClosedError,
    RemoteProtocolError,
)
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
from node.protocol.states import HANDSHAKE
from node.stream import Stream
from node.transport.backend import Backend, Waiter
from node.transport.driver import Driver
from node.trust import TrustPolicy

logger = logging.getLogger("parley.peer")

CallHandler = Callable[[Call], Any]
StreamHandler = Callable[[Stream], Awaitable[None]]
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
        trust: TrustPolicy,
        name: str,
        dialled: str | None,
        call_handlers: Mapping[str, CallHandler],
        stream_handlers: Mapping[str, StreamHandler],
        on_change: Callable[["Peer"], None],
    ) -> None:
        self.core = core
        self.backend = backend
        self.name = name
        self._dialled = dialled
        self.draining = False
        self._trust = trust
        self._agreed: Agreed | None = None
        self._ended: ConnectionEnded | None = None
        self._call_handlers = call_handlers
        self._stream_handlers = stream_handlers
        self._on_change = on_change
        self._calls = Calls(core, self._has_handler, self._run_call, self._stop_call)
        self._dispatch = Dispatch(core, self._calls, self._data_received)
        self._streams: dict[int, Stream] = {}
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}
        self._rekeys = [0, 0]  # the number of the last rekey of each direction
        self._waiters: set[Waiter] = set()  # for the state of the connection to change
        self._gone = False
        self.driver = Driver(
            core, backend, self._reports, self._calls.next_deadline, self._deadline
        )
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
            LbmEncodeError: `data` has no encoding.
        """
        await self.driver.room()
        waiter = self.backend.waiter()
        try:
            call = self._calls.call(topic, data, self.backend.now(), timeout, waiter.wake, headers)
        except ConnectionClosedError as error:
            raise self._closed_error() from error
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
        if call.code == ResultCode.DEADLINE_EXCEEDED:
            raise CallTimeout(call.data)
        raise CallRefused(call.code, call.data)

    def open_stream(self, label: str) -> Stream:
        """Open a byte stream to the handler that the other side has for `label`.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: as many streams
                are open as were agreed.
        """
        try:
            stream = Stream(self, self.core.open_stream(label), label)
        except ConnectionClosedError as error:
            raise self._closed_error() from error
        self._streams[stream.id] = stream
        self.touch()
        return stream

    async def ping(self) -> float:
        """The round-trip time in seconds; raises PeerClosedError."""
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self._closed_error() from error
        answer: list[float] = []
        self._pings[async_id] = waiter, answer
        self.touch()
        try:
            await waiter.wait()
        finally:
            self._pings.pop(async_id, None)
        if not answer:
            raise self._closed_error()
        return answer[0]

    def update_keys(self) -> None:
        """Go on under the next keys in our direction; raises PeerClosedError."""
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self._closed_error() from error
        self.touch()

    async def rekey(self) -> int:
        """Agree on fresh keys for both directions; returns the rekey's number.

        Raises:
            PeerClosedError: the connection is over, or ended meanwhile.
            LocalProtocolError: the last rekey is less than 10 s old.
        """
        number = max(self._rekeys) + 1
        try:
            self.core.rekey(self.backend.now())
        except ConnectionClosedError as error:
            raise self._closed_error() from error
        self.touch()
        await self._until(lambda: min(self._rekeys) >= number)
        return number

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first; returns when the transport is closed.

        Raises:
            ValueError: `code` is not one that Close may carry.
        """
        self.core.close(self.backend.now(), code, text)
        self.driver.settle()
        await self._wait(lambda: self._gone)

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        await self._wait(lambda: self._ended is not None)
        if self._ended is None:
            raise ParleyError("the connection is open")
        return self._ended

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: a side refused the other. HandshakeError: they could not agree.
        """
        await self._wait(lambda: self._agreed is not None or self._ended is not None)
        ended = self._ended
        if self._agreed is not None or ended is None:
            return
        if ended.code == CloseCode.PEER_NOT_TRUSTED:
            raise NotTrustedError(ended.reason)
        if ended.code == CloseCode.AUTHENTICATION_FAILED:
            raise NotTrustedError(ended.text, ended.code)
        text = ended.text
        if ended.code == CloseCode.CONNECTION_LOST:
            text = "the other side hung up during the handshake"
        raise HandshakeError(ended.code, text)

    # For streams and for the node.

    def touch(self) -> None:
        """Something was queued: flush soon."""
        self.driver.touch()

    def consume(self, stream: int, cost: int) -> None:
        """A reader took what had come on a stream."""
        self.core.consume(stream, cost)
        self.touch()

    def drop(self, code: CloseCode) -> None:
        """End at once and in silence: a handshake that nobody wants any more."""
        if self.core.state in HANDSHAKE:
            self.core.close(self.backend.now(), code)
        self.driver.settle()

    # Reports.

    def _reports(self, reports: list[Report]) -> None:
        now = self.backend.now()
        dispatch = self._dispatch.receive
        for report in reports:
            kind = type(report)
            if kind is EventReceived:
                try:
                    dispatch(report, now)  # type: ignore[arg-type]  # `kind` says what it is
                except RemoteProtocolError as error:
                    self.core.abort(now, CloseCode(error.code), error.reason)
            else:
                self._report(report, now)

    def _report(self, report: Report, now: float) -> None:
        match report:
            case PongReceived(async_id, round_trip):
                waiting = self._pings.get(async_id)
                if waiting is not None:
                    waiting[1].append(round_trip)
                    waiting[0].wake()
            case StreamOpened(stream, label):
                self._stream_opened(stream, label)
            case StreamFinished() | StreamReset() | StreamWritable():
                self._stream_changed(report)
            case KeysUpdated(sent, _, rekey):
                if rekey:
                    self._rekeys[sent] = rekey
                self._changed()
            case PeerIdentified():
                self._decide(report, now)
            case HandshakeCompleted(agreed):
                self._agreed = agreed
                logger.info("%s open: %s", self, agreed.suite or "UNENCRYPTED")
                self._changed()
            case ConnectionEnded():
                self._connection_ended(report)

    def _decide(self, peer: PeerIdentified, now: float) -> None:
        try:
            self._trust.check(peer.identity, self._dialled)
        except ParleyError as error:
            reason = error.text if isinstance(error, NotTrustedError) else str(error)
            self.core.refuse_peer(reason, now)
        else:
            self.core.accept_peer(now)

    def _connection_ended(self, ended: ConnectionEnded) -> None:
        self._ended = ended
        quiet = ended.code in (CloseCode.NORMAL, CloseCode.GOING_AWAY)
        log = logger.info if quiet else logger.warning
        log("%s ended: %s (%s)", self, code_name(ended.code), ended.text or ended.reason)
        self._calls.connection_ended(ended.code, ended.text)
        for stream in list(self._streams.values()):
            stream.failed(PeerClosedError(ended.code, ended.text))
        self._streams.clear()
        for waiter, _ in self._pings.values():
            waiter.wake()
        self._changed()

    def _transport_closed(self) -> None:
        self._gone = True
        self._changed()

    def _deadline(self, now: float) -> None:
        self._calls.handle_deadline(now)

    # Calls that come.

    def _has_handler(self, topic: str) -> bool:
        return topic in self._call_handlers

    def _run_call(self, call: IncomingCall) -> None:
        if self.draining:
            self._calls.answer(call, ResultCode.OVERLOADED)
            return
        handler = self._call_handlers[call.topic]
        call.runner = self.backend.spawn(self._handle, handler, call)

    def _stop_call(self, call: IncomingCall) -> None:
        if call.runner is not None:
            call.runner.cancel()

    async def _handle(self, handler: CallHandler, call: IncomingCall) -> None:
        code: int = ResultCode.CANCELLED
        data: Any = None
        try:
            result = handler(Call(self, call))
            data = await result if inspect.isawaitable(result) else result
            code = ResultCode.ACCEPTED
        except CallRefused as refused:
            code, data = refused.code, refused.data
        except Exception:
            logger.exception("the handler of %r failed", call.topic)
            code, data = _FAILED
        finally:
            # Also when it was cancelled: each call gets its one answer.
            self._answer(call, code, data)

    def _answer(self, call: IncomingCall, code: int, data: Any) -> None:
        try:
            self._calls.answer(call, code, data)
        except LbmEncodeError:
            logger.exception("the answer to %r has no encoding", call.topic)
            self._calls.answer(call, *_FAILED)
        self._changed()
        self.touch()

    # Streams that come.

    def _data_received(self, event: EventReceived) -> bool:
        stream = self._streams.get(event.stream)
        if stream is None:
            return False
        stream.data_received(event.payload, event.cost)
        return True

    def _stream_opened(self, stream_id: int, label: str) -> None:
        handler = self._stream_handlers.get(label)
        if handler is None or self.draining:
            reserved = label.startswith("topic:")
            code = CloseCode.REFUSED if reserved or self.draining else CloseCode.NO_HANDLER
            self.core.reset_stream(stream_id, code)
            return
        stream = self._streams[stream_id] = Stream(self, stream_id, label)
        self.backend.spawn(self._serve_stream, handler, stream)

    def _stream_changed(self, report: StreamFinished | StreamReset | StreamWritable) -> None:
        stream = self._streams.get(report.stream)
        if stream is None:
            return
        if isinstance(report, StreamReset):
            self.forget_stream(stream)
            stream.failed(StreamResetError(report.code, report.text))
        elif isinstance(report, StreamFinished):
            stream.finished()
        else:
            stream.writable()

    async def _serve_stream(self, handler: StreamHandler, stream: Stream) -> None:
        try:
            await handler(stream)
            await stream.aclose()
        except (StreamResetError, PeerClosedError) as error:
            logger.info("stream %r ended: %s", stream.label, error)
        except Exception:
            logger.exception("the handler of stream %r failed", stream.label)
            stream.reset(CloseCode.INTERNAL_ERROR)

    def forget_stream(self, stream: Stream) -> None:
        """Both directions of a stream are over and its buffer is empty."""
        self._streams.pop(stream.id, None)

    # Waiting.

    def _changed(self) -> None:
        self._on_change(self)
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.wake()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            waiter = self.backend.waiter()
            self._waiters.add(waiter)
            try:
                await waiter.wait()
            finally:
                self._waiters.discard(waiter)

    async def _until(self, condition: Callable[[], bool]) -> None:
        await self._wait(lambda: condition() or self._ended is not None)
        if not condition():
            raise self._closed_error()

    def _closed_error(self) -> PeerClosedError:
        if self._ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self._ended.code, self._ended.text)


_FAILED: tuple[int, str] = (
    ResultCode.HANDLER_FAILED,
    RESULT_SENTENCES[ResultCode.HANDLER_FAILED],
)
