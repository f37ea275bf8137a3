"""`Node`: one identity, its listeners, its handlers and its peers.

Everything a node starts ends with `async with node`; there is no global state, so a process may
hold many. What is said on a connection is up to `Peer`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream

from crypto.identity import Identity, NodeId
from node.config import NodeConfig
from node.errors import ConfigError, HandshakeError
from node.journal.errors import JournalFailedError
from node.journal.journal import Journal
from node.offering import Offering
from node.peer.endpoint import Endings, Host
from node.peer.peer import Peer
from node.protocol.account import Account
from node.protocol.codes import CloseCode
from node.protocol.connection import Connection
from node.protocol.limits import CLOSE_DRAIN, CLOSE_LINGER
from node.protocol.observer import Observer
from node.protocol.states import State
from node.transport.address import Address
from node.transport.backend import Backend, Listener
from node.transport.clocked import Clock
from node.transport.driver import Driver
from node.transport.ground import Ground
from node.transport.stream_outlet import StreamOutlet
from node.transport.waiting import Changes
from node.trust.accept_hook import AcceptHook, Decider, decider
from node.trust.admission import Admission
from node.trust.policies import AnyPeer, Pinned, TrustPolicy

logger = logging.getLogger("parley.node")

CONNECT_TIMEOUT = 10.0
# For what is queued and Close to be written, and for the other side to hang up.
CLOSE_TIMEOUT = CLOSE_DRAIN + CLOSE_LINGER + 1.0
# Seconds for Close when `async with` is left by an exception.
HASTY_TIMEOUT = 0.2


class Node(Offering):
    """A node of the network: one `identity`, its listeners, its handlers and its peers. It
    lives as long as its `async with`.

    `trust` says who may connect: a policy, or an async function that is given a `Candidate`
    and returns True for those it lets in. The default lets anyone in who proves who they
    are, so handlers look at `call.peer.node_id`. `observer` makes an observer for each encrypted
    connection; `journal` keeps what is sent and received on them, for its auditors. `clock` is
    the time it lives by, in place of the loop's (`node.testing.FakeClock`).

    Raises:
        ConfigError: settings that do not fit each other.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        config: NodeConfig | None = None,
        trust: TrustPolicy | AcceptHook | None = None,
        observer: Callable[[], Observer] | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(config or NodeConfig(), self._running)
        self.identity = identity
        self.trust = decider(trust or AnyPeer())
        if self.config.plaintext != "never" and not self.trust.allows_plaintext:
            raise ConfigError(f"trust {self.trust.name!r} does not go with plaintext")
        self._core_config = self.config.core(identity)
        if journal is not None and observer is not None:
            raise ConfigError("a node has a journal or an observer, not both")
        if journal is not None and self.config.plaintext == "only":
            raise ConfigError("unencrypted connections prove nothing: no journal is kept of them")
        self._observer = observer
        self.journal = journal
        self._held = Account(self.config.memory)
        self._peers: set[Peer] = set()
        self._half_open: OrderedDict[Peer, None] = OrderedDict()
        self._listeners: list[Listener] = []
        self._changes = Changes(lambda: self._running().waiter())
        self._ground = Ground("the node", clock)
        self._endings = Endings()
        self._admission = Admission(self.config)

    def __repr__(self) -> str:
        return f"<Node {self.node_id.short}, {len(self.peers)} peers>"

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        return self.identity.node_id

    @property
    def backend(self) -> Backend:
        """The loop it runs in, for what is joined to it; ParleyError if it does not run."""
        return self._running()

    @property
    def peers(self) -> list[Peer]:
        """The peers whose connections are open."""
        return [peer for peer in self._peers if peer.is_open]

    @property
    def turned_away(self) -> int:
        """How many connections a limit kept out (`max_connections` and those below it)."""
        return self._admission.refused.total()

    @property
    def addresses(self) -> list[str]:
        """What the node listens on, with its node id."""
        return [str(self._advertised(listener.address)) for listener in self._listeners]

    # Meeting others.

    async def listen(self, address: str) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`.

        Returns:
            The address to dial, with this node's id, so that it is pinned.

        Raises:
            AddressError: not an address. UnreachableError: it cannot be listened on.
        """
        self._check_journal()
        listener = await self._running().listen(Address.parse(address), self._accept)
        self._listeners.append(listener)
        return str(self._advertised(listener.address))

    async def connect(
        self,
        address: str,
        *,
        trust: TrustPolicy | AcceptHook | None = None,
        timeout: float = CONNECT_TIMEOUT,
    ) -> Peer:
        """Dial a node and do the handshake; `timeout` is seconds for both.

        The peer must be the one whose id the address carries; without an id `trust` has
        to say who will do.

        Raises:
            AddressError: not an address. ConfigError: neither a node id nor `trust`.
            UnreachableError: nobody answers. HandshakeError: they could not agree.
            NotTrustedError: it is another node, or refuses us.
        """
        target = Address.parse(address)
        policy = self._policy(target, trust)
        backend = self._running()
        place = target.place
        peer = self._peer(policy, place, initiator=True, dialled=place)
        with _given_up(peer):
            try:
                with anyio.fail_after(timeout):
                    await backend.connect(target, lambda: peer.driver)
                    await peer.live.opened()
            except TimeoutError as error:
                text = f"no handshake in {timeout:g} s"
                raise HandshakeError(CloseCode.TIMEOUT, text) from error
        return peer

    async def connect_stream(self, stream: ByteStream, *, trust: TrustPolicy | AcceptHook) -> Peer:
        """Do the handshake over any byte stream, as its initiator; raises as `connect`."""
        peer = self._peer(self._policy(None, trust), "stream", initiator=True)
        StreamOutlet(stream, peer.driver, self._running())
        with _given_up(peer):
            await peer.live.opened()
        return peer

    async def accept_stream(self, stream: ByteStream) -> Peer:
        """Do the handshake over any byte stream, as its responder; raises as `connect`."""
        peer = self._peer(self.trust, "stream", initiator=False)
        StreamOutlet(stream, peer.driver, self._running())
        with _given_up(peer):
            await peer.live.opened()
        return peer

    # Life.

    async def __aenter__(self) -> Self:
        backend = await self._ground.enter()
        if self.journal is not None:
            try:
                await self.journal.begin(self.identity, backend, self._stop)
            except BaseException:
                await self._ground.leave()
                raise
        if self._buses is not None:
            self._buses.begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            # Also when we are being cancelled: peers are owed a Close.
            with anyio.CancelScope(shield=True):
                await self._shut_down(drain=exc_type is None)
        finally:
            try:
                await self._ground.leave()
            finally:
                if self.journal is not None:
                    with anyio.CancelScope(shield=True):
                        await self.journal.end()

    async def aclose(self) -> None:
        """Take no more connections, let the handlers of calls and of buses finish, say Close to
        each peer, close the buses.

        Streams end with Close: their handlers meet PeerClosedError.
        """
        await self._stop_listening()
        for topic in self.topics.values():
            topic.flush()
        drained = len(self._peers)
        async with anyio.create_task_group() as draining:
            if self._buses is not None:
                draining.start_soon(self._buses.drain, self.config.drain_timeout)
            with anyio.move_on_after(self.config.drain_timeout):
                await self._drain()
        with anyio.move_on_after(CLOSE_TIMEOUT):
            async with anyio.create_task_group() as closing:
                for peer in list(self._peers):
                    closing.start_soon(peer.close, CloseCode.GOING_AWAY)
        logger.debug("closed %d peers", drained)
        await self._close_buses()

    async def _shut_down(self, *, drain: bool) -> None:
        try:
            if drain:
                await self.aclose()
            else:
                await self._hang_up()
        finally:
            await self._close_buses()

    async def _hang_up(self) -> None:
        await self._stop_listening()
        for peer in list(self._peers):
            peer.core.close(peer.backend.now(), CloseCode.GOING_AWAY)
            peer.driver.settle()
        with anyio.move_on_after(HASTY_TIMEOUT):
            await self._changes.until(lambda: not self._peers)

    async def _close_buses(self) -> None:
        # After the peers: one of them may be using a bus to the last.
        buses, self._buses = self._buses, None
        if buses is not None:
            await buses.aclose()

    async def _stop_listening(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.aclose()

    async def _drain(self) -> None:
        await self._changes.until(self._has_drained)

    def _has_drained(self) -> bool:
        # Also those that came meanwhile: nothing else would say when their calls have ended.
        for peer in self._peers:
            peer.live.draining = True
        return not any(peer.running_calls for peer in self._peers)

    # Inside.

    def _running(self) -> Backend:
        return self._ground.backend

    def _advertised(self, address: Address) -> Address:
        if self.config.plaintext == "only":
            return address.without_node_id()
        return address.with_node_id(self.node_id)

    def _policy(self, target: Address | None, trust: TrustPolicy | AcceptHook | None) -> Decider:
        if target is not None and target.node_id is not None:
            trust = Pinned(target.node_id)
        if trust is None:
            raise ConfigError("the address carries no node id, and no trust policy is given")
        policy = decider(trust)
        if self.config.plaintext == "only" and not policy.allows_plaintext:
            raise ConfigError(f"trust {policy.name!r} does not go with plaintext")
        return policy

    def _accept(self, name: str) -> Driver | None:
        now = self._running().now()
        stopped = self.journal is not None and self.journal.stops_node
        reason = "the journal failed" if stopped else self._admission.refusal(name, now)
        if reason is not None:
            self._endings.turned_away(name, reason, now)
            return None
        peer = self._peer(self.trust, name, initiator=False)
        self._admission.entered(peer, name)
        self._half_open[peer] = None
        if len(self._half_open) > self.config.half_open:
            oldest, _ = self._half_open.popitem(last=False)
            oldest.live.drop(CloseCode.OVERLOADED)
        return peer.driver

    def _peer(
        self, policy: Decider, name: str, *, initiator: bool, dialled: str | None = None
    ) -> Peer:
        backend = self._running()
        self._check_journal()
        core = Connection(
            self._core_config,
            initiator=initiator,
            now=backend.now(),
            observer=self._observing(name),
            total=self._held,
        )
        host = Host(backend, self.config, self.handlers, self.topics, self._endings)
        peer = Peer(core, host, name, policy, dialled, self._peer_changed)
        if self.journal is not None:
            peer.driver.gate = self.journal.gate
        self._peers.add(peer)
        return peer

    def _check_journal(self) -> None:
        if self.journal is not None and self.journal.stops_node:
            raise JournalFailedError("the journal failed, and nothing is sent without it")

    def _stop(self) -> None:
        """The journal failed: what it cannot keep is not said, not even Close."""
        for peer in list(self._peers):
            reason = "the journal failed"
            peer.core.abort(peer.backend.now(), CloseCode.CONNECTION_LOST, reason)
            peer.driver.settle()

    def _observing(self, name: str) -> Observer | None:
        if self.journal is not None:
            return None if self.journal.failed else self.journal.session_log(name)
        return self._observer() if self._observer is not None else None

    def _peer_changed(self, peer: Peer) -> None:
        if peer.is_open or peer.is_gone:
            self._half_open.pop(peer, None)
        if peer.is_gone:
            self._peers.discard(peer)
            self._admission.left(peer)
        self._changes.notify()


@contextmanager
def _given_up(peer: Peer) -> Iterator[None]:
    """A dial that failed, timed out or was cancelled (be it at the last moment, when the
    peer is open but was not returned) leaves nothing behind."""
    try:
        yield
    except HandshakeError:
        # A responder that refused is yet to say so (Reject or Close); the core bounds how
        # long it lingers for that.
        if peer.core.state is not State.FAREWELL:
            peer.live.drop(CloseCode.GOING_AWAY)
        raise
    except BaseException:
        peer.live.drop(CloseCode.GOING_AWAY)
        raise
