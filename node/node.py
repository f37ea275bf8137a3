"""`Node`: one identity, its listeners, its handlers and its peers.

Everything a node starts ends with `async with node`; there is no global state, so a process may
hold many. What is said on a connection is up to `Peer`.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import anyio

from parley._crypto.identity import Identity, NodeId
from parley._crypto.randomness import random_bytes
from parley._node.changing import Changing
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, ungrouped
from parley._node.fair_slots import FairSlots
from parley._node.journal.errors import JournalFailedError
from parley._node.messaging.idempotency import ONCE_EPOCH_SIZE, ONCE_INFO, IdempotencyCache
from parley._node.peer.connection_handlers import ConnectionLog, NodeContext
from parley._node.peer.loopback import LOCAL_NAME, open_local
from parley._node.peer.metrics import ConnectionCollector
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import CLOSE_DRAIN, CLOSE_LINGER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.observer import Observer
from parley._node.remote.session_table import SessionTable
from parley._node.transport.backend import Backend, Clock
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import Condition, yield_to_loop
from parley._node.transport.driver import Driver
from parley._node.transport.metrics import LoopCollector
from parley._node.transport.task_scope import TaskScope
from parley._node.trust.admission import Admission, address_key
from parley._node.trust.decision import Deciding
from parley._node.trust.policies import AcceptHook, AnyPeer, Decider, TrustPolicy
from parley._node.trust.revalidation import Reviews

if TYPE_CHECKING:  # nodes without a journal start without one
    from parley._node.journal.journal import Journal

logger = logging.getLogger("parley.node")

# For what is queued and Close to be written, and for the other side to hang up.
CLOSE_TIMEOUT = CLOSE_DRAIN + CLOSE_LINGER + 1.0
# Seconds for Close when `async with` is left by an exception.
HASTY_TIMEOUT = 0.2


class Node(Changing):
    """A node of the network: one `identity`, its listeners, its handlers and its peers. It
    lives as long as its `async with`.

    `trust` says who may connect: a policy, or an async function that is given a `Candidate`
    and returns True for those it lets in. The default lets anyone in who proves who they
    are, so handlers look at `call.peer.node_id`. `observer` makes an observer for each encrypted
    connection; `journal` keeps what is sent and received on them, for its auditors. `clock` is
    the time it lives by, in place of the loop's (`parley.testing.FakeClock`).

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
        journal: "Journal | None" = None,
        clock: Clock | None = None,
    ) -> None:
        for name, value, kind in (
            ("identity", identity, Identity),
            ("config", NodeConfig() if config is None else config, NodeConfig),
        ):
            if not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}; it must be of type {kind.__name__}")
        if observer is not None:
            require_callable(observer, "observer=", plain=True)
        for option, thing, method in (("journal", journal, "begin"), ("clock", clock, "now")):
            if thing is not None and not hasattr(thing, method):
                raise ConfigError(f"{option} is {thing!r}; it must be a {option.capitalize()}")
        super().__init__(config or NodeConfig(), self._running)
        self.identity = identity
        self.trust = self._checked(AnyPeer() if trust is None else trust)
        # What connections are told, made once: of those that may be resumed, and of the others.
        self._core_config = self.config.core(identity)
        self._unresumed: CoreConfig | None = None
        if journal is not None and observer is not None:
            raise ConfigError(
                f"cannot use the journal '{journal.directory}' with observer={observer!r}: give "
                "one of them"
            )
        if journal is not None and self.config.plaintext == "only":
            raise ConfigError(
                f"cannot keep the journal '{journal.directory}' with plaintext='only': unencrypted "
                "connections prove nothing; leave one of them out"
            )
        self._observer = observer
        self.journal = journal
        self._held = MemoryBudget(self.config.memory)
        self._once = IdempotencyCache(
            b"",
            results=self.config.tuning.once_results,
            peer_memory=self.config.once_peer_memory,
            memory=self.config.once_memory,
            total=self._held,
        )
        self._once.on_ended = self._handler_ended
        self._peers: set[Peer] = set()
        self._local: set[Peer] = set()  # both ends of sessions with itself, which no policy lets in
        # In the order of their acceptance: among the peers of one address the oldest goes first.
        self._half_open: FairSlots[Peer] = FairSlots(lambda peer: 0.0, idle=0.0)
        self._changes = Condition(lambda: self._running().waiter())
        self._ground = TaskScope("the node", clock)
        self._endings = ConnectionLog()
        self._admission = Admission(self.config)
        self._sessions = SessionTable(self.config, self._running)
        self._reviews = Reviews(self._everybody, self._running)
        self._readings = ConnectionCollector(
            self.config, self._peers, self._admission, self._sessions, self._held, self._once
        )
        self.metrics.add(self._readings.families)
        self._loop_readings = LoopCollector(self._running, self.metrics)
        if journal is not None:
            self.metrics.add(journal.families)

    def __repr__(self) -> str:
        return f"<Node {self.node_id.short}, {len(self.peers)} peers>"

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        return self.identity.node_id

    @property
    def peers(self) -> list[Peer]:
        """The peers whose connections are open, but for this node itself (`local`)."""
        return [peer for peer in self._peers if peer.is_open and peer not in self._local]

    @property
    def turned_away(self) -> int:
        """How many connections a limit kept out (`max_connections` and those below it)."""
        return self._admission.refused.total()

    async def local(self) -> Peer:
        """Meet this node itself, by a session in memory: its handlers, topics and streams are asked
        as a peer would ask them, `allow=` and all, and `call.peer` has this node's id. It is a new
        session each time, for as long as it is not closed; neither `peers` nor the journal has it.

        Raises:
            ParleyError: the node does not run.
        """
        stated = self._stated(resumable=False)
        asking = replace(stated, identity=Identity.create())
        peer = self._local_end(asking, initiator=True)
        await open_local(peer, self._local_end(stated, initiator=False), self.identity.public)
        return peer

    # Life.

    async def __aenter__(self) -> Self:
        backend = await self._ground.enter()
        self._host = NodeContext(
            backend,
            self.config,
            self.handlers,
            self.topics,
            self._endings,
            self._once,
            self._sessions,
            self.metrics,
        )
        self._once.epoch = random_bytes(ONCE_EPOCH_SIZE)
        if self.journal is not None:
            try:
                await self.journal.begin(self.identity, backend, self._stop)
            except BaseException:
                await self._ground.leave()
                raise
        if self._buses is not None:
            self._buses.begin()
        self._loop_readings.begin()
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
            self._loop_readings.stop()
            try:
                await self._ground.leave()
            finally:
                self._once.clear()
                self._sessions.clear()
                if self.journal is not None:
                    with anyio.CancelScope(shield=True):
                        await self.journal.end()

    async def aclose(self) -> None:
        """Take no more connections, let the handlers of calls and of buses finish, say Close to
        each peer, close the buses.

        Streams end with Close: their handlers meet PeerClosedError.
        """
        await self._end_links(graceful=True)
        await self._stop_listening()
        self._sessions.end("the node stops, and there is no transport")
        for topic in self.topics.values():
            topic.flush()
        drained = len(self._peers)
        with ungrouped():
            async with anyio.create_task_group() as draining:
                if self._buses is not None:
                    draining.start_soon(self._buses.drain, self.config.drain_timeout)
                with anyio.move_on_after(self.config.drain_timeout):
                    await self._drain()
        self._sessions.end("the node stops, and there is no transport")
        with ungrouped(), anyio.move_on_after(CLOSE_TIMEOUT):
            for peers in self._inner_first():
                async with anyio.create_task_group() as closing:
                    for peer in peers:
                        closing.start_soon(peer.close, CloseCode.GOING_AWAY)
        logger.debug("closed %d peers", drained, extra={"event": "node.closed", "peers": drained})
        await self._close_buses()

    async def _shut_down(self, *, drain: bool) -> None:
        try:
            if drain:
                await self.aclose()
            else:
                await self._hang_up()
        finally:
            await self._close_buses()

    async def _end_links(self, *, graceful: bool) -> None:
        for link in list(self._links):
            await link.node_ends(graceful=graceful)

    async def _hang_up(self) -> None:
        await self._end_links(graceful=False)
        await self._stop_listening()
        self._sessions.end("the node stops, and there is no transport")
        for peers in self._inner_first():
            for peer in peers:
                peer.live.drop(CloseCode.GOING_AWAY)
            await yield_to_loop(self._running())  # what they say has to be on its way
        with anyio.move_on_after(HASTY_TIMEOUT):
            await self._changes.until(lambda: not self._peers)

    async def _close_buses(self) -> None:
        # After the peers: one of them may be using a bus to the last.
        buses, self._buses = self._buses, None
        if buses is not None:
            await buses.aclose()

    def _inner_first(self) -> tuple[list[Peer], list[Peer]]:
        """Those that are reached through tunnels, then those that these may lead over."""
        peers = list(self._peers)
        return [peer for peer in peers if peer.path], [peer for peer in peers if not peer.path]

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
        return not self._once.running and not any(peer.running_calls for peer in self._peers)

    # Inside.

    def _running(self) -> Backend:
        return self._ground.backend

    def _everybody(self) -> list[Deciding]:
        """The decisions about those who are there, or may come back for the rest of a session."""
        there = [peer for peer in self._peers - self._local if peer.live.ended is None]
        closed = [cast(Peer, live.remote) for live in self._sessions.closed]
        return [peer.endpoint.deciding for peer in (*there, *closed)]

    def _accept(self, name: str) -> Driver | None:
        now = self._running().now()
        stopped = self.journal is not None and self.journal.stops_node
        reason = "the journal failed" if stopped else self._admission.refusal(name, now)
        if reason is not None:
            self._endings.turned_away(name, reason, now)
            return None
        peer = self._peer(self.trust, name, initiator=False)
        self._admission.entered(peer, name)
        address, _ = address_key(name)
        while len(self._half_open) >= self.config.tuning.half_open:
            evicted = self._half_open.evict_for(address, now)
            assert evicted is not None  # none of them is busy
            evicted.live.drop(CloseCode.OVERLOADED)
        self._half_open.add(peer, address)
        return peer.driver

    def _peer(
        self,
        policy: Decider,
        name: str,
        *,
        initiator: bool,
        dialled: str | None = None,
        resumable: bool = True,
    ) -> Peer:
        backend = self._running()
        self._check_journal()
        core = Connection(
            self._stated(resumable),
            initiator=initiator,
            now=backend.now(),
            observer=self._observing(name),
            total=self._held,
        )
        peer = Peer(core, self._host, name, policy, dialled, self._peer_changed)
        if self.journal is not None:
            peer.driver.gate = self.journal.gate
        self._peers.add(peer)
        return peer

    def _local_end(self, stated: CoreConfig, *, initiator: bool) -> Peer:
        """An end of a session with itself: no limit counts it, and no journal keeps it."""
        now = self._running().now()
        core = Connection(stated, initiator=initiator, now=now, total=self._held)
        peer = Peer(core, self._host, LOCAL_NAME, AnyPeer(), None, self._peer_changed)
        self._peers.add(peer)
        self._local.add(peer)
        return peer

    def _stated(self, resumable: bool) -> CoreConfig:
        """What a new connection is told. With the first handler that remembers its calls the node
        information begins to say so."""
        if self.handlers.calls.remembers:
            epoch = self._once.epoch
            if self._core_config.node_info.get(ONCE_INFO) != epoch:
                info = {**self.config.info, ONCE_INFO: epoch}
                self._core_config = replace(self._core_config, node_info=info)
                self._unresumed = None
        if resumable:
            return self._core_config
        if self._unresumed is None:
            self._unresumed = replace(self._core_config, resume=0.0)
        return self._unresumed

    def _check_journal(self) -> None:
        if self.journal is not None and self.journal.stops_node:
            raise JournalFailedError(
                f"the journal '{self.journal.directory}' failed, and this node sends nothing "
                "without it; see the log for the reason"
            )

    def _stop(self) -> None:
        """The journal failed: what it cannot keep is not said, not even Close."""
        for peer in list(self._peers):
            peer.live.lost("the journal failed")

    def _observing(self, name: str) -> Observer | None:
        if self.journal is not None:
            return None if self.journal.failed else self.journal.session_log(name)
        return self._observer() if self._observer is not None else None

    def _handler_ended(self) -> None:
        self._changes.notify()

    def _peer_changed(self, peer: Peer) -> None:
        live = peer.live
        is_open, gone, became = live.is_open, live.gone, live.became
        if is_open or gone:
            self._half_open.remove(peer)
        if became is not None:
            self._admission.moved(peer, cast(Peer, became.remote))
        elif gone or live.is_suspended:
            self._admission.left(peer)  # whoever comes back is counted anew
        if gone and peer in self._peers:
            self._peers.discard(peer)
            self._readings.gone(peer)
            self._local.discard(peer)
        self._sessions.changed(live)
        if is_open:
            self._reviews.let_in(peer.endpoint.deciding.trust)
        self._changes.notify()
