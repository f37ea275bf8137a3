"""`Connections`: the listeners, peers, links and tunnels of a node."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakSet

import anyio
from anyio.abc import ByteStream

from parley._crypto.errors import StatementError
from parley._crypto.identity import Identity, NodeId
from parley._crypto.randomness import random_bytes
from parley._node.config import CHANGEABLE, NodeConfig
from parley._node.errors import (
    ConfigError,
    IdentityChangedError,
    KeyStatementsError,
    NotTrustedError,
    ungrouped,
)
from parley._node.fair_slots import FairSlots
from parley._node.federation.dials import TunnelRecord
from parley._node.journal.errors import JournalFailedError
from parley._node.messaging.idempotency import ONCE_EPOCH_SIZE, ONCE_INFO, IdempotencyCache
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled
from parley._node.peer.connection_handlers import ConnectionLog, NodeContext
from parley._node.peer.dial import (
    open_over,
    open_peer,
    parse_addresses,
    policy_for,
    proof,
    stream_dial,
)
from parley._node.peer.link import Link
from parley._node.peer.loopback import LOCAL_NAME, open_local
from parley._node.peer.metrics import ConnectionCollector
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.config_types import require_number
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import CLOSE_DRAIN, CLOSE_LINGER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.observer import Observer
from parley._node.registrar import Registrar
from parley._node.remote.remote import Remote
from parley._node.remote.resumer import Dial, SessionResumer
from parley._node.remote.session_table import SessionTable
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend, Listener
from parley._node.transport.conditions import Condition, yield_to_loop
from parley._node.transport.driver import Driver
from parley._node.transport.transport import OPEN, WriteBarrier
from parley._node.trust.admission import Admission, address_key
from parley._node.trust.decision import TrustDecision, ended_error
from parley._node.trust.key_statements import KeyStatements, Offer
from parley._node.trust.policies import (
    AcceptHook,
    AnyPeer,
    Dialled,
    ResolvedPolicy,
    TrustPolicy,
    as_policy,
    ids_named_by,
    known_lines_of,
    known_peers_of,
)
from parley._node.trust.revalidation import Revalidation
from parley._node.trust.statement_table import IdsOnRecord, StatementTable
from parley._node.tunnels.dial import ViaDialer
from parley._node.tunnels.home_server import Homes
from parley._node.tunnels.policy import DialPolicy
from parley._node.tunnels.service import TunnelService, offer_tunnels

if TYPE_CHECKING:  # nodes without a journal start without one
    from parley._node.journal.journal import Journal

logger = logging.getLogger("parley.node")

CONNECT_TIMEOUT: Final = 10.0
# Time to write queued data and Close, and for the peer to hang up.
CLOSE_TIMEOUT: Final = CLOSE_DRAIN + CLOSE_LINGER + 1.0
# Seconds to send Close when an exception leaves `async with`.
HASTY_TIMEOUT: Final = 0.2
_STOPS: Final = "the node is stopping and the session has no transport"


class Connections:
    """The connections of one node. Its peers can use the handlers and topics of `registrar`."""

    def __init__(
        self,
        identity: Identity,
        trust: TrustPolicy | AcceptHook,
        registrar: Registrar,
        backend: Callable[[], Backend],
        *,
        statements: KeyStatements,
        watch: Collection[NodeId],
        journal: "Journal | None",
        observer: Callable[[], Observer] | None,
    ) -> None:
        config = registrar.config
        self.identity = identity
        self.statements = statements
        # Functions that tell whether the node names an ID: itself, in rules and links,
        # and in settings, accounts and members. They may be called in any thread.
        self.named_ids: list[Callable[[NodeId], bool]] = [
            frozenset((identity.node_id, *watch)).__contains__,
            registrar.handlers.names,
            self._names,
        ]
        self.config = config
        self.trust = self._checked(trust)
        self.handlers = registrar.handlers
        self.metrics = registrar.metrics
        self._roles = registrar.roles
        self._roles.accepted_predecessors = statements.table.accepted
        self._topics = registrar.topics
        self._backend = backend
        self._journal = journal
        self._observer = observer
        # Settings of resumable connections, and of others.
        self._core_config = config.core(identity)
        self._unresumed: CoreConfig | None = None
        # The table of the statements in these settings.
        self._presented: StatementTable | None = None
        self._held = MemoryBudget(config.memory)
        self._once = IdempotencyCache(
            b"",
            results=config.tuning.once_results,
            peer_memory=config.once_peer_memory,
            memory=config.once_memory,
            total=self._held,
            on_ended=self._handler_ended,
        )
        self._peers: set[Peer] = set()
        self._dialled: dict[Peer, frozenset[NodeId]] = {}  # the IDs by which a peer was dialled
        self._successors: dict[NodeId, NodeId | None] = {}  # those that were logged
        self._own_end_logged = False
        self._local: set[Peer] = (
            set()
        )  # both ends of sessions of the node with itself; no policy checks them
        # Kept in order of acceptance: the oldest among the connections of an address is evicted
        # first.
        self._half_open: FairSlots[Peer] = FairSlots(lambda peer: 0.0, idle=0.0)
        self._changes = Condition(lambda: backend().waiter())
        self._log = ConnectionLog()
        self._admission = Admission(config)
        self._sessions = SessionTable(config, backend)
        self._reviews = Revalidation(self._decisions, backend, statements)
        self._listeners: list[Listener] = []
        self.links: set[Link] = set()  # running links
        self._via = ViaDialer(self.connect, self.current, backend)
        self.homes = Homes(self)
        self.tunnel_services: WeakSet[TunnelService] = WeakSet()
        self._collector = ConnectionCollector(
            config, self._peers, self._admission, self._sessions, self._held, self._once
        )
        self.metrics.add(self._families)
        self.metrics.add(self._collector.families)

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    @property
    def backend(self) -> Backend:
        """The backend of the node; ParleyError if the node is not running."""
        return self._backend()

    @property
    def addresses(self) -> list[str]:
        """The addresses that the node listens on, including its node ID."""
        return [str(self._advertised(listener.address)) for listener in self._listeners]

    @property
    def peers(self) -> list[Peer]:
        """The open peers, without sessions that `local` opened."""
        return [peer for peer in self._peers if peer.is_open and peer not in self._local]

    @property
    def turned_away(self) -> int:
        return self._admission.refused.total()

    # Start and stop.

    def begin(self) -> None:
        """Start a new epoch for calls with `once=`, and follow key statements, when the node
        starts.

        Raises:
            KeyStatementsError: the file of key statements cannot be read.
        """
        self.statements.refresh()
        self._once.begin_epoch(random_bytes(ONCE_EPOCH_SIZE))
        self.statements.listeners.append(self._statements_changed)
        # After the listener was added: otherwise a change in between would be missed.
        self._roles.accepted_predecessors = self.statements.table.accepted
        self._reviews.watch_statements()
        self._own_end_logged = False
        self._log_own_end()

    def stop_following(self) -> None:
        """Follow key statements no longer, before the node's tasks end."""
        if self._statements_changed in self.statements.listeners:
            self.statements.listeners.remove(self._statements_changed)

    async def stop_accepting(self, *, graceful: bool) -> None:
        """End the links, the listeners and the sessions without a transport."""
        for link in list(self.links):
            await link.node_ends(graceful=graceful)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.aclose()
        self._sessions.end(_STOPS)

    async def drain(self) -> None:
        """Wait for running handlers, at most `drain_timeout` seconds."""
        for topic in self._topics.values():
            topic.flush()
        with anyio.move_on_after(self.config.drain_timeout):
            await self._changes.until(self._has_drained)

    async def close(self) -> None:
        """Close each peer gracefully."""
        closed = len(self._peers)
        self._sessions.end(_STOPS)
        with ungrouped(), anyio.move_on_after(CLOSE_TIMEOUT):
            for peers in self._inner_first():
                async with anyio.create_task_group() as closing:
                    for peer in peers:
                        closing.start_soon(peer.close, CloseCode.GOING_AWAY)
        logger.debug("closed %d peers", closed, extra={"event": "node.closed", "peers": closed})

    async def hang_up(self) -> None:
        """Close all peers without waiting for running handlers, within `HASTY_TIMEOUT`."""
        await self.stop_accepting(graceful=False)
        for peers in self._inner_first():
            for peer in peers:
                peer.live.drop(CloseCode.GOING_AWAY)
            await yield_to_loop(self.backend)  # lets the tasks write the Close
        with anyio.move_on_after(HASTY_TIMEOUT):
            await self._changes.until(lambda: not self._peers)

    def clear(self) -> None:
        """Clear remembered results and sessions, when the node has stopped."""
        self.stop_following()
        with suppress(KeyStatementsError):  # logged when a statement could not be written
            self.statements.write_again()
        self._once.clear()
        self._sessions.clear()

    def drop_all(self) -> None:
        """Drop all connections without a Close, because the journal cannot record it."""
        for peer in list(self._peers):
            peer.live.lost("the journal failed")

    def _has_drained(self) -> bool:
        # Includes peers that connected during the drain; otherwise the end of their calls would not
        # be noticed.
        for peer in self._peers:
            peer.live.draining = True
        return not self._once.running and not any(peer.running_calls for peer in self._peers)

    def _inner_first(self) -> tuple[list[Peer], list[Peer]]:
        """Return the peers behind tunnels, then all others: tunnels may run over those."""
        peers = list(self._peers)
        return [peer for peer in peers if peer.path], [peer for peer in peers if not peer.path]

    # Trust and limits. `Node` documents these.

    async def review(self) -> None:
        await self._reviews.review()

    async def change_trust(self, trust: TrustPolicy | AcceptHook) -> None:
        self.trust = self._checked(trust)
        for decision in self._decisions():
            decision.change_trust(self.trust)
        await self.review()

    def change_limits(self, config: NodeConfig) -> None:
        self.backend  # noqa: B018  # raises
        for name in {each.name for each in fields(config)} - CHANGEABLE:
            if getattr(config, name) != getattr(self.config, name):
                raise ConfigError(
                    f"cannot change {name} of a running node to {getattr(config, name)!r}: "
                    "it is not a limit; create a new node"
                )
        self._core_config, self._unresumed = config.core(self.identity), None
        self._presented = None
        self.config = config
        self._held.limit = config.memory
        results = config.tuning.once_results
        self._once.change_limits(results, config.once_peer_memory, config.once_memory)
        self._admission.change(config)
        self._sessions.config = config

    def _checked(self, trust: TrustPolicy | AcceptHook) -> ResolvedPolicy:
        decides = as_policy(trust)
        if self.config.plaintext != "never" and not decides.allows_plaintext:
            raise ConfigError(
                f"cannot use trust {decides.name!r} with plaintext={self.config.plaintext!r}: "
                "unencrypted peers cannot prove a node ID; use trust 'any' or plaintext='never'"
            )
        return decides

    def _decisions(self) -> list[TrustDecision]:
        """Return the trust decisions of connected peers and of sessions that can still be
        resumed.
        """
        there = [peer for peer in self._peers - self._local if peer.live.ended is None]
        closed = [cast(Peer, live.remote) for live in self._sessions.closed]
        return [peer.handlers.trust_decision for peer in (*there, *closed)]

    # Ended node IDs (section 22).

    def offer_statement(self, encoded: bytes) -> Offer:
        """Store a statement that another node sent, if it is about a node ID on record.

        May wait for the file of statements.

        Raises:
            StatementError: it is not valid.
        """
        return self.statements.offer(encoded, self._records(self.trust), datetime.now(UTC))

    def offer_statements(
        self,
        encoded: Sequence[bytes],
        goes_on: Callable[[], bool] = lambda: True,
        *,
        dialled: Iterable[NodeId] = (),
    ) -> StatementError | None:
        """Store the statements that another node sent, like `offer_statement`, and return the last
        error. `goes_on` is called after each wrong signature; if it returns False, the others are
        dropped. The IDs `dialled` are on record.
        """
        records = self._records(self.trust, *map(Dialled, dialled))
        return self.statements.offer_all(encoded, records, datetime.now(UTC), goes_on)

    def offer_chain(
        self, encoded: Sequence[bytes], node_id: NodeId, policy: ResolvedPolicy
    ) -> None:
        """Store the statements that the peer `node_id` presented in its Proof, as far as they are
        valid and about IDs on record. `policy` decides on the peer.

        May wait for the file of statements; called in a thread.
        """
        records = self._records(self.trust, policy)
        self.statements.offer_chain(encoded, node_id, records, datetime.now(UTC))

    def _records(self, *policies: ResolvedPolicy) -> IdsOnRecord:
        """Return which IDs are on record now, among them the ID of a policy of a dial."""
        by_policies = [ids for one in policies if (ids := ids_named_by(one))]
        # Only seen: other nodes can have this node dial IDs of their choice.
        dialled = {one.node_id for one in policies if isinstance(one, Dialled)}
        dialled = dialled.union(*list(self._dialled.values()))
        # Known peers are on record also if no policy reads them: their names are still shown.
        found = map(known_peers_of, (self.statements, *policies))
        # The object of a policy, which has parsed what it has written, replaces another for a file.
        files = {file.path: file for file in found if file is not None}
        # Read once, because asking for the state of a file costs more than all other checks.
        by_file = [known_lines_of(file) for file in files.values()]

        def named(node_id: NodeId) -> bool:
            return (
                any(node_id in ids for ids in by_policies)
                or any(bool(lines[node_id].names) for lines in by_file if node_id in lines)
                or any(named(node_id) for named in self.named_ids)
            )

        def seen(node_id: NodeId) -> bool:
            return node_id in dialled or any(
                not lines[node_id].names for lines in by_file if node_id in lines
            )

        return IdsOnRecord(named, seen)

    def current(self, node_id: NodeId) -> NodeId:
        """Return the node ID to dial in place of one, which is the same unless it has ended.

        Raises:
            IdentityEndedError: it has ended, and no successor is known or accepted.
        """
        table = self.statements.table
        current = table.current(node_id)
        if current is None:
            raise ended_error(table, node_id)
        if current != node_id:
            self._log_successor(node_id, current)
        return current

    @contextmanager
    def _ended_instead(self, node_id: NodeId | None) -> Iterator[None]:
        """Raise IdentityEndedError if a dial fails because the dialled ID, or the one recorded
        under the dialled address, has ended. Statements that end it can arrive in the handshake.
        """
        try:
            yield
        except IdentityChangedError as error:
            if not self.statements.table.has_ended(error.old):
                raise
            raise ended_error(self.statements.table, error.old, error) from error
        except NotTrustedError as error:
            if node_id is None or self.statements.table.current(node_id) is not None:
                raise
            raise ended_error(self.statements.table, node_id) from error

    def _log_successor(self, ended: NodeId, current: NodeId | None) -> None:
        # A link dials again and again.
        is_repeated = self._successors.get(ended) == current
        self._successors[ended] = current
        logger.log(
            logging.DEBUG if is_repeated else logging.WARNING,
            "the node ID %s has ended: connecting to its successor %s",
            ended,
            current,
            extra={"event": "identity.dialled", "peer": current, "ended": ended},
        )

    def _statements_changed(self) -> None:
        """Apply a change of the statements; called in any thread."""
        self._roles.accepted_predecessors = self.statements.table.accepted
        self.backend.call_soon_threadsafe(self._apply_statements)
        self._log_own_end()

    def _apply_statements(self) -> None:
        """End the sessions of ended IDs, recheck all other peers, and dial the links that are down
        now, which may have a successor.
        """
        if self._statements_changed not in self.statements.listeners:
            return  # the node is stopping
        # Again in the node's thread, where `begin` could have set those of an older table.
        self._roles.accepted_predecessors = self.statements.table.accepted
        for one in self._decisions():
            one.outdate()
            one.refuse_ended()
        self._reviews.request()
        for link in list(self.links):
            if not link.is_up:
                link.redial()

    def _names(self, node_id: NodeId) -> bool:
        """Return whether a topic or a link names a node ID."""
        return any(topic.names(node_id) for topic in list(self._topics.values())) or any(
            link.names(node_id) for link in list(self.links)
        )

    def _log_own_end(self) -> None:
        """Log that the node's own ID has ended, once after each start."""
        if self._own_end_logged or not self.statements.table.has_ended(self.node_id):
            return
        self._own_end_logged = True
        logger.error(
            "the ID of this node has ended: peers that know refuse it; use the successor's key",
            extra={"event": "identity.own-ended", "node": self.node_id},
        )

    # Listening and dialling. `Node` documents these.

    async def listen(self, address: str) -> str:
        self._check_journal()
        listener = await self.backend.listen(Address.parse(address), self.accept)
        self._listeners.append(listener)
        return str(self._advertised(listener.address))

    async def connect(
        self,
        address: str,
        *,
        also: Iterable[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        timeout: float = CONNECT_TIMEOUT,
        resumable: bool = True,
    ) -> Peer:
        require_number("timeout", timeout, error=ConfigError)
        addresses = parse_addresses(address, also)
        node_id = current = addresses[0].node_id
        named = frozenset[NodeId]().union(*(one.on_the_way for one in addresses))
        place, policy = addresses[0].place, policy_for(addresses[0], trust, self.config)
        if node_id is not None:
            named |= {node_id}
            current = self.current(node_id)
            addresses = [one.with_node_id(current) for one in addresses]
        peer = self._peer(policy, place, initiator=True, dialled=place, resumable=resumable)
        self._dialled[peer] = named
        dials = [self._dial(one) for one in addresses]
        with self._ended_instead(node_id):
            await open_peer(peer, dials, timeout, self._prober(place))
        if node_id is not None and peer.node_id not in (None, current):
            self._log_successor(node_id, peer.node_id)
        return peer

    async def connect_by(
        self,
        dials: Sequence[Dial],
        node_id: NodeId,
        *,
        name: str,
        timeout: float = CONNECT_TIMEOUT,
    ) -> Peer:
        """Connect to the node `node_id` over the first of `dials` (`tunnel_dial`) that succeeds.

        They are tried in turn, now and when the session has lost its transport. `name` is used in
        logs. Raises the same errors as `Node.connect`.
        """
        current = self.current(node_id)
        policy = policy_for(None, Dialled(node_id), self.config)
        peer = self._peer(policy, name, initiator=True)
        self._dialled[peer] = frozenset((node_id,))
        with self._ended_instead(node_id):
            await open_peer(peer, dials, timeout, self._prober(name))
        if peer.node_id not in (None, current):
            self._log_successor(node_id, peer.node_id)
        return peer

    def add_addresses(self, peer: Peer, addresses: Iterable[str]) -> None:
        """Add addresses of the same node, over which the session of a dialled peer can continue.

        Raises AddressError and ConfigError as `Node.connect` does.
        """
        dials = [self._dial(address) for address in map(Address.parse, addresses)]
        if isinstance(peer.live.redialling, SessionResumer):
            peer.live.redialling.add(dials)

    async def connect_stream(
        self,
        stream: ByteStream,
        *,
        trust: TrustPolicy | AcceptHook,
        redial: Callable[[], Awaitable[ByteStream]] | None = None,
    ) -> Peer:
        backend = self.backend
        policy = policy_for(None, trust, self.config)
        peer = self._peer(policy, "stream", initiator=True, resumable=redial is not None)
        if redial is not None:
            dials = [stream_dial(redial, backend)]
            resumer = SessionResumer(peer.live, dials, proof(peer, self._prober("stream")))
            peer.live.use_resumer(resumer)
        await open_over(peer, stream)
        return peer

    async def accept_stream(self, stream: ByteStream) -> Peer:
        peer = self._peer(self.trust, "stream", initiator=False)
        await open_over(peer, stream)
        became = peer.live.became
        return peer if became is None else cast(Peer, became.remote)

    async def local(self) -> Peer:
        # Neither end needs the statements, which lead to the ID of this node.
        stated = replace(self.core_config(resumable=False), statements=())
        asking = replace(stated, identity=Identity.create())
        peer = self._local_end(asking, initiator=True)
        await open_local(peer, self._local_end(stated, initiator=False), self.identity.public)
        return peer

    def serve_tunnels(
        self, policy: DialPolicy, on_closed: Callable[[TunnelRecord], None] = lambda record: None
    ) -> TunnelService:
        """Let peers dial tunnels to and through this node, as `policy` decides.

        `on_closed` receives the record of each tunnel that this node relayed. Raises ParleyError if
        the node already serves tunnels.
        """
        service = TunnelService(self.node_id, policy, self.accept, self.metrics, on_closed)
        self.tunnel_services.add(service)
        offer_tunnels(self.handlers, service)
        return service

    def _dial(self, address: Address) -> Dial:
        """Return the function that dials an address; raise ConfigError if a tunnel address has no
        node ID.
        """
        if address.scheme != "via":
            return partial(self.backend.connect, address)
        if address.node_id is None:
            raise ConfigError(
                f"cannot dial {str(address)!r}: the node ID to reach is missing; append #NODEID"
            )
        return self._via.dial(address)

    def _prober(self, name: str) -> Callable[[TrustPolicy], Peer]:
        """Return a factory of peers that are used only to check that an address answers."""
        return lambda policy: self._peer(policy, name, initiator=True, resumable=False)

    # Peers.

    def accept(self, name: str) -> Driver | None:
        """Return the driver of a new connection from `name`, or None if a limit or the journal
        refuses it.
        """
        now = self.backend.now()
        stopped = self._journal is not None and self._journal.stops_node
        reason = "the journal failed" if stopped else self._admission.refusal(name, now)
        if reason is not None:
            self._log.turned_away(name, reason, now)
            return None
        peer = self._peer(self.trust, name, initiator=False)
        self._admission.entered(peer, name)
        address, _ = address_key(name)
        while len(self._half_open) >= self.config.tuning.half_open:
            evicted = self._half_open.evict_for(address, now)
            assert evicted is not None  # none is busy, because `idle` is 0
            evicted.live.drop(CloseCode.OVERLOADED)
        self._half_open.add(peer, address)
        return peer.driver

    def core_config(self, *, resumable: bool) -> CoreConfig:
        """Return the settings of a new connection.

        Once a handler with `once=` is registered, the node information includes the epoch. The
        Proof presents the stored statements that lead to this node (section 22).
        """
        table = self.statements.table
        if table is not self._presented:
            self._presented = table
            chain = table.chain_to(self.node_id) if self.statements.present else []
            statements = tuple(one.encoded for one in chain)
            if statements != self._core_config.statements:
                self._core_config = replace(self._core_config, statements=statements)
                self._unresumed = None
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

    def _peer(
        self,
        policy: ResolvedPolicy,
        name: str,
        *,
        initiator: bool,
        dialled: str | None = None,
        resumable: bool = True,
    ) -> Peer:
        now = self.backend.now()
        self._check_journal()
        core = Connection(
            self.core_config(resumable=resumable),
            initiator=initiator,
            now=now,
            observer=self._new_observer(name),
            total=self._held,
        )
        barrier = OPEN if self._journal is None else self._journal.barrier
        peer = Peer(
            core, self._context(barrier, self.statements), name, policy, dialled, self._peer_changed
        )
        self._peers.add(peer)
        return peer

    def _local_end(self, stated: CoreConfig, *, initiator: bool) -> Peer:
        """Create one end of a session of the node with itself; limits and the journal ignore it."""
        now = self.backend.now()
        core = Connection(stated, initiator=initiator, now=now, total=self._held)
        # The node may still call itself when its own ID has ended.
        host = self._context(OPEN, KeyStatements())
        peer = Peer(core, host, LOCAL_NAME, AnyPeer(), None, self._peer_changed)
        self._peers.add(peer)
        self._local.add(peer)
        return peer

    def _context(self, barrier: WriteBarrier, statements: KeyStatements) -> NodeContext:
        return NodeContext(
            self.backend,
            self.config,
            self.handlers,
            self._topics,
            self._log,
            self._once,
            self._sessions,
            self.metrics,
            statements,
            self.offer_chain,
            barrier,
        )

    def _new_observer(self, name: str) -> Observer | None:
        if self._journal is not None:
            return None if self._journal.failed else self._journal.session_log(name)
        return self._observer() if self._observer is not None else None

    def _check_journal(self) -> None:
        if self._journal is not None and self._journal.stops_node:
            raise JournalFailedError(
                f"cannot send without the journal '{self._journal.directory}', which failed; see "
                "the log for the reason"
            )

    def _handler_ended(self) -> None:
        self._changes.notify()

    def _peer_changed(self, remote: Remote) -> None:
        peer = cast(Peer, remote)
        live = peer.live
        is_open, gone, became = live.is_open, live.gone, live.became
        if is_open or gone:
            self._half_open.remove(peer)
        if became is not None:
            self._admission.moved(peer, cast(Peer, became.remote))
        elif gone or live.is_suspended:
            self._admission.left(peer)  # a peer that reconnects is counted again
        if gone and peer in self._peers:
            self._peers.discard(peer)
            self._dialled.pop(peer, None)
            self._collector.gone(peer)
            self._local.discard(peer)
        self._sessions.changed(live)
        if is_open:
            self._reviews.peer_accepted(peer.handlers.trust_decision.trust)
        self._changes.notify()

    def _families(self) -> Iterable[MetricFamily]:
        up = sum(link.is_up for link in self.links)
        states = ((("up",), up), (("down",), len(self.links) - up))
        yield labelled(catalogue.LINKS, states)
        dropped = self.statements.dropped.copy().items()
        yield labelled(catalogue.STATEMENTS_DROPPED, (((why,), n) for why, n in dropped))
        yield family(catalogue.TUNNELS, sum(service.count for service in self.tunnel_services))

    def _advertised(self, address: Address) -> Address:
        if self.config.plaintext == "only":
            return address.without_node_id()
        return address.with_node_id(self.node_id)
