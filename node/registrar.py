"""`Registrar`: registers the handlers, topics and buses of a node or client."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from parley._node.config import NodeConfig, require_room_for_epoch
from parley._node.data_types import data_type
from parley._node.errors import ConfigError, ParleyError
from parley._node.handlers.interceptors import I, Kind, Way
from parley._node.handlers.introspection import AT_ONCE, OF_AN_ADDRESS, TOPICS_CALL, Introspection
from parley._node.handlers.metrics import handler_families
from parley._node.handlers.permissions import Allow, Roles
from parley._node.handlers.registry import WILDCARD, HandlerOptions, Handlers, Namespace
from parley._node.handlers.signatures import checked
from parley._node.handlers.topic import (
    SubscribeHandler,
    Topic,
    TopicOptions,
    add_writers,
)
from parley._node.handlers.trace_context import propagate
from parley._node.messaging.topics import LABEL, PUBLISH
from parley._node.metrics.metrics import Metrics
from parley._node.protocol.codes import RESERVED_LABELS, Supercategory
from parley._node.remote.requests import Call, CallHandler, EventHandler, NamedEvent
from parley._node.remote.stream import StreamHandler
from parley._node.transport.callables import check_name, require_callable, require_name
from parley._node.transport.conditions import is_async
from parley._node.transport.task_scope import TaskScope
from parley._node.trust.admission import PerAddressLimiter

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.bus_registry import BusRegistry
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.authorisation import AllowBus

C = TypeVar("C", bound=CallHandler)
S = TypeVar("S", bound=StreamHandler)
E = TypeVar("E", bound=EventHandler)
H = TypeVar("H", bound=SubscribeHandler)


class Registrar:
    """The handlers, topics and buses that a node or client offers to its peers. `Node` documents
    the methods that register them.
    """

    def __init__(self, config: NodeConfig, scope: TaskScope) -> None:
        self.config = config
        self.handlers = Handlers()
        self.topics: dict[str, Topic[Any]] = {}
        self.scope = scope  # of the node or client
        self._buses: BusRegistry | None = None
        self.metrics = Metrics()
        self.metrics.add(partial(handler_families, self.handlers, self.topics))

    @property
    def roles(self) -> Roles:
        """The roles of node IDs, which `allow=` can refer to."""
        return self.handlers.roles

    @property
    def buses(self) -> dict[str, "Bus"]:
        """The buses that `bus` has returned, by URL."""
        return {} if self._buses is None else self._buses.by_url

    def change_limits(self, config: NodeConfig) -> None:
        """Use these limits for topics that are created from now on."""
        self.config = config

    def begin(self) -> None:
        """Start the handlers of buses, when the node starts."""
        if self._buses is not None:
            self._buses.begin()

    async def drain(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for running handlers of buses."""
        if self._buses is not None:
            await self._buses.drain(timeout)

    async def aclose(self) -> None:
        """Close the buses."""
        buses, self._buses = self._buses, None
        if buses is not None:
            await buses.aclose()

    def intercept(self, *kinds: Kind, way: Way = "in") -> Callable[[I], I]:
        """As `Node.intercept`."""
        for kind in kinds:
            require_name(kind, "node.intercept", "call")

        def register(interceptor: I) -> I:
            return self.handlers.interceptors.add(interceptor, kinds, way)

        return register

    def propagate(self, *, notes: bool = False) -> None:
        """As `Node.propagate`."""
        propagate(self.handlers.interceptors, notes=notes)

    def on_call(
        self,
        topic: str,
        *,
        once: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[C], C]:
        """As `Node.on_call`."""
        require_name(topic, "node.on_call")
        if topic.startswith(PUBLISH):
            raise ParleyError(
                f"cannot register a handler for {topic!r}: names that begin with {PUBLISH!r} are "
                "reserved; use topic(writers=)"
            )
        if not isinstance(once, bool):
            raise ConfigError(f"invalid once {once!r}: expected True or False")
        if once:
            require_room_for_epoch(self.config.info)

        def register(handler: C) -> C:
            what = f"the handler of {topic!r}"
            require_callable(handler, what, "call", yields=True)
            held = checked(handler, what, Call)
            entry = self.handlers.calls.add(
                topic,
                handler,
                once=once,
                **options,
            )
            entry.handler = held
            return handler

        return register

    def on_stream(
        self,
        label: str,
        *,
        answers: Collection[tuple[int, int]] = (),
        **options: Unpack[HandlerOptions],
    ) -> Callable[[S], S]:
        """As `Node.on_stream`."""

        require_name(label, "node.on_stream")

        def register(handler: S) -> S:
            require_callable(handler, f"the handler of streams {label!r}", "stream")
            if label.startswith(LABEL) or label in RESERVED_LABELS:
                reserved = ", ".join(sorted(RESERVED_LABELS))
                raise ParleyError(
                    f"cannot register a handler for streams {label!r}: reserved are {reserved} and "
                    f"labels that begin with {LABEL!r}"
                )
            self.handlers.streams.add(
                label,
                handler,
                answers=answers,
                **options,
            )
            return handler

        return register

    def on(
        self, name: str, *, namespace: str = "", **options: Unpack[HandlerOptions]
    ) -> Callable[[E], E]:
        """As `Node.on`."""
        require_name(name, "node.on")
        check_name("a namespace", namespace)

        def register(handler: E) -> E:
            what = f"the handler of {name!r}"
            require_callable(handler, what, "event", yields=True)
            held = checked(handler, what, NamedEvent)
            entry = self.handlers.events_of(namespace).add(
                name,
                handler,
                **options,
            )
            entry.handler = held
            return handler

        return register

    def add_namespace(self, namespace: Namespace) -> None:
        """As `Node.add_namespace`."""
        found = list(namespace.handlers())
        registry, names = self.handlers.events_of(namespace.name), [one.name for one, _ in found]
        for name in names:
            if registry.has(name) or names.count(name) > 1:
                raise ParleyError(
                    f"cannot add namespace {namespace.name!r}: {registry.kind} {name!r} already "
                    "has a handler"
                )
        for declared, method in found:
            require_callable(method, f"the handler of {declared.name!r}", "event", yields=True)
            checked(method, f"the handler of {declared.name!r}", NamedEvent)
        for declared, method in found:
            self.on(
                declared.name,
                namespace=namespace.name,
                allow=declared.allow,
                supercategories=declared.supercategories,
                concurrency=declared.concurrency,
            )(method)

    def on_subscribe(
        self,
        topic: str,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
    ) -> Callable[[H], H]:
        """As `Node.on_subscribe`."""

        require_name(topic, "node.on_subscribe")

        def register(handler: H) -> H:
            require_callable(handler, f"the handler of subscriptions to {topic!r}", "request")
            self.handlers.subscribes.add(
                topic, handler, allow=allow, supercategories=supercategories
            )
            return handler

        return register

    def topic(
        self, name: str, note_type: Any = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]:
        """As `Node.topic`."""
        check_name("a topic", name)
        if name in self.topics:
            raise ParleyError(f"cannot create topic {name!r}: it already exists")
        if name.endswith(WILDCARD):
            raise ConfigError(
                f"cannot create topic {name!r}: its name must not be a pattern; use patterns with "
                "on_subscribe"
            )
        state, writers = options.get("state"), options.get("writers")
        if state is not None:
            require_callable(state, f"the state of topic {name!r}")
        if is_async(state):
            raise ConfigError(
                f"cannot use the state of topic {name!r}: async functions are not supported; "
                "use a plain function"
            )
        if writers is not None:
            require_room_for_epoch(self.config.info)
        kind = None if note_type is None else data_type(note_type)
        largest = self.config.limits.max_payload
        topic = Topic[Any](name, self.handlers, self.scope, largest, kind, **options)
        if writers is not None:
            add_writers(topic, kind, writers, self.handlers)
        self.topics[name] = topic
        return topic

    def offer_topics(self, *, allow: Allow | None = None) -> None:
        """As `Node.offer_topics`."""
        role, largest = self.config.role, self.config.limits.max_payload
        ration = PerAddressLimiter(OF_AN_ADDRESS).require
        catalogue = Introspection(self.handlers, self.topics, role, largest, ration)
        self.on_call(TOPICS_CALL, allow=allow, concurrency=AT_ONCE)(catalogue.answer)

    def bus(
        self, url: str, *, config: "BusConfig | None" = None, allow: "AllowBus | None" = None
    ) -> "Bus":
        """As `Node.bus`."""
        if self._buses is None:
            # Imported here because most nodes have no bus and start faster without it.
            from parley._node.bus.bus_registry import BusRegistry

            self._buses = BusRegistry(lambda: self.scope.backend, self.handlers)
            readings = self._buses.readings
            self.metrics.add(readings.families, readings.refresh)
        return self._buses.get(url, config, allow)
