"""`Link`: one node, kept reachable for as long as it is wanted (section 18).

Below it, a session outlives its transport (section 17). What a link adds begins where a session
ends: it dials again, what asks waits for the connection, and its subscriptions go on.
"""

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import anyio

from node.backoff import Pauses
from node.errors import CallTimeout, ConfigError, ParleyError, PeerClosedError, UnreachableError
from node.links.hooks import Hook, Hooks
from node.links.places import Places
from node.links.redial import Redial, random_fraction
from node.links.requests import LinkRequests
from node.logs import one_line
from node.peer.peer import Peer
from node.protocol.codes import CloseCode
from node.protocol.errors import LocalProtocolError, ProtocolError
from node.protocol.states import State
from node.remote.live import LiveConnection
from node.transport.backend import Backend
from node.transport.waiting import Changes, left_after, turn_of
from node.trust.accept_hook import AcceptHook
from node.trust.policies import Pinned, TrustPolicy

logger = logging.getLogger("parley.link")

# Calls, emissions and subscriptions of a link that wait for its connection.
MOST_WAITING: Final = 4_096
# Subscriptions of a link.
MOST_SUBSCRIPTIONS: Final = 1_024
_UNKNOWN: Final = "the other side says that it does not know the session"

H = TypeVar("H", bound=Hook)


class Dialler(Protocol):
    """What a link asks of its node."""

    @property
    def backend(self) -> Backend:
        """The loop it runs in; ParleyError if it does not run."""

    async def connect(self, address: str, *, trust: TrustPolicy | AcceptHook | None = None) -> Peer:
        """Dial a node and do the handshake; raises as `Node.connect`."""


