"""`Peer`: the remote node of one connection, as applications use it.

When the connection ends, every pending operation fails immediately with the connection's close
code.
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
from parley._node.remote.remote import Remote, RequestOptions
from parley._node.remote.stream import Stream
from parley._node.trust.policies import ResolvedPolicy

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.store import ClientBuses


DEFAULT_TIMEOUT = 30.0


class CallOptions(RequestOptions, total=False):
    """Options of a call. By default `timeout` is 30 s.

    Attributes: once: run the handler at most once, even if the call is repeated on another
    connection with the same key: True for a new key, or a key of 16 bytes.
    """

    once: bool | bytes | IdempotencyKey


class StreamCallOptions(RequestOptions, total=False):
    """Options of a call whose answer is a stream of items. By default there is no `timeout`.

    Attributes: window: bytes of unread items to buffer, 1 to 2^31-1; each item counts as its
    payload plus 64 bytes. By default, the window agreed in the handshake.
    """

    window: int | None


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription.

    Attributes: timeout: seconds to wait for the publisher's response, default 30; None waits until
    the connection ends. window: bytes of unread notes to buffer, as in `StreamCallOptions`. after:
    the position of an earlier subscription; this one continues after it if the topic keeps a
    history. on_malformed: what to do with notes that don't match `returns`: "raise"
    MalformedDataError (the default), "skip" the note, or call a function with the note's data and
    the error and then skip the note.
    """

    timeout: float | None
    window: int | None
    after: TopicPosition | None
    on_malformed: OnMalformed


