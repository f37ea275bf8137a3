"""Synchronous counterparts of `Peer` and `Link`, whose methods block until the result is
available.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType, UnionType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack, overload

import anyio

from parley._crypto.identity import Identity, NodeId
from parley._lbm.codec import Encodable, Value
from parley._node.backoff import Backoff
from parley._node.blocking.background import LoopThread
from parley._node.connections import CONNECT_TIMEOUT
from parley._node.data_types import D, Model, R
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem
from parley._node.messaging.topic_history import TopicPosition
from parley._node.node import Node
from parley._node.peer.answer_stream import AnswerStream
from parley._node.peer.link import Link
from parley._node.peer.peer import (
    CallOptions,
    Peer,
    StreamCallOptions,
    SubscribeOptions,
)
from parley._node.trust.policies import AcceptHook, TrustPolicy


class NoteSource(Protocol[D]):
    """A subscription of a peer or link. Its members are documented in `Subscription`."""

    data: Value
    headers: Mapping[str, Value]

    @property
    def dropped(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def recovered(self) -> bool: ...
    @property
    def gaps(self) -> int: ...
    @property
    def position(self) -> TopicPosition | None: ...

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...
    async def next_batch(self) -> list[D]: ...


class BlockingSubscription(Generic[D]):
    """The notes of a topic, for synchronous code: iterate over it with `for note in sub`.

    `BlockingPeer.subscribe` creates it, already subscribed. The iteration ends when the publisher
    closes the topic. Only one thread can read at a time. `data` is the initial data that the
    publisher sent when it accepted the subscription.

    Example:

        from anyio.to_thread import run_sync
        from parley import Identity, Node
        from parley.blocking import connect

        node.topic("prices", state=lambda: {"tea": 3})
        address = await node.listen("tcp://127.0.0.1:0")

        def read():  # runs in a thread without an event loop
            with connect(address) as peer, peer.subscribe("prices") as notes:
                return notes.data  # `for note in notes` would read the notes

        assert await run_sync(read) == {"tea": 3}
    """

    def __init__(self, background: LoopThread, source: NoteSource[D]) -> None:
        self._background = background
        self._source = source
        self._ready: deque[D] = deque()
        self._closed = False
        background.run(source.__aenter__)
        self.data = source.data

    @property
    def headers(self) -> Mapping[str, Value]:
        """The headers of the last note; empty if it had none."""
        return self._source.headers

    @property
    def dropped(self) -> int:
        """The number of known lost notes, dropped because the subscriber was too slow."""
        return self._source.dropped

    @property
    def number(self) -> int:
        """The number of the last note that was read; see `Subscription.number`."""
        return max(0, self._source.number - len(self._ready))

    @property
    def recovered(self) -> bool:
        """Whether all notes since the last position were received; see `Subscription.recovered`."""
        return self._source.recovered

    @property
    def gaps(self) -> int:
        """The number of gaps in the notes; see `Subscription.gaps`."""
        return self._source.gaps

    @property
    def position(self) -> TopicPosition | None:
        """The position for `after=` of a later subscription: after the last received note.

        Received notes count even if they have not been read; they can still be read here.
        """
        return self._source.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """Return the next note. Raises the same errors as `Subscription.__anext__`."""
        try:
            return self.get()
        except anyio.EndOfStream:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> D:
        """Return the next note; wait at most `timeout` seconds, or indefinitely if None.

        Raises:
            TimeoutError: no note arrived in time; a later call can return it.
            EndOfStream: the publisher closed the topic. Also the errors of
                `Subscription.__anext__`.
        """
        if not self._ready:
            self._background.run(self._fetch, timeout)
        if not self._ready:
            raise anyio.EndOfStream
        return self._ready.popleft()

    def close(self) -> None:
        """Unsubscribe; further calls do nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if not self._closed and not self._background.is_closed:
            self._closed = True
            self._background.run(self._source.__aexit__, exc_type, exc_val, exc_tb)

    async def _fetch(self, timeout: float | None) -> None:
        with anyio.fail_after(timeout):
            self._ready.extend(await self._source.next_batch())


