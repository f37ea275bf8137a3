"""`Peer`: the other node of one connection, as applications use it.

It joins the connection with what speaks on it and with the handlers of its node. Whatever waits
here ends with the connection, at once, with its code.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from parley._crypto.identity import NodeId
from parley._crypto.registry import Suite
from parley._lbm.codec import Encodable, Value
from parley._node.data_types import D, Model, R, data_type
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.handlers.interceptors import Intercepted, PassedHeaders
from parley._node.messaging.formats import FormatName
from parley._node.messaging.idempotency import ONCE_EPOCH_SIZE, ONCE_INFO
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.messaging.topic_history import TopicPosition
from parley._node.messaging.topics import PUBLISH
from parley._node.peer.answer_stream import AnswerStream, answer_of
from parley._node.peer.connection_handlers import ConnectionHandlers, NodeContext
from parley._node.peer.idempotency import IdempotencyKey, answer_of_once, epoch_to_ask
from parley._node.peer.subscription import OnMalformed, Subscription
from parley._node.protocol.codes import GIVEN_UP, CloseCode, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.emission import Emission
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.remote import RequestOptions
from parley._node.remote.stream import Stream
from parley._node.trust.policies import ResolvedPolicy

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.store import ClientBuses


DEFAULT_TIMEOUT = 30.0


class CallOptions(RequestOptions, total=False):
    """Options of a call. By default `timeout` is 30 s.

    Attributes:
        once: run the handler at most once, also if the call is repeated on another connection with
            the same key: True for a new key, or a key of 16 bytes.
    """

    once: bool | bytes | IdempotencyKey


class StreamCallOptions(RequestOptions, total=False):
    """Options of a call whose answer is a stream of items. By default there is no `timeout`.

    Attributes:
        window: bytes of cost that may wait unread (an item's payload and 64), 1 to 2^31-1; by
            default the agreed window.
    """

    window: int | None


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription.

    Attributes:
        timeout: seconds until the publisher's response, default 30; None: as long as the
            connection is open.
        window: bytes of cost that may wait unread, as in `StreamCallOptions`.
        after: the position of an earlier subscription, after which this one continues if the topic
            keeps a history.
        on_malformed: what happens with notes of another type than `returns`: "raise"
            MalformedDataError (the default), "skip" the note, or call a function with the note's
            data and the error and then skip it.
    """

    timeout: float | None
    window: int | None
    after: TopicPosition | None
    on_malformed: OnMalformed


async def note_number(call: Awaitable[Value], topic: str) -> int | None:
    """Await the call that publishes a note and return the note's number, None if it has none.

    Raises:
        CallRefused: the error explains a topic that doesn't exist or has no writers.
    """
    try:
        answer = await call
    except CallRefused as error:
        if error.code == ResultCode.TOPIC_NOT_FOUND:
            error.args = (
                f"cannot publish to topic {topic!r}: the node has no such topic, or it has no "
                "writers; the node must create it with writers=",
            )
        raise
    return answer if type(answer) is int else None


class Peer:
    """The other node. Made by `Node`. `name`, for the log, is the address dialled or where the
    connection came from."""

    def __init__(
        self,
        core: Connection,
        host: NodeContext,
        name: str,
        trust: ResolvedPolicy,
        dialled: str | None,
        on_change: Callable[["Peer"], None],
    ) -> None:
        self.core = core
        self.backend = host.backend
        self.name = name
        self.live = live = LiveConnection(
            core, self, host.backend, host.config, name, host.metrics, lambda: on_change(self)
        )
        self.handlers = end = ConnectionHandlers(live, host, trust, dialled)
        self.driver = live.driver
        self.calls = end.calls
        self.outgoing = end.calls.outgoing
        self.interceptors = host.handlers.interceptors
        self.topics = end.topics
        self.streams = end.streams
        self._buses: ClientBuses | None = None

    def __repr__(self) -> str:
        return f"<Peer {self.node_id.short if self.node_id else self.name}>"

    def __str__(self) -> str:
        """The peer as log lines name it."""
        return f"peer {self.node_id.short if self.node_id else self.name}"

    # What is known of it.

    @property
    def node_id(self) -> NodeId | None:
        """The id that the other side has proved; None on an unencrypted connection."""
        return self.live.node_id

    @property
    def suite(self) -> Suite | None:
        """The algorithms agreed on; None on an unencrypted connection."""
        return self.live.agreed.suite if self.live.agreed else None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and its peer authenticated."""
        return self.suite is not None

    @property
    def role(self) -> str:
        """What the other side claims to be: a claim, from which no rights follow."""
        return self.live.agreed.remote_role if self.live.agreed else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """What the other side says of itself."""
        return self.live.agreed.info if self.live.agreed else {}

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self.live.limits

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""
        return self.live.gone

    @property
    def is_suspended(self) -> bool:
        """Whether the session has lost its transport and waits for another; what is asked of it
        meanwhile waits with it. It is open all the same."""
        return self.live.is_suspended

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The way of its transport through a federation (section 19), from origin to target; empty
        for a direct one. Only the neighbour is proven: nothing is authorised by the others."""
        return self.live.path

    @property
    def resumes(self) -> int:
        """How often the session went on over a new transport."""
        return self.live.resumes

    @property
    def running_calls(self) -> int:
        """How many handlers of this peer's calls run."""
        return len(self.calls.incoming)

    @property
    def ignored(self) -> int:
        """Named events of the peer for which there was no handler."""
        return self.calls.named.ignored

    @property
    def dropped(self) -> int:
        """Events that nobody took."""
        return self.core.dropped

    # Requests.

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over and the connection is not."""
        return self.live.is_open

    @property
    def once_epoch(self) -> bytes | None:
        """8 bytes that are others each time the other node starts, if it remembers calls that are
        made once; None if it does not."""
        epoch = self.live.agreed.info.get(ONCE_INFO) if self.live.agreed else None
        return epoch if type(epoch) is bytes and len(epoch) == ONCE_EPOCH_SIZE else None

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
        return self.live.closed_error()

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: None = None,
        **options: Unpack[CallOptions],
    ) -> Value: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[R],
        **options: Unpack[CallOptions],
    ) -> R: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType,
        **options: Unpack[CallOptions],
    ) -> Any: ...

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | IdempotencyKey = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic and return the data of its answer. `timeout` is seconds for all of it and
        travels as the call's deadline; None waits as long as the connection lives.

        With `once` the handler runs once at most, also if the call is asked again on another
        connection with the same key: True for a new key, or its 16 bytes.

        `data` may be or hold a dataclass, a msgspec Struct, a pydantic model, a date or the like,
        and with `returns` the answer is of that type: a class, or a hint such as `list[Order]`.

        Raises:
            CallRefused: answered with a code other than 0.
            CallTimeout: no answer in time.
            PeerClosedError: the connection is over.
            OutcomeUnknownError: it ended, and a call with `once` may be asked again.
            NotOnceError: with `once`, not run: the peer or its handler does not remember.
            PayloadTooLargeError: not sent.
            LimitReachedError: 65,535 calls wait for their answers.
            LbmEncodeError: `data` has no encoding.
            StreamedAnswerError: use `call_stream`.
            MalformedDataError: the answer is not of the type `returns`.
            ConfigError: that cannot be checked.
            TypeError, ValueError: `once` is not a key.
        """
        wanted = None if returns is None else data_type(returns)
        if self.interceptors.call_out and type(headers) is not PassedHeaders:
            key = (
                once if once is False else IdempotencyKey.of(once)
            )  # one, however often it is tried
            answer = await self._intercepted(topic, data, timeout, headers, key)
            return answer if wanted is None else wanted.read(answer)
        if once is not False:
            answer = await self._call_once(IdempotencyKey.of(once), topic, data, timeout, headers)
            return answer if wanted is None else wanted.read(answer)
        if not self.driver.can_send:
            timeout = await self.live.wait_writable(timeout)
        backend, outgoing = self.backend, self.outgoing
        waiter = backend.waiter()
        now = backend.now()
        try:
            call = outgoing.call(topic, data, now, timeout, waiter.wake, headers)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        try:
            await waiter
        finally:
            code = call.code if call.done else GIVEN_UP
            if not call.done:
                outgoing.cancel(call)
            self.live.metrics.made.add(code, backend.now() - now)
        answer = answer_of(call) if call.code else call.data
        return answer if wanted is None else wanted.read(answer)

    async def _intercepted(
        self,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
        once: IdempotencyKey | bool,
    ) -> Value:
        """Call through the interceptors."""

        async def proceed(one: Intercepted) -> Value:
            passed, timeout = PassedHeaders(one.headers), one.timeout
            return await self.call(topic, one.data, timeout=timeout, headers=passed, once=once)

        chain = self.interceptors.call_out
        one = Intercepted(chain, self, topic, data, headers, timeout=timeout)
        answer: Value = await chain.run(one, proceed)
        return answer

    async def _call_once(
        self,
        key: IdempotencyKey,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
    ) -> Value:
        backend, outgoing = self.backend, self.outgoing
        if not self.is_open:
            raise self.closed_error()
        timeout = await self.live.wait_writable(timeout)
        waiter = backend.waiter()
        now = backend.now()
        epoch = epoch_to_ask(key, self.once_epoch, now)
        try:
            call = outgoing.call(topic, data, now, timeout, waiter.wake, headers, once=key.value)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        again = key.sent is not None
        if not again:
            key.sending(epoch, now)
        try:
            await waiter
        finally:
            code = call.code if call.done else GIVEN_UP
            if not call.done:
                outgoing.cancel(call)
            self.live.metrics.made.add(code, backend.now() - now)
        return answer_of_once(key, call, again=again)

    async def publish(
        self, topic: str, data: Encodable | Model = None, **options: Unpack[CallOptions]
    ) -> int | None:
        """Publish a note of a topic of the peer, which names us among the topic's `writers`.
        Returns its number, None if the topic does not remember; the options are those of `call`.

        Raises:
            CallRefused: 1 no such topic, or it has no writers; 20 we are none of them; 21 too long;
                23 not of the topic's type. And what `call` raises.
        """
        return await note_number(self.call(PUBLISH + topic, data, **options), topic)

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[D] | None = None,
        **options: Unpack[StreamCallOptions],
    ) -> AnswerStream[D]: ...

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType | type[Any],
        **options: Unpack[StreamCallOptions],
    ) -> AnswerStream[Any]: ...

    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Encodable] | None = None,
        window: int | None = None,
        returns: Any = None,
    ) -> AnswerStream[Any]:
        """Call a topic whose handler answers in items: `async with` it, then `async for`. `timeout`
        is seconds for all of it. `window` is what may wait unread here, in bytes of cost (an item's
        payload and 64), 1..2^31-1; by default the agreed window. With `returns` each item is of
        that type, as in `call`."""
        kind = None if returns is None else data_type(returns)
        chain, arguments = self.interceptors.call_out, (topic, data, timeout, headers)
        return AnswerStream(self.live, self.outgoing, chain, *arguments, window, kind)

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[D] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[D]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType | type[Any],
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Any]: ...

    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int | None = None,
        after: TopicPosition | None = None,
        returns: Any = None,
        on_malformed: OnMalformed = "raise",
    ) -> Subscription[Any]:
        """Subscribe to a topic that the peer publishes: `async with` it, then `async for`.
        `timeout` is seconds until the answer, `data` is for the publisher to decide on; `window`
        as in `call_stream`. A topic that remembers goes on `after` the position of an earlier
        subscription. With `returns` each note is of that type, as in `call`; `on_malformed` is what
        to do with others: "raise" MalformedDataError, "skip" the note, or a function of the note's
        data and the error that is called before the note is skipped. What is raised, and when:
        `Subscription`."""
        kind = None if returns is None else data_type(returns)
        arguments = topic, data, timeout, window, after, kind, on_malformed
        return Subscription(self.live, self.outgoing, self.topics, self.interceptors, *arguments)

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> Emission:
        """Emit a named event: `await` it, or ask it for its `reply()` or `replies()`. `format` is
        what the data travels in; `raw` takes bytes as they are, a Tandem two payloads. What is
        raised, and when: `Emission`.

        Raises:
            FormatError: there is no such format, or `raw` is given something other than bytes.
        """
        end = self.handlers
        emitter = end.emitter_of(name) if self.interceptors.event_out else end.emitter
        return Emission(emitter, name, namespace, make_payload(data, format))

    def open_stream(self, label: str, answers: Iterable[tuple[int, int]] = ()) -> Stream:
        """Open a stream to the handler that the other side has for `label`. `answers` are the
        types of events, as (category, subcategory), that answer `stream.request`.

        Raises:
            PeerClosedError: the connection is over.
            ConfigError: `answers` are not types.
            LimitReachedError: as many streams are open as were agreed.
        """
        chain = self.interceptors.stream_out
        if not chain:
            return self.streams.open(label, answers)
        stream: Stream = chain.run(
            Intercepted(chain, self, label), lambda one: self.streams.open(one.name, answers)
        )
        return stream

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """The bus that the other side offers (docs/bus.md): for as long as this connection
        lives, and as far as the other side allows. `config` has what is decided on this side:
        `service`, `consumer`, `timeout`. One on the next connection goes on as the same consumer if
        `config.consumer` is the same."""
        if self._buses is None:
            # Here: most connections have none, and programs start sooner without it.
            from parley._node.bus.remote.store import connection_buses

            self._buses = connection_buses(self.live, self.streams)
        return self._buses.open(config)

    async def ping(self) -> float:
        """The round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is over.
            LimitReachedError: 64 wait already, or there were more than 8,192 at once and 512 a
                second.
        """
        return await self.live.ping()

    def update_keys(self) -> None:
        """Go on under the next keys in our direction.

        Raises:
            PeerClosedError: the connection is over.
            LimitReachedError: more than 32 at once, and one in 2 s in which there is a transport.
        """
        self.live.update_keys()

    async def rekey(self) -> int:
        """Agree on fresh keys for both directions; returns the rekey's number. One that is under
        way already, by either side's wish, is joined.

        Raises:
            PeerClosedError: the connection is over, or ended before the rekey was finished, within
                30 s.
            LimitReachedError: the last rekey is less than 10 s old.
        """
        return await self.live.rekey()

    def redial(self) -> None:
        """Make a new transport now, the side that dialled alone: the network has changed, or
        the pause before the next attempt is too long. The old transport goes when the new one is
        there; `resumes` says when.

        Raises:
            PeerClosedError: the connection is over.
            LocalProtocolError: the other side dialled, or no resuming was agreed.
        """
        self.live.redial()

    # Its end.

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        return await self.live.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first; returns when the transport is closed.

        Raises:
            ValueError: `code` is not one that Close may carry.
        """
        if self._buses is not None:
            await self._buses.aclose()  # as long as events can be given back
        self.live.draining = True
        self.topics.flush()
        self.core.close(self.backend.now(), code, text)
        self.driver.step()
        await self.live.changes.until(lambda: self.live.gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Close; by an exception without waiting for it."""
        if exc_type is None:
            await self.close()
        else:
            self.live.drop(CloseCode.NORMAL)
