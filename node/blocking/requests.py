"""What a program that awaits nothing asks of a peer, or of a link: each method waits for what it
returns.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType, UnionType
from typing import Any, Generic, Self, TypeVar, overload

from parley._lbm.codec import Encodable, Value
from parley._node.blocking.background import Background
from parley._node.blocking.reading import BlockingSubscription
from parley._node.data_types import D, Model, R
from parley._node.links.link import Link
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem
from parley._node.messaging.topic_history import TopicPosition
from parley._node.peer.once_key import OnceKey
from parley._node.peer.peer import Peer
from parley._node.peer.requests import DEFAULT_TIMEOUT
from parley._node.peer.subscription import OnMalformed

A = TypeVar("A", bound=Peer | Link)
T = TypeVar("T")


class BlockingRequests(Generic[A]):
    """It may be used from several threads. What it waits for is cancelled when the waiting thread
    is interrupted (Ctrl-C), and may be asked again.
    """

    def __init__(self, background: Background, asked: A) -> None:
        self._background = background
        self._asked = asked

    @overload
    def call(
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
    def call(
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
    def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes | OnceKey = ...,
        returns: UnionType,
    ) -> Any: ...

    def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | OnceKey = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic and return the data of its answer; as `Peer.call`, or `Link.call`,
        which say what is raised."""
        options = {"timeout": timeout, "headers": headers, "once": once, "returns": returns}
        return self._background.run(partial(self._asked.call, topic, data, **options))

    def publish(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | OnceKey = False,
    ) -> int | None:
        """Publish a note of a topic of the other node, and return its number; as `Peer.publish`,
        or `Link.publish`."""
        options: dict[str, Any] = {"timeout": timeout, "headers": headers, "once": once}
        return self._background.run(partial(self._asked.publish, topic, data, **options))

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        after: TopicPosition | None = ...,
        returns: type[D] | None = None,
        on_malformed: OnMalformed = ...,
    ) -> BlockingSubscription[D]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        after: TopicPosition | None = ...,
        returns: UnionType | type[Any],
        on_malformed: OnMalformed = ...,
    ) -> BlockingSubscription[Any]: ...

    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        after: TopicPosition | None = None,
        returns: Any = None,
        on_malformed: OnMalformed = "raise",
    ) -> BlockingSubscription[Any]:
        """Subscribe to a topic, at once: `for note in peer.subscribe(..)`; as `Peer.subscribe`."""
        source = self._asked.subscribe(
            topic, data, timeout=timeout, after=after, returns=returns, on_malformed=on_malformed
        )
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
