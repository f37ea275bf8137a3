"""What a program asks of a peer: calls, answers in items, and subscriptions to topics.

With `returns=` what comes is of that type, or told as malformed; without it nothing is done for it.
"""

from collections.abc import Awaitable, Mapping
from types import UnionType
from typing import Any, overload

from parley._lbm.codec import Encodable, Value
from parley._node.data_types import D, Model, R, data_type
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.handlers.interceptors import Intercepted, Interceptors, PassedHeaders
from parley._node.messaging.idempotency import ONCE_EPOCH_SIZE, ONCE_INFO
from parley._node.messaging.outgoing_requests import Asking
from parley._node.messaging.topic_history import TopicPosition
from parley._node.messaging.topics import PUBLISH, Topics
from parley._node.peer.answer_stream import AnswerStream, answer_of
from parley._node.peer.once_key import OnceKey, answer_of_once, epoch_to_ask
from parley._node.peer.subscription import OnMalformed, Subscription
from parley._node.protocol.codes import GIVEN_UP, ResultCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver

DEFAULT_TIMEOUT = 30.0


class PeerRequests:
    """What is asked of it waits for room to be sent, and ends with the connection."""

    live: LiveConnection
    backend: Backend
    driver: Driver
    asking: Asking
    topics: Topics
    interceptors: Interceptors

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
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes | OnceKey = ...,
        returns: None = None,
    ) -> Value: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes | OnceKey = ...,
        returns: type[R],
    ) -> R: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes | OnceKey = ...,
        returns: UnionType,
    ) -> Any: ...

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | OnceKey = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic and return the data of its answer. `timeout` is seconds for all of it and
        travels as the call's deadline; None waits as long as the connection lives.

        With `once` the handler runs once at most, also if the call is asked again on another
        connection with the same key: True for a new key, or its 16 bytes.

        `data` may be or hold a dataclass, a msgspec Struct, a pydantic model, a date or the like,
        and with `returns` the answer is of that type: a class, or a hint such as `list[Order]`.

        Raises:
            CallRefused: answered with a code other than 0. CallTimeout: no answer in time.
            PeerClosedError: the connection is over. OutcomeUnknownError: it ended, and a call
                with `once` may be asked again. NotOnceError: with `once`, not run: the peer or its
                handler does not remember. PayloadTooLargeError: not sent.
            LocalProtocolError: 65,535 calls wait for their answers.
            LbmEncodeError: `data` has no encoding. StreamedAnswerError: use `call_stream`.
            MalformedDataError: the answer is not of the type `returns`.
            ConfigError: that cannot be checked. TypeError, ValueError: `once` is not a key.
        """
        wanted = None if returns is None else data_type(returns)
        if self.interceptors.call_out and type(headers) is not PassedHeaders:
            key = once if once is False else OnceKey.of(once)  # one, however often it is tried
            answer = await self._intercepted(topic, data, timeout, headers, key)
            return answer if wanted is None else wanted.read(answer)
        if once is not False:
            answer = await self._call_once(OnceKey.of(once), topic, data, timeout, headers)
            return answer if wanted is None else wanted.read(answer)
        if not self.driver.has_room:
            timeout = await self.live.room(timeout)
        backend, asking = self.backend, self.asking
        waiter = backend.waiter()
        now = backend.now()
        try:
            call = asking.call(topic, data, now, timeout, waiter.wake, headers)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        try:
            await waiter
        finally:
            code = call.code if call.done else GIVEN_UP
            if not call.done:
                asking.give_up(call)
            self.live.metrics.made.add(code, backend.now() - now)
        answer = answer_of(call) if call.code else call.data
        return answer if wanted is None else wanted.read(answer)

    async def _intercepted(
        self,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
        once: OnceKey | bool,
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
        key: OnceKey,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
    ) -> Value:
        backend, asking = self.backend, self.asking
        if not self.is_open:
            raise self.closed_error()
        timeout = await self.live.room(timeout)
        waiter = backend.waiter()
        now = backend.now()
        epoch = epoch_to_ask(key, self.once_epoch, now)
        try:
            call = asking.call(topic, data, now, timeout, waiter.wake, headers, once=key.value)
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
                asking.give_up(call)
            self.live.metrics.made.add(code, backend.now() - now)
        return answer_of_once(key, call, again=again)

    async def publish(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | OnceKey = False,
    ) -> int | None:
        """Publish a note of a topic of the peer, which names us among the topic's `writers`.
        Returns its number, None if the topic does not remember; the options are those of `call`.

        Raises:
            CallRefused: 1 no such topic, or it has no writers; 20 we are none of them; 21 too
                long; 23 not of the topic's type. And what `call` raises.
        """
        call = self.call(PUBLISH + topic, data, timeout=timeout, headers=headers, once=once)
        return await published(call, topic)

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        window: int | None = ...,
        returns: type[D] | None = None,
    ) -> AnswerStream[D]: ...

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        window: int | None = ...,
        returns: UnionType | type[Any],
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
        return AnswerStream(self.live, self.asking, chain, *arguments, window, kind)

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        window: int | None = ...,
        after: TopicPosition | None = ...,
        returns: type[D] | None = None,
        on_malformed: OnMalformed = ...,
    ) -> Subscription[D]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        window: int | None = ...,
        after: TopicPosition | None = ...,
        returns: UnionType | type[Any],
        on_malformed: OnMalformed = ...,
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
        return Subscription(self.live, self.asking, self.topics, self.interceptors, *arguments)


async def published(call: Awaitable[Value], topic: str) -> int | None:
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
