"""`Link`: one node, kept reachable for as long as it is wanted (section 18).

Below it, a session outlives its transport (section 17). What a link adds begins where a session
ends: it dials again, what asks waits for the connection, and its subscriptions go on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Unpack, overload

import anyio

from parley._lbm.codec import Encodable, Value
from parley._node.backoff import Backoff
from parley._node.data_types import Model, R, data_type
from parley._node.errors import (
    CallTimeout,
    ConfigError,
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


# Subscriptions of a link.
MOST_SUBSCRIPTIONS: Final = 1_024
_UNKNOWN: Final = "the other side says that it does not know the session"
# A responder that does not trust us says so only once the handshake is over for us.
_NOT_TRUSTED: Final = frozenset({CloseCode.AUTHENTICATION_FAILED, CloseCode.PEER_NOT_TRUSTED})


class Dialler(Protocol):
    """What a link asks of its node."""

    @property
    def backend(self) -> Backend:
        """The loop it runs in; ParleyError if it does not run."""

    async def connect(self, address: str, *, trust: TrustPolicy | AcceptHook | None = None) -> Peer:
        """Dial a node and do the handshake; raises as `Node.connect`."""

    def add_addresses(self, peer: Peer, addresses: Iterable[str]) -> None:
        """Let the session of a peer that was dialled go on over these addresses, too."""

    @property
    def metrics(self) -> Metrics:
        """What is counted of it."""


class Link(ReconnectingClient[Peer]):
    """A node that is kept reachable while `async with node.link(..) as link` lasts. It dials at
    once, and again with growing pauses whenever a session is over.

    A link has one node: the one whose id the addresses carry, or else the one that answered first.
    If that is refused, refuses us, or has nothing in common with us, it is dialled on, with the
    longest pauses: somebody may change a setting.
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
            raise ConfigError(f"{self._places} carries no node id, and no trust policy is given")
        self._node = node
        self._among = among  # the node's links that run
        self._trust = trust
        self._subscriptions: set[object] = set()
        self._buses: ClientBuses | None = None
        super().__init__(f"link to {self._places}", pauses, draw)

    def __repr__(self) -> str:
        return f"<Link to {self._places}, {'up' if self.is_up else 'down'}>"

    def __str__(self) -> str:
        """The link as log lines name it."""
        return f"link to {self._places}"

    # What is known of it.

    @property
    def peer(self) -> Peer | None:
        """The node, over the session of this moment; None while the link is down."""
        peer = self._current
        return peer if peer is not None and peer.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether there is a session; one that is suspended counts, since it may go on."""
        return self.peer is not None

    # Life.

    async def __aenter__(self) -> Self:
        """Start to dial; returns at once. ParleyError: the node is not running, or the link was
        entered before."""
        if self._loop is not None:
            raise ParleyError("a link is entered once")
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
        """Dial no more and close the session; by an exception without waiting for that."""
        await self.aclose(graceful=exc_type is None)

    async def aclose(self, *, graceful: bool = True) -> None:
        """End it: who waits for it meets PeerClosedError. `graceful` waits for the Close."""
        if graceful and self._usable() is not None:
            await self.close_buses()  # as long as events can be given back
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
                peer.live.drop(CloseCode.GOING_AWAY)  # nothing, where it is closed
            await self._stop()

    async def node_ends(self, *, graceful: bool) -> None:
        """No session follows the one that there is, which the node closes; as `aclose`."""
        if graceful and self._usable() is not None:
            await self.close_buses()
        self._finish()
        await yield_to_loop(self.backend)  # what was begun a moment ago has to run to be ended

    def redial(self) -> None:
        """The network has changed: make a new transport for the session now or, while the link is
        down, dial now. A session that does not resume is left alone."""
        peer = self.peer
        if peer is None:
            self._redial.hurry()
            return
        with suppress(LocalError, PeerClosedError):  # it cannot be resumed, or it ends
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
        """As `Peer.call`, once there is a connection, for which it waits within `timeout`.

        A call with `once` whose session ends is asked again over the next one, as long as the node
        is the same process and for at most 5 minutes.

        Raises:
            CallTimeout: no answer in time, or no connection: then its cause is why.
            PeerClosedError: the session ended before the answer came, or the link was left.
            OutcomeUnknownError: with `once`, it was sent and cannot be asked again.
            LimitReachedError: 4,096 wait for the connection. And what `Peer.call` raises.
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
        """As `Peer.publish`; what waits, is asked again and is raised as by `call`."""
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
        """As `Peer.subscribe`, but it goes on over sessions. `timeout` is for the connection and
        the first answer. What is raised, and when: `LinkSubscription`."""
        if returns is not None:
            data_type(returns)  # raises now what is wrong with it
        return LinkSubscription(self, self._name_there(topic), data, returns, **options)

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
        emitter = ReconnectingEmitter(self, lambda peer: peer.handlers.emitter_of(name))
        return Emission(emitter, name, namespace, make_payload(data, format))

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """The bus that the other node offers, as `Peer.bus`, for as long as the link lasts and as
        the same consumer, over as many sessions as it takes.

        What is asked waits for the connection, for `config.timeout` seconds; consumers and handlers
        wait on, with growing pauses. What was under way when a session ended raises
        BusUnavailableError: nobody knows; publishing with a key is tried again.

        Raises:
            ParleyError: it is not within its `async with`.
            PeerClosedError: the link has ended.
        """
        if self.is_over:
            raise self.over_error()
        if self._buses is None:
            # Here: most links have none, and programs start sooner without it.
            from parley._node.peer.link_store import link_buses

            self._buses = link_buses(self)
        return self._buses.open(config)

    async def close_buses(self, because: str = "") -> None:
        """Close what `bus` has opened; as `Bus.aclose`."""
        if self._buses is not None:
            await self._buses.aclose(because)

    # For what speaks on it.

    async def next_session(self) -> Peer:
        """The peer, once there is a session; PeerClosedError if there will be none."""
        await self.changes.until(lambda: self._usable() is not None or self.is_over)
        peer = self._usable()
        if peer is None:
            raise self.over_error()
        return peer

    async def over(self) -> PeerClosedError:
        """Wait for its end; returns what to raise then."""
        await self.changes.until(lambda: self.is_over)
        return self.over_error()

    def over_error(self) -> PeerClosedError:
        """What to raise once it is over."""
        return PeerClosedError(CloseCode.GOING_AWAY, "the link has ended")

    def add_subscription(self, subscription: object) -> None:
        """Keep a subscription over sessions; LimitReachedError beyond 1,024."""
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise LimitReachedError(f"a link has at most {MOST_SUBSCRIPTIONS:,} subscriptions")
        self._subscriptions.add(subscription)

    def remove_subscription(self, subscription: object) -> None:
        """Forget a subscription that has ended."""
        self._subscriptions.discard(subscription)

    # Inside.

    def _usable(self) -> Peer | None:
        """The peer, if something can be asked of it: it is open, neither side is closing, and the
        other one has not said that it does not know the session."""
        peer = self.peer
        if peer is None or self._left or not peer.core.accepts_events or peer.live.unknown:
            return None
        return peer

    def _failed(self, why: Exception, seconds: float) -> None:
        self._node.metrics.link_failures += 1
        super()._failed(why, seconds)

    def _went(self, why: Exception) -> None:
        # A dial beside the session can fail in the moment in which the session has ended.
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
        """Have a session, to its end; returns the one that was made beside it, if any was."""
        live, beside = peer.live, None
        try:
            live.asks_anew = False  # a new one is made here, and kept
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
            if live.ended is None:  # otherwise its Close may still be on its way
                live.drop(CloseCode.GOING_AWAY)
            self._up.cancel()
            self._current = None

    async def _dial_beside(self, live: LiveConnection) -> Peer | None:
        """Dial for as long as a session is suspended and said to be unknown (section 17); returns
        the new one, which ended that. The word is unproved: if it goes on first, it is kept."""
        made: Peer | None = None

        async def dial() -> None:
            nonlocal made
            why: Exception = PeerClosedError(CloseCode.CONNECTION_LOST, _UNKNOWN)
            while made is None and not self._left:
                await self._redial.pause_after_failure(why)
                try:
                    live.redial()  # if the word was a stranger's, the session is there first
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
            live.lost("a new session was made beside it")
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
        found = await self._places.found()
        for address in found:
            try:
                peer = await self._node.connect(address, trust=trust)
            except ParleyError as error:
                failed = error
            else:
                self._places.answered(address, peer.node_id)
                self._node.add_addresses(peer, [one for one in found if one != address])
                return peer
        raise failed or UnreachableError(f"{self._places}: no address was found")


def _why_ended(live: LiveConnection) -> Exception:
    ended = live.ended
    if ended is not None and ended.code in _NOT_TRUSTED:
        return handshake_error(ended.code, ended.text, ended.reason)
    return live.closed_error()
