"""What a program asks of a link: what asks waits for the connection within its time-out, and what
may be asked again over another session is asked again.
"""

from collections.abc import Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, overload

from parley._lbm.codec import Encodable, Value
from parley._node.data_types import Model, R, data_type
from parley._node.errors import CallTimeout, OutcomeUnknownError, PeerClosedError
from parley._node.links.emitter import WaitingEmitter
from parley._node.links.sessions import Sessions
from parley._node.links.subscription import LinkSubscription
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.messaging.topic_history import TopicPosition
from parley._node.messaging.topics import PUBLISH
from parley._node.peer.once_key import OnceKey
from parley._node.peer.requests import DEFAULT_TIMEOUT, published
from parley._node.peer.subscription import OnMalformed
from parley._node.protocol.limits import ONCE_AGAIN
from parley._node.remote.emission import Emission

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.store import LentBuses


class LinkRequests(Sessions):
    """What is asked of a link."""

    _buses: "LentBuses | None" = None

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
        """As `Peer.call`, once there is a connection, for which it waits within `timeout`.

        A call with `once` whose session ends is asked again over the next one, as long as the node
        is the same process and for at most 5 minutes.

        Raises:
            CallTimeout: no answer in time, or no connection: then its cause is why.
            PeerClosedError: the session ended before the answer came, or the link was left.
            OutcomeUnknownError: with `once`, it was sent and cannot be asked again.
            LocalProtocolError: 4,096 wait for the connection. And what `Peer.call` raises.
        """
        if once is False:
            peer, timeout = await self.connected(timeout)
            return await peer.call(topic, data, timeout=timeout, headers=headers, returns=returns)
        return await self._call_once(OnceKey.of(once), topic, data, timeout, headers, returns)

    async def publish(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | OnceKey = False,
    ) -> int | None:
        """As `Peer.publish`; what waits, is asked again and is raised as by `call`."""
        call = self.call(PUBLISH + topic, data, timeout=timeout, headers=headers, once=once)
        return await published(call, topic)

    async def _call_once(
        self,
        key: OnceKey,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        headers: Mapping[str, Encodable] | None,
        returns: Any,
    ) -> Any:
        now = self.backend.now
        deadline = None if timeout is None else now() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - now())
            try:
                if key.sent is None:
                    peer, left = await self.connected(left)
                else:
                    # When nothing can be asked again any more, waiting is over too.
                    last = max(0.0, key.sent + ONCE_AGAIN - now())
                    peer, _ = await self.connected(last if left is None else min(left, last))
                    left = None if deadline is None else max(0.0, deadline - now())
            except (CallTimeout, PeerClosedError) as error:
                if key.sent is None:
                    raise
                raise key.unknown() from error
            try:
                return await peer.call(
                    topic, data, timeout=left, headers=headers, once=key, returns=returns
                )
            except OutcomeUnknownError:
                if key.is_over or self.is_over:
                    raise
            except PeerClosedError:  # it was not sent over this session
                if self.is_over:
                    raise

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        window: int | None = ...,
        after: TopicPosition | None = ...,
        returns: None = None,
        on_malformed: OnMalformed = ...,
    ) -> LinkSubscription: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        window: int | None = ...,
        after: TopicPosition | None = ...,
        returns: type[R],
        on_malformed: OnMalformed = ...,
    ) -> LinkSubscription[R]: ...

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
    ) -> LinkSubscription[Any]:
        """As `Peer.subscribe`, but it goes on over sessions. `timeout` is for the connection and
        the first answer. What is raised, and when: `LinkSubscription`."""
        if returns is not None:
            data_type(returns)  # raises now what is wrong with it
        name = self._name_there(topic)
        arguments = name, data, timeout, window, after, returns, on_malformed
        return LinkSubscription(self, *arguments)

    def _name_there(self, topic: str) -> str:
        """What the other side calls a topic."""
        return topic

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> Emission:
        """As `Peer.emit`, once there is a connection: `reply()` and `replies()` wait for it within
        their time-outs, `await` for as long as it takes. Replies end with the session over which
        the event was sent: PeerClosedError. And what is raised as by `call`.

        Raises:
            FormatError: as `Peer.emit`.
        """
        emitter = WaitingEmitter(self, lambda peer: peer.endpoint.emitter_of(name))
        return Emission(emitter, name, namespace, make_payload(data, format))

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """The bus that the other node offers, as `Peer.bus`, for as long as the link lasts and as
        the same consumer, over as many sessions as it takes.

        What is asked waits for the connection, for `config.timeout` seconds; consumers and handlers
        wait on, with growing pauses. What was under way when a session ended raises
        BusUnavailableError: nobody knows; publishing with a key is tried again.

        Raises:
            ParleyError: it is not within its `async with`. PeerClosedError: the link has ended.
        """
        if self.is_over:
            raise self.over_error()
        if self._buses is None:
            # Here: most links have none, and programs start sooner without it.
            from parley._node.links.link_store import lend_over

            self._buses = lend_over(self)
        return self._buses.open(config)

    async def close_buses(self, because: str = "") -> None:
        """Close what `bus` has opened; as `Bus.aclose`."""
        if self._buses is not None:
            await self._buses.aclose(because)