class Link(LinkRequests):
    """A node that is kept reachable while `async with node.link(..) as link` lasts. It dials at
    once, and again with growing pauses whenever a session is over.

    A link has one node: the one whose id the addresses carry, or else the one that answered first.
    If that is refused, refuses us, or has nothing in common with us, it is dialled on, with the
    longest pauses: somebody may change a setting. `error` is why it is down, or was the last time.
    `sessions` counts those that were established.
    """

    def __init__(
        self,
        node: Dialler,
        among: "set[Link]",
        address: str,
        also: Sequence[str] = (),
        *,
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self._places = Places(address, also)
        if self._places.node_id is None and trust is None:
            raise ConfigError(f"{self._places} carries no node id, and no trust policy is given")
        self._node = node
        self._among = among  # the node's links that run
        self._trust = trust
        self.error: Exception | None = None
        self.sessions = 0
        self.attempts = 0  # that failed, since the last session
        self.pause = 0.0  # seconds from the last failure to the next attempt
        self._peer: Peer | None = None
        self._loop: Backend | None = None
        self._left = False
        self._said_up = False
        self._waiting = 0
        self._up = Hooks("on_up")
        self._down = Hooks("on_down")
        self._subscriptions: set[object] = set()
        self.changes = Changes(lambda: self.backend.waiter())
        self._redial = Redial(
            self._attempt, self._failed, over=self.changes.notify, pauses=pauses, draw=draw
        )

    def __repr__(self) -> str:
        return f"<Link to {self._places}, {'up' if self.is_up else 'down'}>"

    # What is known of it.

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""
        if self._loop is None:
            raise ParleyError("the link is not running: use `async with`")
        return self._loop

    @property
    def peer(self) -> Peer | None:
        """The node, over the session of this moment; None while the link is down."""
        peer = self._peer
        return peer if peer is not None and peer.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether there is a session; one that is parted counts, since it may go on."""
        return self.peer is not None

    @property
    def is_over(self) -> bool:
        """Whether it was left, or its node has ended."""
        return self._left or (self._loop is not None and self._redial.is_over)

    async def ready(self, timeout: float | None = None, *, attempts: int | None = None) -> Peer:
        """Wait until the link is up; returns the peer. `timeout` is seconds, None: as long as it
        takes. After so many failed `attempts` in a row it waits no longer either.

        Raises:
            UnreachableError, HandshakeError, NotTrustedError, PeerClosedError: it is not up by
                then; the last reason. PeerClosedError: the link was left, or its node has ended.
        """
        with anyio.move_on_after(timeout):
            await self.changes.until(
                lambda: (
                    self._usable() is not None
                    or self.is_over
                    or (attempts is not None and self.attempts >= attempts)
                )
            )
        peer = self._usable()
        if peer is not None:
            return peer
        if self.is_over:
            raise self.over_error()
        raise self.error or UnreachableError(f"{self._places}: no connection in {timeout:g} s")

    def on_up(self, hook: H) -> H:
        """Have a function called with the peer each time a session was established; as a
        decorator, or not. A coroutine function runs in a task, which ends with the session.

        Raises:
            ConfigError: it is not a function, or the link has 64 of them.
        """
        self._up.add(hook)
        return hook

    def on_down(self, hook: H) -> H:
        """Have a function called with the error, each time a session ended; as `on_up`, but its
        task lasts as long as the link."""
        self._down.add(hook)
        return hook

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
        self._left = True
        self._among.discard(self)
        if self._loop is None:
            return
        peer = self._peer
        self._redial.finish()
        self.changes.notify()
        try:
            if graceful and peer is not None and peer.is_open:
                await peer.close()
            if graceful:
                await self.close_buses(str(self.over_error()))
        finally:
            if peer is not None:
                peer.live.drop(CloseCode.GOING_AWAY)  # nothing, where it is closed
            self._up.cancel()
            self._down.cancel()
            await self._redial.stop()
            self.changes.notify()

    async def node_ends(self, *, graceful: bool) -> None:
        """No session follows the one that there is, which the node closes; as `aclose`."""
        if graceful and self._usable() is not None:
            await self.close_buses()
        self._left = True
        self._redial.finish()
        self.changes.notify()
        await turn_of(self.backend)  # what was begun a moment ago has to run to be ended

    # For what speaks on it.

    async def connected(self, timeout: float | None) -> tuple[Peer, float | None]:
        """The peer, once it can be asked at once, and what is left of `timeout`; raises as
        `call`."""
        while True:
            peer = self._usable()
            if peer is None:
                timeout = await self._wait(timeout)
            elif peer.driver.has_room:
                return peer, timeout
            else:
                timeout = await peer.live.room(timeout)

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

    def joined(self, subscription: object) -> None:
        """It goes on over sessions, until `parted`; LocalProtocolError beyond 1,024."""
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise LocalProtocolError(f"a link has at most {MOST_SUBSCRIPTIONS:,} subscriptions")
        self._subscriptions.add(subscription)

    def parted(self, subscription: object) -> None:
        """It is over."""
        self._subscriptions.discard(subscription)

    # Inside.

    def _usable(self) -> Peer | None:
        """The peer, if something can be asked of it: it is open, neither side is closing, and the
        other one has not said that it does not know the session."""
        peer = self.peer
        if peer is None or self._left or peer.core.state is not State.OPEN or peer.live.unknown:
            return None
        return peer

    async def _wait(self, timeout: float | None) -> float | None:
        if self._waiting >= MOST_WAITING:
            raise LocalProtocolError(f"{MOST_WAITING:,} wait for the connection already")
        self._waiting += 1
        try:
            left = await left_after(
                lambda: self.changes.until(lambda: self._usable() is not None or self.is_over),
                timeout,
                self.backend.now,
            )
        except CallTimeout as error:
            raise error from self.error
        finally:
            self._waiting -= 1
        if self.is_over:
            raise self.over_error()
        return left

    async def _attempt(self) -> Exception:
        peer = await self._dial()
        while True:
            beside = await self._keep(peer)
            why = peer.closed_error()
            if beside is None:
                return why
            self.error = why
            self._say_down(why)
            peer = beside

    async def _keep(self, peer: Peer) -> Peer | None:
        """Have a session, to its end; returns the one that was made beside it, if any was."""
        live, beside = peer.live, None
        try:
            self._peer = peer
            self.sessions += 1
            logger.info("link to %s is up", self._places)
            self._said_up = True
            self._up.call(self.backend, peer)
            while True:
                self.attempts = 0
                self._redial.established()
                self.changes.notify()
                await live.changes.until(
                    lambda: live.ended is not None or (live.unknown and not self._left)
                )
                if live.ended is None:
                    beside = await self._dial_beside(live)
                if live.ended is not None:
                    return beside
        finally:
            live.drop(CloseCode.GOING_AWAY)
            self._up.cancel()
            self._peer = None

    async def _dial_beside(self, live: LiveConnection) -> Peer | None:
        """Dial for as long as a session is parted and said to be unknown (section 17); returns the
        new one, which ended that. The word is unproved: if it goes on first, it is kept."""
        made: Peer | None = None

        async def dial() -> None:
            nonlocal made
            why: Exception = PeerClosedError(CloseCode.CONNECTION_LOST, _UNKNOWN)
            while made is None and not self._left:
                await self._redial.rest(why)
                try:
                    live.redial()  # if the word was a stranger's, the session is there first
                    made = await self._dial()
                except (ParleyError, ProtocolError) as error:
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
        trust = self._trust if self._places.node_id is None else Pinned(self._places.node_id)
        failed: Exception | None = None
        for address in await self._places.found():
            try:
                peer = await self._node.connect(address, trust=trust)
            except ParleyError as error:
                failed = error
            else:
                self._places.answered(address, peer.node_id)
                return peer
        raise failed or UnreachableError(f"{self._places}: no address was found")

    def _failed(self, why: Exception, seconds: float) -> None:
        # Once for each reason, and then each time the number of attempts has doubled.
        told = str(why) == str(self.error) and self.attempts & (self.attempts + 1)
        self.error, self.pause = why, seconds
        self.attempts += 1
        logger.log(
            logging.DEBUG if told else logging.WARNING,
            "link to %s: %s; dialled again in %.1f s",
            self._places,
            one_line(str(why)),
            seconds,
        )
        if self._peer is None:
            self._say_down(why)
        self.changes.notify()

    def _say_down(self, why: Exception) -> None:
        """No session is there any more, if there was one."""
        if self._said_up:
            self._said_up = False
            self._down.call(self.backend, why)
