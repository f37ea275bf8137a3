"""`Link`: a self-reconnecting connection to one node (section 18).

A session already survives the loss of its transport (section 17). A link also survives the end of a
session: it reconnects, requests wait for the new connection, and subscriptions continue.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Unpack, overload

import anyio

from parley._crypto.identity import NodeId
from parley._lbm.codec import Encodable, Value
from parley._node.backoff import Backoff
from parley._node.data_types import Model, R, data_type
from parley._node.errors import (
    CallTimeout,
    ConfigError,
    IdentityEndedError,
    OutcomeUnknownError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
    handshake_error,
)
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.messaging.topics import PUBLISH
from parley._node.metrics.metrics import Metrics
from parley._node.peer.addresses import AddressList
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.peer.peer import DEFAULT_TIMEOUT, CallOptions, Peer, SubscribeOptions, note_number
from parley._node.peer.reconnecting import ReconnectingClient, ReconnectingEmitter, random_fraction
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError, LocalError
from parley._node.protocol.limits import ONCE_AGAIN
from parley._node.remote.emission import Emission
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import yield_to_loop
from parley._node.trust.policies import AcceptHook, TrustPolicy, as_policy, restrict_to_node

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.store import ClientBuses


# The most subscriptions of one link.
MOST_SUBSCRIPTIONS: Final = 1_024
_UNKNOWN: Final = "the node reports that it does not know the session"
# The responder sends this refusal only after the handshake is complete for the dialling node.
_NOT_TRUSTED: Final = frozenset({CloseCode.AUTHENTICATION_FAILED, CloseCode.PEER_NOT_TRUSTED})


class Dialler(Protocol):
    """The parts of a node that a link uses."""

    @property
    def backend(self) -> Backend:
        """The running event loop; raises ParleyError if the node isn't running."""

    async def connect(self, address: str, *, trust: TrustPolicy | AcceptHook | None = None) -> Peer:
        """Dial a node and do the handshake; raises the errors of `Node.connect`."""

    def current(self, node_id: NodeId) -> NodeId:
        """Return the node ID to dial in place of one; IdentityEndedError if there is none."""

    def add_addresses(self, peer: Peer, addresses: Iterable[str]) -> None:
        """Allow the session of a dialled peer to resume over these addresses."""

    @property
    def metrics(self) -> Metrics:
        """The node's metrics."""


