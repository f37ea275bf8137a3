"""`Node`: one identity with its handlers, topics and connections.

Leaving `async with node` stops everything that the node started. There is no global state, so a
process can run many nodes.
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
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.policies import AcceptHook, AnyPeer, ResolvedPolicy, TrustPolicy
from parley._node.tunnels.home_server import Home

if TYPE_CHECKING:  # nodes without a bus or a journal start without them
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.authorisation import AllowBus
    from parley._node.journal.journal import Journal


class Node:
    """A node: one identity with its listeners, handlers, topics and peers.

    Use it as an async context manager. Leaving the block stops the listeners and closes all
    connections.

    `trust` decides which peers may connect: a policy from `parley.trust`, or an async function that
    takes a `Candidate` and returns True to accept it. By default, every peer that proves its node
    ID may connect; handlers can check `call.peer.node_id`. `journal` records the events of each
    encrypted connection for its auditors. `observer` is called once per encrypted connection and
    returns the `Observer` for it; it cannot be combined with `journal`. `clock` replaces the event
    loop's clock, for example with `parley.testing.FakeClock`. `statements` has the key statements
    that end node IDs and name their successors, by default in memory; the node stores statements
    about the IDs in `watch`, and about all others that it has on record (section 22).

    Handlers are registered by name, before or while the node runs. A name that ends in `*` is a
    pattern: the handler of `admin.*` handles all names that begin with `admin.`. Its `allow=` also
    applies to every other handler with such a name. Names have at most 1,024 characters.

    `allow` lists the peers that may use a handler: node IDs, roles assigned with `roles.assign`, or
    a function of peer and name, sync or async. Without it, every peer may. `supercategories`
    restricts a handler to pairs of roles, such as client to server (protocol section 2); by default
    all pairs are allowed.

    Example:

        from parley import Identity, Node

        async with Node(Identity.create()) as server, Node(Identity.create()) as client:
            @server.on_call("echo")
            async def echo(call):
                return call.data

            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
            assert await peer.call("echo", "hello") == "hello"

    Raises:
        ConfigError: an argument has the wrong type, or two settings contradict each other.
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
        statements: KeyStatements | None = None,
        watch: Collection[NodeId] = (),
    ) -> None:
        config = NodeConfig() if config is None else config
        for name, value, kind in (("identity", identity, Identity), ("config", config, NodeConfig)):
            if not isinstance(value, kind):
                raise ConfigError(f"invalid {name} {value!r}: expected a {kind.__name__}")
        if observer is not None:
            require_callable(observer, "observer=", plain=True)
        for option, thing, method in (("journal", journal, "begin"), ("clock", clock, "now")):
            if thing is not None and not hasattr(thing, method):
                raise ConfigError(f"invalid {option} {thing!r}: expected a {option.capitalize()}")
        if journal is not None and observer is not None:
            raise ConfigError(
                f"cannot use the journal '{journal.directory}' with observer={observer!r}: only "
                "one can observe a connection; remove one of them"
            )
        if journal is not None and config.plaintext == "only":
            raise ConfigError(
                f"cannot use the journal '{journal.directory}' with plaintext='only': unencrypted "
                "connections give no evidence; remove one of them"
            )
        if statements is not None and not isinstance(statements, KeyStatements):
            raise ConfigError(f"invalid statements {statements!r}: expected a KeyStatements")
        self.identity = identity
        self.journal = journal
        self._scope = TaskScope("the node", clock)
        self.registrar = Registrar(config, self._scope)
        self.connections = Connections(
            identity,
            AnyPeer() if trust is None else trust,
            self.registrar,
            self._running,
            statements=KeyStatements() if statements is None else statements,
            watch=watch,
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
        """The node ID: the hash of the identity's primary public key."""
        return self.identity.node_id

    @property
    def config(self) -> NodeConfig:
        """The settings of the node; `change_limits` replaces them."""
        return self.connections.config

    @property
    def trust(self) -> ResolvedPolicy:
        """The policy or hook that decides which peers may connect; `change_trust` replaces it."""
        return self.connections.trust

    @property
    def statements(self) -> KeyStatements:
        """The key statements that this node has stored."""
        return self.connections.statements

    def successor_of(self, node_id: NodeId) -> NodeId | None:
        """Return the node ID that took the place of an ended one, or None (section 22)."""
        if not self.statements.table.has_ended(node_id):
            return None
        return self.statements.table.current(node_id)

    @property
    def backend(self) -> Backend:
        """The backend of the event loop.

        Raises:
            ParleyError: the node is not running.
        """
        return self._scope.backend

    @property
    def metrics(self) -> Metrics:
        """The metrics of this node."""
        return self.registrar.metrics

    @property
    def handlers(self) -> Handlers:
        """The registered handlers of calls, events, streams and subscriptions."""
        return self.registrar.handlers

    @property
    def topics(self) -> dict[str, Topic[Any]]:
        """The topics that this node publishes, by name."""
        return self.registrar.topics

    @property
    def roles(self) -> Roles:
        """The roles of node IDs, which `allow=` can refer to."""
        return self.registrar.roles

    @property
    def buses(self) -> dict[str, "Bus"]:
        """The buses that `bus` has returned, by URL."""
        return self.registrar.buses

    @property
    def addresses(self) -> list[str]:
        """The addresses that the node listens on, including its node ID."""
        return self.connections.addresses

    @property
    def peers(self) -> list[Peer]:
        """The open peers, without sessions that `local` opened."""
        return self.connections.peers

    @property
    def turned_away(self) -> int:
        """The number of connections refused by a limit, such as `max_connections`."""
        return self.connections.turned_away

    # Start and stop.

    async def __aenter__(self) -> Self:
        backend = await self._scope.enter()
        try:
            self.connections.begin()
            if self.journal is not None:
                await self.journal.begin(self.identity, backend, self.connections.drop_all)
        except BaseException:
            self.connections.clear()
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
            # Even if this task is being cancelled, peers must receive a Close.
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
            self.connections.stop_following()
            try:
                await self._scope.leave()
            finally:
                self.connections.clear()
                if self.journal is not None:
                    with anyio.CancelScope(shield=True):
                        await self.journal.end()

    async def aclose(self) -> None:
        """Drain and close the node: refuse connections, wait for running handlers, then close all
        peers.

        It waits at most `drain_timeout` seconds for the handlers of calls and of buses. Then it
        sends Close to each peer and closes the buses. Stream handlers are not waited for: their
        streams end with PeerClosedError.

        Leaving the `async with` block without an exception calls it.
        """
        await self.connections.stop_accepting(graceful=True)
        with ungrouped():
            async with anyio.create_task_group() as draining:
                draining.start_soon(self.registrar.drain, self.config.drain_timeout)
                await self.connections.drain()
        await self.connections.close()
        await (
            self.registrar.aclose()
        )  # Close the buses last, because a peer may use one until it is closed.

    def _running(self) -> Backend:
        return self._scope.backend

    # Connections.

    async def listen(self, address: str) -> str:
        """Listen for connections on an address and return the address that clients dial.

        The address is `tcp://host:port` (port 0 chooses a free port), `unix:///path`, or
        `memory://name` for nodes in the same event loop.

        Returns:
            The address to dial. It ends in `#` and this node's ID, which clients verify.

        Example:

            address = await node.listen("tcp://127.0.0.1:0")
            print(address)  # tcp://127.0.0.1:40123#nodeid...

        Raises:
            AddressError: invalid address.
            UnreachableError: cannot listen there, for example because the port is in use.
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
        """Connect to a node and complete the handshake within `timeout` seconds.

        The peer must prove the node ID in the address, or that it has taken the place of this ID
        (section 22). If the address contains none, `trust` decides; one of them is required.

        `also` are further addresses of the same node. They are tried in turn, both now and when the
        transport is lost and the session continues over another one (protocol section 17). With
        `resumable=False`, the session ends when its transport does.

        An address `via://host:port/SERVER#NODEID` leads through a tunnel that the server with the
        node ID SERVER opens; `/SERVER/HOME#NODEID` continues through the home server HOME (section
        19).

        Example:

            from parley import Identity, Node

            async with Node(Identity.create()) as server:
                address = await server.listen("tcp://127.0.0.1:0")
                peer = await node.connect(address, timeout=5)
                assert peer.node_id == server.node_id

        Raises:
            AddressError: invalid address.
            ConfigError: the address has no node ID and `trust` is missing, or an address of `also`
                has a different ID.
            UnreachableError: no answer.
            TunnelRefusedError: the server opened no tunnel to the node (a subclass of
                UnreachableError).
            HandshakeError: the handshake failed, for example because the nodes share no algorithm.
            IdentityEndedError: the node ID in the address has ended, and no successor is accepted;
                or another node answered at an address whose known node ID has ended (a subclass of
                NotTrustedError).
            NotTrustedError: the peer has another node ID or isn't trusted, or it rejected this
                node.
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
        """Return a link to a node: a connection that redials whenever its session ends.

        Use it as an async context manager; it connects in the background while the block runs.
        `also` are further addresses of the same node, at most 16 in total. `trust` decides, as in
        `connect`, if the address contains no node ID. `pauses` sets the pauses between attempts,
        and `draw` returns their random part (0 to 1), for tests.

        Example:

            from parley import Identity, Node

            async with Node(Identity.create()) as server:
                address = await server.listen("tcp://127.0.0.1:0")
                async with node.link(address) as link:
                    await link.ready(timeout=5)

        Raises:
            AddressError: invalid address.
            ConfigError: neither a node ID nor `trust` is given, the node IDs differ, or there are
                too many addresses.
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
        """Return a link to a server on which this node has an account, so that peers can reach it
        there.

        Use it as an async context manager; while the block runs, the node stays logged in.
        `exports` names what peers may use that connect through a tunnel, in addition to `allow=`:
        calls, topics, events, stream labels and the bus. It has at most 64 names and patterns that
        end in `*`; by default such peers may use nothing. The other parameters are those of `link`.

        Raises:
            AddressError: invalid address.
            ConfigError: as for `link`, or `exports` has too many or invalid patterns.
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
        """Complete the handshake as initiator over any byte stream, and return the peer.

        If the stream is lost, `redial` returns a new one over which the session continues. Without
        `redial`, the session ends. Raises the same errors as `connect`.
        """
        return await self.connections.connect_stream(stream, trust=trust, redial=redial)

    async def accept_stream(self, stream: ByteStream) -> Peer:
        """Complete the handshake as responder over any byte stream, and return the peer.

        If the other side resumes a session over this stream, the existing peer of that session is
        returned. Raises the same errors as `connect`.
        """
        return await self.connections.accept_stream(stream)

    async def local(self) -> Peer:
        """Open an in-memory session of the node with itself, and return the peer.

        Requests run the node's own handlers, topics and streams as for a remote peer, including
        `allow=`, with this node's ID as `call.peer.node_id`. Each call opens a new session, which
        lasts until it is closed. Neither `peers` nor the journal includes it.

        Example:

            @node.on_call("ping")
            async def ping(call):
                return "pong"

            async with await node.local() as local:
                assert await local.call("ping") == "pong"

        Raises:
            ParleyError: the node is not running.
        """
        return await self.connections.local()

    async def review(self) -> None:
        """Recheck all accepted peers, and end the sessions of peers that are no longer trusted.

        This includes suspended sessions. Each peer is checked by the policy or hook that accepted
        it: the node's, or the one passed to `connect`. The check completes even if the caller is
        cancelled.

        Raises:
            ParleyError: the node is not running, or stopped during the check.
        """
        await self.connections.review()

    async def change_trust(self, trust: TrustPolicy | AcceptHook) -> None:
        """Replace the trust policy, and recheck all accepted peers with the new one (see `review`).

        Raises:
            ConfigError: not a policy or function, or one that cannot be used with plaintext; the
                policy is unchanged.
            ParleyError: as for `review`, but the policy has been replaced.
        """
        await self.connections.change_trust(trust)

    def change_limits(self, config: NodeConfig) -> None:
        """Replace the limits: all settings that are reloadable, and `tuning`.

        Limits on connections, handshakes and memory apply immediately. Limits that peers are
        informed of, and limits on data stored for a peer, apply from its next connection. The
        maximum size of a topic's notes does not change.

        Raises:
            ConfigError: a setting that isn't a limit differs, or the limits are invalid for this
                node; nothing has changed.
            ParleyError: the node is not running.
        """
        self.connections.change_limits(config)
        self.registrar.change_limits(config)

    # Handlers.

    def intercept(self, *kinds: Kind, way: Way = "in") -> Callable[[I], I]:
        """Register an interceptor, which runs around requests of the given kinds.

        An interceptor is `async def interceptor(one, proceed)`. It takes an `Intercepted`, and
        returns `await proceed(one)` or another result, or raises `CallRefused`. With `way="in"` it
        sees the peers' requests, with `way="out"` this node's. Interceptors run in order of
        registration, the first outermost. `allow=` and `concurrency=` are checked after them.

        The kinds are `call`, `event`, `subscribe`, `note` (received or published) and `stream`.
        Interceptors of outgoing streams are plain functions, because `open_stream` doesn't wait. An
        event is sent, or a stream opened, after all interceptors have proceeded.

        Example:

            @node.intercept("call")
            async def log_calls(one, proceed):
                print("call", one.name)
                return await proceed(one)

        Raises:
            ConfigError: an unknown kind, or a function with the wrong signature.
        """
        return self.registrar.intercept(*kinds, way=way)

    def propagate(self, *, notes: bool = False) -> None:
        """Propagate request IDs and W3C trace context through all calls.

        Each request gets an ID and a trace, sent as the headers `request-id` and `traceparent`.
        Calls that a handler makes while it handles a request carry the same headers. With `notes`,
        published notes do too; they are then sent one by one, not in batches.
        """
        self.registrar.propagate(notes=notes)

    def on_call(
        self, topic: str, *, once: bool = False, **options: Unpack[HandlerOptions]
    ) -> Callable[[C], C]:
        """Register a call handler: `async def handler(call)` returns the answer.

        An async generator yields the items of a streamed answer. Type hints such as `(call:
        Call[Order]) -> Receipt` are checked: a call with data of another type is rejected with code
        23 before the handler runs.

        With `once=True`, callers can pass an idempotency key. The handler then runs at most once
        per key and node ID. Its result, at most 64 KiB, is kept for 10 minutes, and the handler
        continues if the connection ends. Peers that connected before the node's first handler with
        `once=True` was registered can't pass keys until they reconnect.

        Example:

            @node.on_call("greet")
            async def greet(call):
                return f"hello, {call.data}"

            async with await node.local() as local:
                assert await local.call("greet", "Ann") == "hello, Ann"

        Raises:
            ParleyError: the name has a handler or begins with `publish:`.
            ConfigError: an option is invalid, the handler yields although `once` is set, or a type
                hint cannot be checked.
        """
        return self.registrar.on_call(topic, once=once, **options)

    def on_stream(
        self,
        label: str,
        *,
        answers: Collection[tuple[int, int]] = (),
        **options: Unpack[HandlerOptions],
    ) -> Callable[[S], S]:
        """Register the handler of streams that peers open with `label`: `async def
        handler(stream)`.

        The stream closes when the handler returns. Raise `CallRefused` to refuse it: the stream is
        reset with code 20 for refusal code 20, 12 for code 19, and 35 for all others. `answers`
        lists the event types, as pairs (category, subcategory), that are answers to requests.

        Example:

            @node.on_stream("upper")
            async def upper(stream):
                async for piece in stream:
                    await stream.send(piece.upper())

        Raises:
            ParleyError: the label has a handler or is reserved.
            ConfigError: an option is invalid.
        """
        return self.registrar.on_stream(label, answers=answers, **options)

    def on(
        self, name: str, *, namespace: str = "", **options: Unpack[HandlerOptions]
    ) -> Callable[[E], E]:
        """Register a handler of named events: `async def handler(event)`.

        Data that it emits on `event`, or yields, is sent as replies; its return value is the last
        reply. Type hints such as `NamedEvent[Order]` are checked as in `on_call`.

        Example:

            @node.on("ping")
            async def ping(event):
                await event.emit("pong", event.data)

            async with await node.local() as local:
                reply = await local.emit("ping", 1).reply(timeout=5)
                assert (reply.name, reply.data) == ("pong", 1)

        Raises:
            ParleyError: the event has a handler.
            ConfigError: an option is invalid.
        """
        return self.registrar.on(name, namespace=namespace, **options)

    def add_namespace(self, namespace: Namespace) -> None:
        """Register all handlers of a namespace; if one is invalid, register none.

        Raises:
            ParleyError: one of its events already has a handler.
            ConfigError: an option is invalid, or the namespace has no name.
        """
        self.registrar.add_namespace(namespace)

    def on_subscribe(
        self,
        topic: str,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
    ) -> Callable[[H], H]:
        """Register the function that decides on subscriptions to a topic or pattern.

        `async def handler(request)` returns initial data for the subscriber, or raises
        `SubscribeRefused`. The topic itself is created with `topic`.

        Raises:
            ParleyError: there is already a handler for it.
            ConfigError: an option is invalid.
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
        """Create a topic that peers can subscribe to, and return it.

        With `note_type`, such as a dataclass, only notes of that type can be published.

        Example:

            prices = node.topic("prices")
            async with await node.local() as local, local.subscribe("prices") as notes:
                await prices.publish({"tea": 3})
                assert await anext(notes) == {"tea": 3}

        Raises:
            ParleyError: the topic exists.
            ConfigError: an option is invalid.
        """
        return self.registrar.topic(name, note_type, **options)

    def offer_topics(self, *, allow: Allow | None = None) -> None:
        """Answer the call `parley.topics` with a list of the names that this node offers to the
        caller.

        The list has the types and docstrings of calls, topics, events and streams. It leaves out
        names that `allow=` denies to the caller; a function in `allow=` is called with the text of
        a pattern, such as `admin.*`. Each remote address can ask 64 times in a burst and once a
        second on average; further calls are refused with code 19.

        Raises:
            ParleyError: the list is already offered.
            ConfigError: `allow` is invalid.
        """
        self.registrar.offer_topics(allow=allow)

    def bus(
        self, url: str, *, config: "BusConfig | None" = None, allow: "AllowBus | None" = None
    ) -> "Bus":
        """Return the durable bus at `sqlite:///FILE` or `redis://HOST:PORT/DATABASE`.

        The same URL always returns the same bus. It is opened at its first use. Its handlers run
        while the node runs.

        With `allow`, peers may use it (`Peer.bus`). Node IDs and roles in `allow` may do
        everything. A mapping grants each of the actions `publish`, `consume`, `inspect` and
        `manage` to node IDs, roles, or a function of peer and name. A function, sync or async, is
        called with a `BusRequest`.

        Example:

            from tempfile import TemporaryDirectory

            with TemporaryDirectory() as directory:
                bus = node.bus(f"sqlite:///{directory}/bus.db")
                await bus.publish("auth.user_registered", {"username": "ann"})
                await bus.aclose()

        Raises:
            AddressError: invalid URL.
            ConfigError: a setting or `allow` is invalid, or a setting differs from the one first
                used for this URL.
            ParleyError: the node already offers a bus to peers.
        """
        return self.registrar.bus(url, config=config, allow=allow)