class BlockingAnswer(Generic[D]):
    """The items of a streamed answer, for synchronous code: iterate with `for item in answer`.

    `BlockingPeer.call_stream` creates it and makes the call. Closing it early cancels the call.
    Only one thread can read at a time.
    """

    def __init__(self, background: LoopThread, source: AnswerStream[D]) -> None:
        self._background = background
        self._source = source
        self._items: AsyncIterator[D] = source
        self._ready: deque[D] = deque()
        background.run(source.__aenter__)

    @property
    def result(self) -> Value:
        """The data of the final answer, available after the last item."""
        return self._source.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """Return the next item. Raises the same errors as `AnswerStream.__anext__`."""
        if not self._ready:
            self._background.run(self._fetch)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        """Cancel the call unless it has ended; further calls do nothing."""
        if not self._background.is_closed:
            self._background.run(self._source.__aexit__, None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    async def _fetch(self) -> None:
        async for item in self._items:
            self._ready.append(item)
            break


A = TypeVar("A", bound=Peer | Link)
T = TypeVar("T")


class BlockingClient(Generic[A]):
    """The operations shared by `BlockingPeer` and `BlockingLink`.

    It can be used from several threads. If a waiting thread is interrupted (Ctrl-C), the operation
    is cancelled and can be repeated.
    """

    def __init__(self, background: LoopThread, asked: A) -> None:
        self._background = background
        self._asked = asked

    @overload
    def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: None = None,
        **options: Unpack[CallOptions],
    ) -> Value: ...

    @overload
    def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[R],
        **options: Unpack[CallOptions],
    ) -> R: ...

    @overload
    def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType,
        **options: Unpack[CallOptions],
    ) -> Any: ...

    def call(self, topic: str, data: Encodable | Model = None, **options: Any) -> Any:
        """Call a topic and return the data of the answer; see `Peer.call` and `Link.call`."""
        return self._background.run(partial(self._asked.call, topic, data, **options))

    def publish(
        self, topic: str, data: Encodable | Model = None, **options: Unpack[CallOptions]
    ) -> int | None:
        """Publish a note on a topic of the other node and return its number; see `Peer.publish`."""
        return self._background.run(partial(self._asked.publish, topic, data, **options))

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[D] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[D]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType | type[Any],
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[Any]: ...

    def subscribe(
        self, topic: str, data: Encodable | Model = None, **options: Any
    ) -> BlockingSubscription[Any]:
        """Subscribe to a topic and return once the publisher has accepted; see `Peer.subscribe`."""
        source = self._asked.subscribe(topic, data, **options)
        return BlockingSubscription(self._background, source)

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> None:
        """Emit a named event without waiting for replies; see `Peer.emit`."""

        async def emit(asked: A) -> None:
            await asked.emit(name, data, namespace=namespace, format=format)

        self.run(emit)

    def run(self, function: Callable[[A], Awaitable[T]]) -> T:
        """Run `function(peer)`, or `function(link)`, in the loop of the connection and return its
        result.

        Use it for operations that have no synchronous method: replies to events, streams, or a bus.

        Raises:
            ParleyError: the connection is closed, or the caller is the loop's own thread. Errors of
                the function are raised unchanged.
        """
        return self._background.run(function, self._asked)

    def close(self) -> None:
        """Close the connection gracefully and stop its thread; further calls do nothing.

        Open connections are closed when the program exits.
        """
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._background.leave(exc_type, exc_val, exc_tb)


class BlockingPeer(BlockingClient[Peer]):
    """A peer for synchronous code, created by `parley.blocking.connect`.

    Its methods block until they have a result. `peer` is the asynchronous peer, which can only be
    used in its own loop, through `run`.

    Example:

        from anyio.to_thread import run_sync
        from parley.blocking import connect

        @node.on_call("echo")
        async def echo(call):
            return call.data

        address = await node.listen("tcp://127.0.0.1:0")

        def ask():  # runs in a thread without an event loop
            with connect(address) as server:
                return server.call("echo", "hello", timeout=5)

        assert await run_sync(ask) == "hello"
    """

    def __repr__(self) -> str:
        return f"<BlockingPeer {self.peer.node_id.short if self.peer.node_id else self.peer.name}>"

    @property
    def peer(self) -> Peer:
        """The asynchronous peer, for functions passed to `run`."""
        return self._asked

    @property
    def node_id(self) -> NodeId | None:
        """The node ID that the peer has proved; None on an unencrypted connection."""
        return self.peer.node_id

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self.peer.is_open

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[D] | None = None,
        **options: Unpack[StreamCallOptions],
    ) -> BlockingAnswer[D]: ...

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: UnionType | type[Any],
        **options: Unpack[StreamCallOptions],
    ) -> BlockingAnswer[Any]: ...

    def call_stream(
        self, topic: str, data: Encodable | Model = None, **options: Any
    ) -> BlockingAnswer[Any]:
        """Call a topic with a streamed answer and return its items; see `Peer.call_stream`."""
        return BlockingAnswer(self._background, self.peer.call_stream(topic, data, **options))

    def ping(self) -> float:
        """Return the round-trip time in seconds. Raises the same errors as `Peer.ping`."""
        return self._background.run(self.peer.ping)


def connect(
    address: str,
    *,
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> BlockingPeer:
    """Connect to a node and return a peer for synchronous code.

    `node` is the local node, with its settings and handlers; it must not be running yet. By default
    it is a node with a new identity. It runs in a background thread, in an asyncio loop, until the
    peer is closed. The other parameters and the errors are those of `Node.connect`.
    """
    local = node or Node(Identity.create())
    background = LoopThread(local)
    with ExitStack() as stack:
        stack.push(background.leave)
        dial = partial(local.connect, address, trust=trust, timeout=timeout)
        peer = BlockingPeer(background, background.run(dial))
        stack.pop_all()
    return peer


class BlockingLink(BlockingClient[Link]):
    """A link for synchronous code, created by `parley.blocking.link`.

    Calls wait until the link is connected, and subscriptions continue over new sessions. `link` is
    the asynchronous link, which can only be used in its own loop, through `run`.
    """

    def __repr__(self) -> str:
        return f"<BlockingLink of {self.link!r}>"

    @property
    def link(self) -> Link:
        """The asynchronous link, for functions passed to `run`."""
        return self._asked

    @property
    def is_up(self) -> bool:
        """Whether the link currently has a session."""
        return self.link.is_up

    def ready(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds until the link is connected. Raises the same errors as
        `Link.ready`.
        """
        self._background.run(self.link.ready, timeout)


def link(
    address: str,
    *,
    also: Sequence[str] = (),
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    pauses: Backoff | None = None,
) -> BlockingLink:
    """Return a self-reconnecting link for synchronous code, without waiting for its connection.

    `node` is the local node, as in `connect`; it runs until the link is closed. The other
    parameters and the errors are those of `Node.link`.
    """
    local = node or Node(Identity.create())
    asynchronous = local.link(address, also=also, trust=trust, pauses=pauses)
    return BlockingLink(LoopThread(local, asynchronous), asynchronous)