async def note_number(call: Awaitable[Value], topic: str) -> int | None:
    """Await the call that publishes a note; return the note's number, or None if it has none.

    Raises:
        CallRefused: the publication was refused. If the topic doesn't exist or has no writers, the
            message explains it.
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
    """The remote node of one connection, returned by `Node.connect` and passed to handlers.

    Use it as an async context manager to close the connection at the end of the block. `name`
    appears in the log: it is the address that was dialled, or the address that the connection came
    from.

    Example:

        print(peer.node_id, peer.suite)
        assert await peer.call("greet", "Ann") == "hello Ann"
    """

    def __init__(
        self,
        core: Connection,
        host: NodeContext,
        name: str,
        trust: ResolvedPolicy,
        dialled: str | None,
        on_change: Callable[[Remote], None],
    ) -> None:
        self.core = core
        self.backend = host.backend
        self.name = name
        self.live = live = LiveConnection(
            core, self, host.backend, host.config, name, host.metrics, on_change
        )
        self._statements = host.statements
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
        return f"peer {self.node_id.short if self.node_id else self.name}"

    @property
    def predecessors(self) -> tuple[NodeId, ...]:
        """The ended node IDs that this one has taken the place of (section 22)."""
        node_id = self.node_id
        return () if node_id is None else self._statements.table.predecessors(node_id)

    @property
    def accepted_predecessors(self) -> tuple[NodeId, ...]:
        """The ended node IDs whose rights the peer has, because a person accepted it as their
        successor (section 22). They are a part of `predecessors`.

        Example:

            members = {peer.node_id}
            assert not members.isdisjoint([peer.node_id, *peer.accepted_predecessors])
        """
        node_id = self.node_id
        return () if node_id is None else self._statements.table.accepted_predecessors(node_id)

    @property
    def node_id(self) -> NodeId | None:
        """The node ID that the peer has proved; None on an unencrypted connection."""
        return self.live.node_id

    @property
    def suite(self) -> Suite | None:
        """The cipher suite of the connection; None if it is unencrypted."""
        return self.live.agreed.suite if self.live.agreed else None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and the peer authenticated."""
        return self.suite is not None

    @property
    def role(self) -> str:
        """The role that the peer claims in its handshake. It is unverified and grants no
        permissions.
        """
        return self.live.agreed.remote_role if self.live.agreed else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """The application data that the peer sent in its handshake (unverified)."""
        return self.live.agreed.info if self.live.agreed else {}

    @property
    def limits(self) -> Limits:
        """The limits agreed in the handshake, which both sides enforce."""
        return self.live.limits

    @property
    def is_gone(self) -> bool:
        """Whether the transport is closed."""
        return self.live.gone

    @property
    def is_suspended(self) -> bool:
        """Whether the session has lost its transport and waits to resume.

        A suspended session is still open: new requests are queued until it resumes.
        """
        return self.live.is_suspended

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The node IDs on the connection's path through a federation, from origin to target
        (section 19).

        It is empty for a direct connection. Only the neighbouring node is authenticated, so don't
        base permissions on the other IDs.
        """
        return self.live.path

    @property
    def resumes(self) -> int:
        """How many times the session resumed over a new transport."""
        return self.live.resumes

    @property
    def running_calls(self) -> int:
        """How many handlers of this peer's calls are running."""
        return len(self.calls.incoming)

    @property
    def ignored(self) -> int:
        """How many named events of the peer had no handler."""
        return self.calls.named.ignored

    @property
    def dropped(self) -> int:
        """Number of received events that no handler consumed."""
        return self.core.dropped

    # Requests.

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete and the connection has not ended."""
        return self.live.is_open

    @property
    def once_epoch(self) -> bytes | None:
        """The peer's epoch for calls with `once`: 8 bytes that change whenever the peer restarts.

        None if the peer doesn't support such calls.
        """
        epoch = self.live.agreed.info.get(ONCE_INFO) if self.live.agreed else None
        return epoch if type(epoch) is bytes and len(epoch) == ONCE_EPOCH_SIZE else None

    def closed_error(self) -> PeerClosedError:
        """Return the error that requests on this closed connection raise."""
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
        """Call a topic of the peer and return the data of its answer.

        `timeout` is in seconds and covers the whole call; it is sent to the peer as the call's
        deadline. None waits until the connection ends.

        With `once`, the handler runs at most once, even if the call is repeated on another
        connection with the same key. Pass True to create a new key, or a key of 16 bytes.

        `data` can be or contain a dataclass, a msgspec Struct, a pydantic model, a date or a
        similar value. With `returns`, the answer is converted to that type: a class, or a hint such
        as `list[Order]`.

        Example:

            assert await peer.call("greet", "Ann", timeout=5, returns=str) == "hello Ann"

        Raises:
            CallRefused: the peer answered with a code other than 0.
            CallTimeout: no answer arrived in time.
            PeerClosedError: the connection has ended.
            OutcomeUnknownError: the connection ended during a call with `once`, which can be
                repeated.
            NotOnceError: the peer or its handler doesn't support `once`; the handler did not run.
            PayloadTooLargeError: `data` is too large to send.
            LimitReachedError: 65,535 calls are already waiting for answers.
            LbmEncodeError: `data` cannot be encoded.
            StreamedAnswerError: the answer is a stream of items; use `call_stream`.
            MalformedDataError: the answer does not match `returns`.
            ConfigError: `returns` is not a type that can be checked.
            TypeError: `once` is not True, bytes or an IdempotencyKey.
            ValueError: the key in `once` is not 16 bytes long.
        """
        wanted = None if returns is None else data_type(returns)
        if self.interceptors.call_out and type(headers) is not PassedHeaders:
            # The same key is used for every attempt.
            key = once if once is False else IdempotencyKey.of(once)
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
        epoch = epoch_to_ask(key, self.node_id, self.once_epoch, now)
        try:
            call = outgoing.call(topic, data, now, timeout, waiter.wake, headers, once=key.value)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        again = key.sent is not None
        if not again:
            key.sending(self.node_id, epoch, now)
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
        """Publish a note to a topic of the peer, whose `writers` must include this node.

        Returns the note's number, or None if the topic keeps no history. The options are those of
        `call`.

        Raises:
            CallRefused: code 1, the topic does not exist or has no writers; 20, this node is not a
                writer; 21, the note is too long; 23, it does not match the topic's type. Other
                errors are those of `call`.
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
        """Call a topic whose handler answers with a stream of items.

        Use the result with `async with`, then iterate over it with `async for`. `timeout` is in
        seconds and covers the whole answer. `window` limits how many bytes of unread items are
        buffered, 1 to 2^31-1; each item counts as its payload plus 64 bytes. By default, it is the
        window agreed in the handshake. With `returns`, each item is converted to that type, as in
        `call`.

        Raises:
            ConfigError: `returns` is not a type that can be checked.
        """
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
        """Subscribe to a topic that the peer publishes.

        Use the result with `async with`, then iterate over it with `async for`. `data` is passed to
        the publisher, which can use it to accept or refuse. `timeout` is how many seconds to wait
        for the publisher's answer. `window` limits unread notes as in `call_stream`.

        If the topic keeps a history, `after` continues after the position of an earlier
        subscription. With `returns`, each note is converted to that type, as in `call`.
        `on_malformed` selects what to do with notes that don't match: "raise" MalformedDataError,
        "skip" the note, or call a function with the note's data and the error and then skip the
        note. Entering and reading raise the errors that `Subscription` documents.

        Example:

            async with peer.subscribe("news") as news:
                print(news.topic, news.position)

        Raises:
            ConfigError: `returns` is not a type that can be checked, or `on_malformed` is invalid.
        """
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
        """Emit a named event.

        Await the result to send the event without waiting for replies, or use its `reply()` or
        `replies()`. `format` is the encoding of the data: `raw` requires bytes, and a `Tandem` has
        two payloads. `Emission` documents the errors that sending raises.

        Example:

            await peer.emit("order", {"id": 7, "amount": 3})

        Raises:
            FormatError: the format is unknown, or `raw` got something other than bytes.
        """
        end = self.handlers
        emitter = end.emitter_of(name) if self.interceptors.event_out else end.emitter
        return Emission(emitter, name, namespace, make_payload(data, format))

    def open_stream(self, label: str, answers: Iterable[tuple[int, int]] = ()) -> Stream:
        """Open a stream to the peer's handler for `label`.

        `answers` lists the event types, as (category, subcategory), that answer `stream.request`.

        Example:

            async with peer.open_stream("upload") as stream:
                await stream.send(b"first part")

        Raises:
            PeerClosedError: the connection has ended.
            ConfigError: `answers` does not contain event types.
            LimitReachedError: as many streams are open as were agreed in the handshake.
        """
        chain = self.interceptors.stream_out
        if not chain:
            return self.streams.open(label, answers)
        stream: Stream = chain.run(
            Intercepted(chain, self, label), lambda one: self.streams.open(one.name, answers)
        )
        return stream

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """Return a client for the bus that the peer offers (docs/bus.md).

        It can be used until this connection ends, within the permissions that the peer grants.
        `config` sets the local options `service`, `consumer` and `timeout`. To continue as the same
        consumer on a later connection, use the same `config.consumer`.
        """
        if self._buses is None:
            # Import it here: most connections don't use a bus, and programs start faster without
            # it.
            from parley._node.bus.remote.store import connection_buses

            self._buses = connection_buses(self.live, self.streams)
        return self._buses.open(config)

    async def ping(self) -> float:
        """Measure the round-trip time to the peer, in seconds.

        Example:

            print(f"{await peer.ping() * 1000:.1f} ms")

        Raises:
            PeerClosedError: the connection has ended.
            LimitReachedError: 64 pings are already waiting, or the rate limit is exceeded (8,192 at
                once, then 512 per second).
        """
        return await self.live.ping()

    def update_keys(self) -> None:
        """Switch to the next sending keys.

        Raises:
            PeerClosedError: the connection has ended.
            LimitReachedError: the rate limit is exceeded (32 at once, then one per 2 s).
        """
        self.live.update_keys()

    async def rekey(self) -> int:
        """Exchange fresh keys for both directions and return the number of the rekey.

        If a rekey is already in progress, wait for that one.

        Raises:
            PeerClosedError: the connection ended before the rekey completed, or it did not complete
                within 30 s.
            LimitReachedError: the last rekey was less than 10 s ago.
        """
        return await self.live.rekey()

    def redial(self) -> None:
        """Open a new transport for the session immediately, for example after the network has
        changed.

        Only the side that dialled can do so. The old transport is closed once the new one is in
        use, and `resumes` increases by one.

        Raises:
            PeerClosedError: the connection has ended.
            LocalProtocolError: the peer dialled this connection, or resumption was not agreed.
        """
        self.live.redial()

    async def closed(self) -> ConnectionEnded:
        """Wait until the connection ends and return the reason."""
        return await self.live.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Close the connection gracefully: send queued events first, then wait until the transport
        is closed.

        Raises:
            ValueError: `code` is not allowed in a Close.
        """
        if self._buses is not None:
            # Close the buses first, because events can only be returned while the connection is
            # open.
            await self._buses.aclose()
        self.live.draining = True
        self.topics.flush()
        self.core.close(self.backend.now(), code, text)
        self.driver.step()
        await self.live.changes.until(lambda: self.live.gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Close the connection; after an exception, don't wait for the peer."""
        if exc_type is None:
            await self.close()
        else:
            self.live.drop(CloseCode.NORMAL)
