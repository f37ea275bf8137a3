"""`Node`: one identity, its handlers and its connections.

`async with node` ends everything that the node started. There is no global state: a process may
run many nodes.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import anyio
from anyio.abc import ByteStream

from parley._crypto.identity import Identity, NodeId
from parley._node.backoff import Backoff
from parley._node.config import NodeConfig
from parley._node.connections import CONNECT_TIMEOUT, Connections
from parley._node.data_types import N
from parley._node.errors import ConfigError, ungrouped
from parley._node.federation.exports import Exports
from parley._node.handlers.interceptors import I, Kind, Way
from parley._node.handlers.permissions import Allow, Roles
from parley._node.handlers.registry import HandlerOptions, Handlers, Namespace
from parley._node.handlers.topic import Topic, TopicOptions
from parley._node.metrics.metrics import Metrics
from parley._node.peer.link import Link
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.protocol.codes import Supercategory
from parley._node.protocol.observer import Observer
from parley._node.registrar import C, E, H, Registrar, S
from parley._node.transport.backend import Backend, Clock
from parley._node.transport.callables import require_callable
from parley._node.transport.metrics import LoopCollector
from parley._node.transport.task_scope import TaskScope
from parley._node.trust.policies import AcceptHook, AnyPeer, ResolvedPolicy, TrustPolicy
from parley._node.tunnels.home_server import Home

if TYPE_CHECKING:  # nodes without a bus or a journal start without them
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.authorisation import AllowBus
    from parley._node.journal.journal import Journal


class Node:
    """A node of the network: one `identity`, its listeners, its handlers and its peers. Use it as
    an async context manager; leaving the block closes all its connections.

    `trust` decides who may connect: a policy, or an async function that gets a `Candidate` and
    returns True to accept it. By default any authenticated peer may connect, so handlers check
    `call.peer.node_id`. `observer` makes an observer for each encrypted connection. `journal`
    records what is sent and received on them, for its auditors. `clock` replaces the clock of the
    event loop (`parley.testing.FakeClock`).

    Handlers are registered by name, before or while the node runs. A name may end in `*`: the
    handler of `admin.*` handles all names (of at most 1,024 characters) that begin with `admin.`,
    and its `allow=` applies to each of them, whatever else is registered. `allow` is node ids,
    roles given by `roles.assign`, or a function of peer and name, sync or async; without it every
    peer may. `supercategories` are the pairs of roles between which it may be used (section 2), by
    default all.

    Raises:
        ConfigError: settings that contradict each other.
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
        config = NodeConfig() if config is None else config
        for name, value, kind in (("identity", identity, Identity), ("config", config, NodeConfig)):
            if not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}; it must be of type {kind.__name__}")
        if observer is not None:
            require_callable(observer, "observer=", plain=True)
        for option, thing, method in (("journal", journal, "begin"), ("clock", clock, "now")):
            if thing is not None and not hasattr(thing, method):
                raise ConfigError(f"{option} is {thing!r}; it must be a {option.capitalize()}")
        if journal is not None and observer is not None:
            raise ConfigError(
                f"cannot use the journal '{journal.directory}' with observer={observer!r}: give "
                "one of them"
            )
        if journal is not None and config.plaintext == "only":
            raise ConfigError(
                f"cannot keep the journal '{journal.directory}' with plaintext='only': unencrypted "
                "connections prove nothing; leave one of them out"
            )
        self.identity = identity
        self.journal = journal
        self._scope = TaskScope("the node", clock)
        self.registrar = Registrar(config, self._scope)
        self.connections = Connections(
            identity,
            AnyPeer() if trust is None else trust,
            self.registrar,
            self._running,
            journal=journal,
            observer=observer,
        )
        self._loop_collector = LoopCollector(self._running, self.metrics)
        if journal is not None:
            self.metrics.add(journal.families)

    def __repr__(self) -> str:
        return f"<Node {self.node_id.short}, {len(self.peers)} peers>"

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        return self.identity.node_id

    @property
    def config(self) -> NodeConfig:
        """The settings; `change_limits` replaces them."""
        return self.connections.config

    @property
    def trust(self) -> ResolvedPolicy:
        """The policy or hook that decides who may connect; `change_trust` replaces it."""
        return self.connections.trust

    @property
    def backend(self) -> Backend:
        """The event loop's backend; ParleyError if the node is not running."""
        return self._scope.backend

    @property
    def metrics(self) -> Metrics:
        """The metrics of the node."""
        return self.registrar.metrics

    @property
    def handlers(self) -> Handlers:
        """The registered handlers."""
        return self.registrar.handlers

    @property
    def topics(self) -> dict[str, Topic[Any]]:
        """The topics that this node publishes, by name."""
        return self.registrar.topics

    @property
    def roles(self) -> Roles:
        """The roles that the application gave to node ids, for `allow=`."""
        return self.registrar.roles

    @property
    def buses(self) -> dict[str, "Bus"]:
        """The buses that `bus` returned so far, by address."""
        return self.registrar.buses

    @property
    def addresses(self) -> list[str]:
        """The addresses that the node listens on, with its node id."""
        return self.connections.addresses

    @property
    def peers(self) -> list[Peer]:
        """The open peers, except for the node itself (`local`)."""
        return self.connections.peers

    @property
    def turned_away(self) -> int:
        """The number of connections that a limit refused (`max_connections` and those below it)."""
        return self.connections.turned_away

    # Start and stop.

    async def __aenter__(self) -> Self:
        backend = await self._scope.enter()
        self.connections.begin()
        if self.journal is not None:
            try:
                await self.journal.begin(self.identity, backend, self.connections.drop_all)
            except BaseException:
                await self._scope.leave()
                raise
        self.registrar.begin()
        self._loop_collector.begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            # Also when this task is being cancelled: peers must get a Close.
            with anyio.CancelScope(shield=True):
                try:
                    if exc_type is None:
                        await self.aclose()
                    else:
                        await self.connections.hang_up()
                finally:
                    await self.registrar.aclose()
        finally:
            self._loop_collector.stop()
            try:
                await self._scope.leave()
            finally:
                self.connections.clear()
                if self.journal is not None:
                    with anyio.CancelScope(shield=True):
                        await self.journal.end()

    async def aclose(self) -> None:
        """Accept no more connections, wait for the handlers of calls and of buses, send Close to
        each peer, and close the buses.

        Streams end with Close: their handlers get PeerClosedError.
        """
        await self.connections.stop_accepting(graceful=True)
        with ungrouped():
            async with anyio.create_task_group() as draining:
                draining.start_soon(self.registrar.drain, self.config.drain_timeout)
                await self.connections.drain()
        await self.connections.close()
        await self.registrar.aclose()  # after the peers: one of them may be using a bus to the last

    def _running(self) -> Backend:
        return self._scope.backend

    # Connections.

    async def listen(self, address: str) -> str:
        """Listen on `tcp://host:port` (port 0: any), `unix:///path`, or `memory://name`, where
        nodes of the same event loop find it.

        Returns:
            The address to dial, with this node's id, so that dialling nodes verify the id.

        Raises:
            AddressError: not an address. UnreachableError: cannot listen there.
        """
        return await self.connections.listen(address)

    async def connect(
        self,
        address: str,
        *,
        also: Iterable[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        timeout: float = CONNECT_TIMEOUT,
        resumable: bool = True,
    ) -> Peer:
        """Dial a node and complete the handshake within `timeout` seconds.

        `also` are more addresses of the same node. They are tried in turn, also when the transport
        is lost and the session continues over another one (docs/protocol.md section 17). A session
        that is not `resumable` ends with its transport. An address
        `via://host:port/SERVER#NODEID`, or `/SERVER/HOME#NODEID`, leads through a tunnel that this
        server opens (section 19).

        The peer must have the node id of the address. If the address has none, `trust` decides.

        Raises:
            AddressError: not an address. ConfigError: neither a node id nor `trust`, or an address
                of `also` has another id.
            UnreachableError: no answer; TunnelRefusedError, a subclass: no tunnel leads there.
            HandshakeError: the nodes could not agree.
            NotTrustedError: it is another node, or refuses this one.
        """
        return await self.connections.connect(
            address, also=also, trust=trust, timeout=timeout, resumable=resumable
        )

    def link(
        self,
        address: str,
        *,
        also: Sequence[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> Link:
        """Return a self-reconnecting connection: `async with` it. It redials after growing `pauses`
        whenever a session has ended; `draw` returns their random part, 0 to 1. `also` are further
        addresses of the same node, 16 at most with the first; `trust` as in `connect`.

        Raises:
            AddressError: not an address. ConfigError: neither a node id nor `trust`, different
                node ids, or too many addresses.
        """
        links = self.connections.links
        return Link(self.connections, links, address, also, trust=trust, pauses=pauses, draw=draw)

    def home(
        self,
        address: str,
        *,
        exports: Iterable[str] = (),
        also: Sequence[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> Home:
        """Return a link to a server at which this node has an account, and stay logged in there:
        `async with` it. `exports` are what peers that come through a tunnel may use, at most 64
        names and patterns that end in `*` (of calls, topics, events, labels of streams, and of the
        bus), in addition to what `allow=` says; nothing by default. The rest is as in `link`.

        Raises:
            ConfigError: as `link`, or `exports` are not such patterns. AddressError: not an
                address.
        """
        connections = self.connections
        return Home(
            connections,
            connections.links,
            connections.homes,
            address,
            also,
            exports=Exports(exports),
            trust=trust,
            pauses=pauses,
            draw=draw,
        )

    async def connect_stream(
        self,
        stream: ByteStream,
        *,
        trust: TrustPolicy | AcceptHook,
        redial: Callable[[], Awaitable[ByteStream]] | None = None,
    ) -> Peer:
        """Complete the handshake over any byte stream, as its initiator; raises as `connect`. If
        the stream is lost, the session continues over the stream that `redial` returns; without
        `redial` it ends."""
        return await self.connections.connect_stream(stream, trust=trust, redial=redial)

    async def accept_stream(self, stream: ByteStream) -> Peer:
        """Complete the handshake over any byte stream, as its responder; raises as `connect`. If
        the other side resumes a session over it, the peer of that session is returned."""
        return await self.connections.accept_stream(stream)

    async def local(self) -> Peer:
        """Open a session with this node itself, in memory: its handlers, topics and streams handle
        requests as from any peer, `allow=` included, and `call.peer` has this node's id. Each call
        opens a new session, until it is closed; neither `peers` nor the journal has it.

        Raises:
            ParleyError: the node is not running.
        """
        return await self.connections.local()

    async def review(self) -> None:
        """Check all accepted peers again, and end the sessions, suspended ones too, of peers that
        are no longer trusted. Each peer is checked by the policy or hook that accepted it: the
        node's own, or that of `connect`. Completes even if it is cancelled.

        Raises:
            ParleyError: the node does not run, or has stopped meanwhile.
        """
        await self.connections.review()

    async def change_trust(self, trust: TrustPolicy | AcceptHook) -> None:
        """Set who may connect from now on, and `review` all accepted peers by it.

        Raises:
            ConfigError: it is neither, or does not go with plaintext; nothing has changed.
            ParleyError: as `review`; it is set.
        """
        await self.connections.change_trust(trust)

    def change_limits(self, config: NodeConfig) -> None:
        """Apply the limits of `config`: the settings that are reloadable, and `tuning`. Limits of
        connections, handshakes and memory apply immediately; limits that a peer is told, and of
        what is kept for it, from its next connection on. A topic's longest note does not change.

        Raises:
            ConfigError: a setting other than a limit differs, or the limits do not fit this node;
                nothing has changed. ParleyError: the node does not run.
        """
        self.connections.change_limits(config)
        self.registrar.change_limits(config)

    # Handlers.

    def intercept(self, *kinds: Kind, way: Way = "in") -> Callable[[I], I]:
        """Register an interceptor: `async def interceptor(one, proceed)`, which gets an
        `Intercepted` and returns `await proceed(one)` or another result, or raises `CallRefused`.
        It runs around each request of these kinds, of peers (`in`) or of this node (`out`), inside
        the interceptors that were registered before; `allow=` and `concurrency=` come after it.

        Kinds are `call`, `event`, `subscribe`, `note` (received or published) and `stream`.
        Interceptors of opened streams are plain functions, since `open_stream` does not wait. An
        event is sent, or a stream opened, once all of them have proceeded.

        Raises:
            ConfigError: an unknown kind, or a function that does not fit it.
        """
        return self.registrar.intercept(*kinds, way=way)

    def propagate(self, *, notes: bool = False) -> None:
        """Give each request an id and the trace that it belongs to, and pass both on with each call
        that is made because of it: the headers `request-id` and `traceparent` (W3C Trace Context).
        With `notes` those of topics too, which then travel one by one."""
        self.registrar.propagate(notes=notes)

    def on_call(
        self, topic: str, *, once: bool = False, **options: Unpack[HandlerOptions]
    ) -> Callable[[C], C]:
        """Register the handler of calls: `async def handler(call)` returns the answer, or yields
        its items.

        Type hints such as `(call: Call[Order]) -> Receipt` are checked: data of another type is
        answered with code 23 before the handler runs.

        With `once` a peer may call it with a key: it runs at most once for each key of a node id,
        its answer (of at most 64 KiB) is remembered for 10 minutes, and the end of the connection
        does not stop it. Peers that connect from then on know that this node remembers.

        Raises:
            ParleyError: the topic has a handler, or begins with 'publish:'. ConfigError: an option
                is wrong, `once` with a handler that yields, or a hint that cannot be checked.
        """
        return self.registrar.on_call(topic, once=once, **options)

    def on_stream(
        self,
        label: str,
        *,
        answers: Collection[tuple[int, int]] = (),
        **options: Unpack[HandlerOptions],
    ) -> Callable[[S], S]:
        """Register the handler of streams that peers open: `async def handler(stream)`. With
        `CallRefused` it refuses one (Reset 20 for code 20, 12 for code 19, 35 for others).

        `answers` are the types (category, subcategory) of events that answer requests.

        Raises:
            ParleyError: the label has a handler, or is reserved. ConfigError: an option
                is wrong.
        """
        return self.registrar.on_stream(label, answers=answers, **options)

    def on(
        self, name: str, *, namespace: str = "", **options: Unpack[HandlerOptions]
    ) -> Callable[[E], E]:
        """Register the handler of named events: `async def handler(event)`. What it emits on the
        event, or yields, are replies to it; its result is the last one. Type hints such as
        `NamedEvent[Order]` are checked as in `on_call`.

        Raises:
            ParleyError: the event has a handler. ConfigError: an option is wrong.
        """
        return self.registrar.on(name, namespace=namespace, **options)

    def add_namespace(self, namespace: Namespace) -> None:
        """Register all handlers of a namespace, or none of them.

        Raises:
            ParleyError: one of its events has a handler. ConfigError: an option is wrong,
                or it has no name.
        """
        self.registrar.add_namespace(namespace)

    def on_subscribe(
        self,
        topic: str,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
    ) -> Callable[[H], H]:
        """Register the function that decides on subscriptions: `async def handler(request)` returns
        data for the subscriber or raises `SubscribeRefused`. The topics are those of `topic`.

        Raises:
            ParleyError: there is one already. ConfigError: an option is wrong.
        """
        return self.registrar.on_subscribe(topic, allow=allow, supercategories=supercategories)

    @overload
    def topic(
        self, name: str, note_type: type[N] | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[N]: ...

    @overload
    def topic(
        self, name: str, note_type: UnionType | type[Any], **options: Unpack[TopicOptions]
    ) -> Topic[Any]: ...

    def topic(
        self, name: str, note_type: Any = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]:
        """Publish a topic: peers may subscribe to it from now on. With `note_type`, a class such as
        a dataclass, all its notes must have that type.

        Raises:
            ParleyError: the topic exists. ConfigError: an option is wrong.
        """
        return self.registrar.topic(name, note_type, **options)

    def offer_topics(self, *, allow: Allow | None = None) -> None:
        """Answer calls of `parley.topics` with a list of what this node offers to the peer, with
        types and docstrings. The list leaves out what `allow=` would not grant to the peer. For a
        pattern, a function of `allow=` gets the pattern's text, `admin.*`. One address gets 64
        answers at once and one a second, and code 19 beyond that.

        Raises:
            ParleyError: it is offered already. ConfigError: `allow` is wrong.
        """
        self.registrar.offer_topics(allow=allow)

    def bus(
        self, url: str, *, config: "BusConfig | None" = None, allow: "AllowBus | None" = None
    ) -> "Bus":
        """Return the durable bus at `sqlite:///FILE` or `redis://HOST:PORT/DATABASE`; the same one
        for the same address. It is opened at its first use, and its handlers run while the node
        runs.

        With `allow` peers may use it (`Peer.bus`). Node ids and roles may do everything. A mapping
        has node ids and roles, or a function of peer and name, for each of the actions `publish`,
        `consume`, `inspect` and `manage`. A function, sync or async, is called with a `BusRequest`.

        Raises:
            AddressError: not the address of a bus. ConfigError: a setting is wrong, or differs from
                what it was for this address, or `allow` is none of these. ParleyError: a bus is
                offered already.
        """
        return self.registrar.bus(url, config=config, allow=allow)