class Link(ReconnectingClient[Peer]):
    """A self-reconnecting connection to one node, active while `async with node.link(..) as link`
    runs.

    It dials immediately, and reconnects with increasing pauses whenever a session ends.

    A link connects to one node only: the node whose ID is in the addresses, otherwise the node that
    answered first. When this ID ends, it connects to the successor (section 22). If that node is
    refused, refuses this node or has no common algorithm, the link retries with the longest pause,
    because an operator can change the setting.

    Example:

        from parley import Identity, Node

        async with Node(Identity.create()) as server:
            address = await server.listen("tcp://127.0.0.1:0")
            async with node.link(address) as link:
                peer = await link.ready(timeout=10)
                assert peer.node_id == server.node_id
    """

    def __init__(
        self,
        node: Dialler,
        among: "set[Link]",
        address: str,
        also: Sequence[str] = (),
        *,
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self._places = AddressList(address, also)
        if trust is not None:
            as_policy(trust)
        elif self._places.node_id is None:
            raise ConfigError(
                f"cannot decide whether to trust the node at {self._places}: the address has no "
                "node ID, and no trust policy is given; append #NODEID, or give trust="
            )
        self._node = node
        self._among = among  # The node's active links.
        self._trust = trust
        self._subscriptions: set[object] = set()
        self._buses: ClientBuses | None = None
        super().__init__(f"link to {self._places}", pauses, draw)

    def names(self, node_id: NodeId) -> bool:
        """Return whether its addresses contain a node ID, or it is restricted to it."""
        return node_id == self._places.node_id or node_id in self._places.named

    def __repr__(self) -> str:
        return f"<Link to {self._places}, {'up' if self.is_up else 'down'}>"

    def __str__(self) -> str:
        return f"link to {self._places}"

    @property
    def peer(self) -> Peer | None:
        """The peer of the current session; None while the link is down."""
        peer = self._current
        return peer if peer is not None and peer.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether there is a session. A suspended session counts, because it can resume."""
        return self.peer is not None

    async def __aenter__(self) -> Self:
        """Start dialling and return immediately.

        Raises:
            ParleyError: the node isn't running, or the link was entered before.
        """
        if self._loop is not None:
            raise ParleyError(f"cannot enter the {self._what} again; call node.link again")
        self._loop = self._node.backend
        self._redial.begin(self._loop)
        self._among.add(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Stop dialling and close the session; after an exception, don't wait for the peer."""
        await self.aclose(graceful=exc_type is None)

    async def aclose(self, *, graceful: bool = True) -> None:
        """End the link; pending requests raise PeerClosedError. `graceful` waits for the peer's
        Close.
        """
        if graceful and self._usable() is not None:
            # Close the buses first, because events can only be returned while the connection is
            # open.
            await self.close_buses()
        self._among.discard(self)
        self._finish()
        if self._loop is None:
            return
        peer = self._current
        try:
            if graceful and peer is not None and peer.is_open:
                await peer.close()
            if graceful:
                await self.close_buses(str(self.over_error()))
        finally:
            if peer is not None:
                # This does nothing if the session is already closed.
                peer.live.drop(CloseCode.GOING_AWAY)
            await self._stop()

    async def node_ends(self, *, graceful: bool) -> None:
        """End the link together with its node, which closes the current session."""
        if graceful and self._usable() is not None:
            await self.close_buses()
        self._finish()
        # Tasks that were just started must run once before they can be cancelled.
        await yield_to_loop(self.backend)

    def redial(self) -> None:
        """Reconnect immediately, for example after the network has changed.

        While the link is up, the session gets a new transport if it can resume; otherwise it is
        left as it is. While the link is down, it dials without waiting for the next attempt.
        """
        peer = self.peer
        if peer is None:
            self._redial.hurry()
            return
        with suppress(LocalError, PeerClosedError):  # It cannot be resumed, or it is ending.
            peer.redial()

    # Requests.

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
        """Call a topic as `Peer.call` does, after waiting for a connection within `timeout`.

        If the session ends during a call with `once`, the call is repeated over the next session,
        for at most 5 minutes and unless the node has restarted.

        Example:

            from parley import Identity, Node

            async with Node(Identity.create()) as server:
                @server.on_call("echo")
                async def echo(call):
                    return call.data

                async with node.link(await server.listen("tcp://127.0.0.1:0")) as link:
                    assert await link.call("echo", "hello") == "hello"

        Raises:
            CallTimeout: no answer arrived in time. If there was no connection, its cause is the
                reason.
            PeerClosedError: the session ended before the answer arrived, or the link was left.
            OutcomeUnknownError: the call with `once` was sent and cannot be repeated.
            LimitReachedError: 4,096 requests are already waiting for the connection.
            ParleyError: other errors of `Peer.call`.
        """
        if once is False:
            peer, timeout = await self.connected(timeout)
            return await peer.call(topic, data, timeout=timeout, headers=headers, returns=returns)
        return await self._call_once(
            IdempotencyKey.of(once), topic, data, timeout, headers, returns
        )

    async def publish(
        self, topic: str, data: Encodable | Model = None, **options: Unpack[CallOptions]
    ) -> int | None:
        """Publish a note as `Peer.publish` does; wait, retry and raise errors as `call` does."""
        return await note_number(self.call(PUBLISH + topic, data, **options), topic)

    async def _call_once(
        self,
        key: IdempotencyKey,
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
                    # Stop waiting when the call can no longer be repeated.
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
            except PeerClosedError:  # The call was not sent over this session.
                if self.is_over:
                    raise

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: None = None,
        **options: Unpack[SubscribeOptions],
    ) -> LinkSubscription: ...

    @overload
    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: type[R],
        **options: Unpack[SubscribeOptions],
    ) -> LinkSubscription[R]: ...

    def subscribe(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        returns: Any = None,
        **options: Unpack[SubscribeOptions],
    ) -> LinkSubscription[Any]:
        """Subscribe as `Peer.subscribe` does, and resubscribe in each later session.

        `timeout` covers the first connection and the first answer. `LinkSubscription` documents the
        errors.
        """
        if returns is not None:
            data_type(returns)  # Report an invalid type immediately.
        return LinkSubscription(self, self._name_there(topic), data, returns, **options)

    def _name_there(self, topic: str) -> str:
        """Return the peer's name of a topic; subclasses can map it."""
        return topic

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> Emission:
        """Emit a named event as `Peer.emit` does, after waiting for a connection.

        `reply()` and `replies()` wait for the connection within their timeouts; awaiting the event
        waits without a limit. If the session that carried the event ends, waiting for replies
        raises PeerClosedError. Other errors are those of `call`.

        Raises:
            FormatError: the format is unknown, or `raw` got something other than bytes.
        """
        emitter = ReconnectingEmitter(self, lambda peer: peer.handlers.emitter_of(name))
        return Emission(emitter, name, namespace, make_payload(data, format))

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """Return a client for the bus that the node offers. It works across sessions as one
        consumer.

        Requests wait for the connection for up to `config.timeout` seconds; consumers and handlers
        keep retrying with increasing pauses. A request that was in progress when a session ended
        raises BusUnavailableError, because its result is unknown; publishing with a key is retried.

        Raises:
            ParleyError: the link isn't entered yet.
            PeerClosedError: the link has ended.
        """
        if self.is_over:
            raise self.over_error()
        if self._buses is None:
            # Import it here: most links don't use a bus, and programs start faster without it.
            from parley._node.peer.link_store import link_buses

            self._buses = link_buses(self)
        return self._buses.open(config)

    async def close_buses(self, because: str = "") -> None:
        """Close the buses opened with `bus`, as `Bus.aclose` does."""
        if self._buses is not None:
            await self._buses.aclose(because)

    # Used by subscriptions and buses.

    async def next_session(self) -> Peer:
        """Wait for a session and return its peer; raise PeerClosedError if the link has ended."""
        await self.changes.until(lambda: self._usable() is not None or self.is_over)
        peer = self._usable()
        if peer is None:
            raise self.over_error()
        return peer

    async def over(self) -> PeerClosedError:
        """Wait until the link has ended and return the error that requests then raise."""
        await self.changes.until(lambda: self.is_over)
        return self.over_error()

    def over_error(self) -> PeerClosedError:
        """Return the error that requests raise after the link has ended."""
        return PeerClosedError(CloseCode.GOING_AWAY, "the link has ended")

    def add_subscription(self, subscription: object) -> None:
        """Register a subscription that continues across sessions; LimitReachedError beyond
        1,024.
        """
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise LimitReachedError(
                f"cannot subscribe over the {self}: it has {MOST_SUBSCRIPTIONS:,} subscriptions "
                "already"
            )
        self._subscriptions.add(subscription)

    def remove_subscription(self, subscription: object) -> None:
        """Remove a subscription that has ended."""
        self._subscriptions.discard(subscription)

    def _usable(self) -> Peer | None:
        """Return the peer if it accepts requests.

        The connection must be open, neither side closing, and the peer must not have reported the
        session as unknown.
        """
        peer = self.peer
        if peer is None or self._left or not peer.core.accepts_events or peer.live.unknown:
            return None
        return peer

    def _failed(self, why: Exception, seconds: float) -> None:
        self._node.metrics.link_failures += 1
        super()._failed(why, seconds)

    def _went(self, why: Exception) -> None:
        # A parallel dial can fail at the moment in which the session ends.
        peer = self._current
        if peer is not None and peer.live.ended is not None:
            why = _why_ended(peer.live)
        super()._went(why)

    async def _attempt(self) -> Exception:
        peer = await self._dial()
        while True:
            beside = await self._keep(peer)
            why = _why_ended(peer.live)
            if beside is None:
                return why
            self.error, self.pause = why, 0.0
            self._went(why)
            peer = beside

    async def _keep(self, peer: Peer) -> Peer | None:
        """Serve a session until it ends; return the session that replaced it, if any."""
        live, beside = peer.live, None
        try:
            live.asks_anew = False  # The link itself dials the new session.
            live.metrics.link_sessions += 1
            self._came(peer)
            while True:
                self._holds()
                await live.changes.until(
                    lambda: live.ended is not None or (live.unknown and not self._left)
                )
                if live.ended is None:
                    beside = await self._dial_beside(live)
                if live.ended is not None:
                    return beside
        finally:
            if live.ended is None:  # Otherwise the Close may still be in transit.
                live.drop(CloseCode.GOING_AWAY)
            self._up.cancel()
            self._current = None

    async def _dial_beside(self, live: LiveConnection) -> Peer | None:
        """Dial while the session is suspended and reported as unknown (section 17).

        Returns the new session, which replaces the suspended one. The report isn't authenticated,
        so if the suspended session resumes first, it is kept.
        """
        made: Peer | None = None

        async def dial() -> None:
            nonlocal made
            why: Exception = PeerClosedError(CloseCode.CONNECTION_LOST, _UNKNOWN)
            while made is None and not self._left:
                await self._redial.pause_after_failure(why)
                try:
                    live.redial()  # If the report was forged, the session resumes first.
                    made = await self._dial()
                except ParleyError as error:
                    why = error
            live.changes.notify()

        try:
            async with anyio.create_task_group() as dialling:
                dialling.start_soon(dial)
                await live.changes.until(
                    lambda: made is not None or live.ended is not None or not live.unknown
                )
                dialling.cancel_scope.cancel()
            if made is None or not live.unknown:
                return None
            live.lost("replaced by a new session")
            beside, made = made, None
            return beside
        finally:
            if made is not None:
                made.live.drop(CloseCode.GOING_AWAY)

    async def _dial(self) -> Peer:
        trust, node_id = self._trust, self._places.node_id
        if trust is not None and node_id is not None:
            trust = restrict_to_node(node_id, trust)
        failed: Exception | None = None
        current = None if node_id is None else self._node.current(node_id)
        found = await self._places.found(current)
        for address in found:
            try:
                peer = await self._node.connect(address, trust=trust)
            except ParleyError as error:
                failed = error
            else:
                self._places.answered(address, peer.node_id)
                self._node.add_addresses(peer, [one for one in found if one != address])
                return peer
        raise failed or UnreachableError(f"cannot connect to {self._places}: no address was found")


def _why_ended(live: LiveConnection) -> Exception:
    ended = live.ended
    if isinstance(live.refused, IdentityEndedError):
        return live.refused
    if ended is not None and ended.code in _NOT_TRUSTED:
        return handshake_error(ended.code, ended.text, ended.reason)
    return live.closed_error()
