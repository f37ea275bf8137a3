"""What a program that awaits nothing asks of a peer, or of a link: each method waits for what it
returns.
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
    """A subscription of a peer or of a link; the names are those of `Subscription`."""

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
    """The notes of a topic: `for note in sub`, until the publisher closes the topic. Made by
    `BlockingPeer.subscribe`, and subscribed to already.

    One thread may read at a time. `data` is what came with the acceptance, `headers` came with
    the last note.
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
        """How many notes were lost because we did not keep up, as far as we were told."""
        return self._source.dropped

    @property
    def number(self) -> int:
        """The number of the last note that was read, as `Subscription.number`."""
        return max(0, self._source.number - len(self._ready))

    @property
    def recovered(self) -> bool:
        """As `Subscription.recovered`."""
        return self._source.recovered

    @property
    def gaps(self) -> int:
        """As `Subscription.gaps`."""
        return self._source.gaps

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription goes on (`after=`), as `Subscription.position`: after the last
        note that came, read or not. What was not read can still be read here."""
        return self._source.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """The next note; raises as `Subscription.__anext__`."""
        try:
            return self.get()
        except anyio.EndOfStream:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> D:
        """The next note, which may take `timeout` seconds; None: as long as it takes.

        Raises:
            TimeoutError: none came in time; the next one can be read later. EndOfStream: the
                publisher closed the topic. And what `Subscription.__anext__` raises.
        """
        if not self._ready:
            self._background.run(self._fetch, timeout)
        if not self._ready:
            raise anyio.EndOfStream
        return self._ready.popleft()

    def close(self) -> None:
        """Unsubscribe; again, it does nothing."""
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
    """The items of a streamed answer: `for item in answer`. Made by `BlockingPeer.call_stream`;
    the call is made already, and closing it before the end cancels it.

    One thread may read at a time.
    """

    def __init__(self, background: LoopThread, source: AnswerStream[D]) -> None:
        self._background = background
        self._source = source
        self._items: AsyncIterator[D] = source
        self._ready: deque[D] = deque()
        background.run(source.__aenter__)

    @property
    def result(self) -> Value:
        """What the final answer carried, once the items are at their end."""
        return self._source.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """The next item; raises as `AnswerStream.__anext__`."""
        if not self._ready:
            self._background.run(self._fetch)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        """Want no more items; again, it does nothing."""
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
    """It may be used from several threads. What it waits for is cancelled when the waiting thread
    is interrupted (Ctrl-C), and may be asked again.
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
        """Call a topic and return the data of its answer; as `Peer.call` or `Link.call`."""
        return self._background.run(partial(self._asked.call, topic, data, **options))

    def publish(
        self, topic: str, data: Encodable | Model = None, **options: Unpack[CallOptions]
    ) -> int | None:
        """Publish a note of a topic of the other node and return its number; as `Peer.publish` or
        `Link.publish`."""
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
        """Subscribe to a topic immediately: `for note in peer.subscribe(..)`; as
        `Peer.subscribe`."""
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
        """Emit a named event, and wait for no reply; as `Peer.emit`, or `Link.emit`."""

        async def emit(asked: A) -> None:
            await asked.emit(name, data, namespace=namespace, format=format)

        self.run(emit)

    def run(self, function: Callable[[A], Awaitable[T]]) -> T:
        """Await `function(peer)` (or of the link) in the loop of the connection, for all that is
        not here: replies to events, streams, a bus.

        Raises:
            ParleyError: it is closed, or this is the loop's own thread. And what is raised there.
        """
        return self._background.run(function, self._asked)

    def close(self) -> None:
        """End the connection gracefully, and its thread; again, it does nothing. The end of the
        program closes what was not closed."""
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
    """A peer whose methods wait for what they return. Made by `parley.blocking.connect`.

    `peer` is the same for asynchronous code, which has to run in its loop: `run` does that.
    """

    def __repr__(self) -> str:
        return f"<BlockingPeer {self.peer.node_id.short if self.peer.node_id else self.peer.name}>"

    @property
    def peer(self) -> Peer:
        """The peer, for what runs in its loop."""
        return self._asked

    @property
    def node_id(self) -> NodeId | None:
        """The id that the other side has proved; None on an unencrypted connection."""
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
        """Call a topic whose handler answers in items: `for item in peer.call_stream(..)`; as
        `Peer.call_stream`."""
        return BlockingAnswer(self._background, self.peer.call_stream(topic, data, **options))

    def ping(self) -> float:
        """The round-trip time in seconds; raises as `Peer.ping`."""
        return self._background.run(self.peer.ping)


def connect(
    address: str,
    *,
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> BlockingPeer:
    """Dial a node and do the handshake, as `Node.connect`, which says what is raised.

    `node` is our own, which must not be running and has settings and handlers already; by default
    one with a new identity. It lives in a thread of its own, in a loop of asyncio, until the peer
    is closed.
    """
    ours = node or Node(Identity.create())
    background = LoopThread(ours)
    with ExitStack() as stack:
        stack.push(background.leave)
        dial = partial(ours.connect, address, trust=trust, timeout=timeout)
        peer = BlockingPeer(background, background.run(dial))
        stack.pop_all()
    return peer


class BlockingLink(BlockingClient[Link]):
    """A link whose methods wait for what they return: calls wait for the connection, subscriptions
    go on over sessions. Made by `parley.blocking.link`.

    `link` is the same for asynchronous code, which has to run in its loop: `run` does that.
    """

    def __repr__(self) -> str:
        return f"<BlockingLink of {self.link!r}>"

    @property
    def link(self) -> Link:
        """The link, for what runs in its loop."""
        return self._asked

    @property
    def is_up(self) -> bool:
        """Whether there is a session at this moment."""
        return self.link.is_up

    def ready(self, timeout: float | None = None) -> None:
        """Wait until it is up, for so many seconds; raises as `Link.ready`."""
        self._background.run(self.link.ready, timeout)


def link(
    address: str,
    *,
    also: Sequence[str] = (),
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    pauses: Backoff | None = None,
) -> BlockingLink:
    """Keep a node reachable, as `Node.link`, which says what is raised; returns at once.

    `node` is our own, as in `connect`. It and the link live until that is closed.
    """
    ours = node or Node(Identity.create())
    kept = ours.link(address, also=also, trust=trust, pauses=pauses)
    return BlockingLink(LoopThread(ours, kept), kept)
