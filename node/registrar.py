"""What a node offers its peers: handlers of calls, events and streams, topics, and a bus.

All of it is registered here, by name or pattern, with the rules for its use. Nothing runs here.
"""

from collections.abc import Callable, Collection
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from parley._node.config import NodeConfig, require_room_for_epoch
from parley._node.data_types import N, data_type
from parley._node.errors import ConfigError, ParleyError
from parley._node.handlers.interceptors import I, Kind, Way
from parley._node.handlers.introspection import AT_ONCE, OF_AN_ADDRESS, TOPICS_CALL, Introspection
from parley._node.handlers.metrics import handler_families
from parley._node.handlers.permissions import Allow, Roles
from parley._node.handlers.registry import WILDCARD, Handlers, Namespace
from parley._node.handlers.signatures import checked
from parley._node.handlers.topic import (
    BUFFER,
    PATIENCE,
    KeepLastBy,
    StateFunction,
    SubscribeHandler,
    Topic,
    add_writers,
)
from parley._node.handlers.trace_context import propagate
from parley._node.messaging.fanout import Slow
from parley._node.messaging.topics import LABEL, PUBLISH
from parley._node.metrics.metrics import Metrics
from parley._node.protocol.codes import RESERVED_LABELS, Supercategory
from parley._node.remote.requests import Call, CallHandler, EventHandler, NamedEvent
from parley._node.remote.stream import StreamHandler
from parley._node.transport.backend import Backend
from parley._node.transport.callables import check_name, require_callable, require_name
from parley._node.transport.conditions import is_async
from parley._node.trust.admission import Rations

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
    """What it offers is registered by name, before or while it runs.

    A name may end in `*`: `admin.*` stands for all names (of 1,024 characters at most)
    that begin with `admin.`, and its `allow=` holds for each of them, whatever else is
    registered. `allow` is node ids, roles given by `roles.assign`, or a function of peer
    and name, sync or async; without it every peer may. `supercategories` are the pairs of
    roles between which it may be used (section 2), by default all.
    """

    def __init__(self, config: NodeConfig, loop: Callable[[], Backend]) -> None:
        """`loop` gives the loop that the node runs in."""
        self.config = config
        self.handlers = Handlers()
        self.topics: dict[str, Topic[Any]] = {}
        self._loop = loop
        self._buses: BusRegistry | None = None
        self.metrics = Metrics()
        self.metrics.add(partial(handler_families, self.handlers, self.topics))

    @property
    def roles(self) -> Roles:
        """The roles that the application gave to node ids, for `allow=`."""
        return self.handlers.roles

    @property
    def buses(self) -> dict[str, "Bus"]:
        """The buses that were asked for so far, by their addresses."""
        return {} if self._buses is None else self._buses.by_url

    def intercept(self, *kinds: Kind, way: Way = "in") -> Callable[[I], I]:
        """Register an interceptor: `async def interceptor(one, proceed)`, which is given an
        `Intercepted` and returns `await proceed(one)`, or something else, or raises `CallRefused`.
        It runs around each request of these kinds, of peers (`in`) or of this node (`out`), inside
        of those that were registered before; `allow=` and `concurrency=` come after it.

        Kinds are `call`, `event`, `subscribe`, `note` (those that come, or are published) and
        `stream`. Those of streams that are opened are plain functions, since `open_stream` does
        not wait. An event is sent, or a stream opened, once all of them have proceeded.

        Raises:
            ConfigError: an unknown kind, or a function that does not fit it.
        """
        for kind in kinds:
            require_name(kind, "node.intercept", "call")

        def register(interceptor: I) -> I:
            return self.handlers.interceptors.add(interceptor, kinds, way)

        return register

    def propagate(self, *, notes: bool = False) -> None:
        """Have each request come with an id and the trace that it belongs to, and each call that
        is made because of it go out with these: the headers `request-id` and `traceparent` (W3C
        Trace Context). With `notes` those of topics too, which then travel one by one."""
        propagate(self.handlers.interceptors, notes=notes)

    def on_call(
        self,
        topic: str,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
        concurrency: int | None = None,
        once: bool = False,
    ) -> Callable[[C], C]:
        """Register the handler of calls: `async def handler(call)` returns the answer, or
        yields its items. `concurrency` bounds how many run at once; others wait, and the
        peers they are of take turns.

        Hints such as `(call: Call[Order]) -> Receipt` are held to: data that is
        not of that type is answered with code 23 before the handler runs.

        With `once` a peer may call it with a key: it is run once at most for each key of a node id,
        its answer (of at most 64 KiB) is remembered for 10 minutes, and the end of the connection
        does not stop it. Peers that connect from then on know that this node remembers.

        Raises:
            ParleyError: the topic has a handler, or begins with 'publish:'. ConfigError: an option
                is wrong, `once` with a handler that yields, or a hint that cannot be checked.
        """
        require_name(topic, "node.on_call")
        if topic.startswith(PUBLISH):
            raise ParleyError(f"reserved is what begins with {PUBLISH!r}: use topic(writers=)")
        if not isinstance(once, bool):
            raise ConfigError(f"once is {once!r}; it must be True or False")
        if once:
            require_room_for_epoch(self.config.info)

        def register(handler: C) -> C:
            what = f"the handler of {topic!r}"
            require_callable(handler, what, "call", yields=True)
            held = checked(handler, what, Call)
            entry = self.handlers.calls.add(
                topic,
                handler,
                allow=allow,
                supercategories=supercategories,
                concurrency=concurrency,
                once=once,
            )
            entry.handler = held
            return handler

        return register

    def on_stream(
        self,
        label: str,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
        concurrency: int | None = None,
        answers: Collection[tuple[int, int]] = (),
    ) -> Callable[[S], S]:
        """Register the handler of streams that peers open: `async def handler(stream)`. With
        `CallRefused` it refuses one (Reset 20 for code 20, 12 for code 19, 35 for others).

        `answers` are the types (category, subcategory) of events that answer requests.

        Raises:
            ParleyError: the label has a handler, or is reserved. ConfigError: an option
                is wrong.
        """

        require_name(label, "node.on_stream")

        def register(handler: S) -> S:
            require_callable(handler, f"the handler of streams {label!r}", "stream")
            if label.startswith(LABEL) or label in RESERVED_LABELS:
                reserved = ", ".join(sorted(RESERVED_LABELS))
                raise ParleyError(f"reserved are {reserved} and what begins with 'topic:'")
            self.handlers.streams.add(
                label,
                handler,
                allow=allow,
                supercategories=supercategories,
                concurrency=concurrency,
                answers=answers,
            )
            return handler

        return register

    def on(
        self,
        name: str,
        *,
        namespace: str = "",
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
        concurrency: int | None = None,
    ) -> Callable[[E], E]:
        """Register the handler of named events: `async def handler(event)`. What it emits on
        the event, or yields, are replies to it; what it returns is the last one.
        `concurrency` as in `on_call`, and so are hints such as `NamedEvent[Order]`.

        Raises:
            ParleyError: the event has a handler. ConfigError: an option is wrong.
        """
        require_name(name, "node.on")
        check_name("a namespace", namespace)

        def register(handler: E) -> E:
            what = f"the handler of {name!r}"
            require_callable(handler, what, "event", yields=True)
            held = checked(handler, what, NamedEvent)
            entry = self.handlers.events_of(namespace).add(
                name,
                handler,
                allow=allow,
                supercategories=supercategories,
                concurrency=concurrency,
            )
            entry.handler = held
            return handler

        return register

    def add_namespace(self, namespace: Namespace) -> None:
        """Register all handlers of a namespace, or none of them.

        Raises:
            ParleyError: one of its events has a handler. ConfigError: an option is wrong,
                or it has no name.
        """
        found = list(namespace.handlers())
        registry, names = self.handlers.events_of(namespace.name), [one.name for one, _ in found]
        for name in names:
            if registry.has(name) or names.count(name) > 1:
                raise ParleyError(f"{registry.kind} {name!r} has a handler already")
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
        """Register what decides on subscriptions: `async def handler(request)` returns data
        for the subscriber or raises `SubscribeRefused`. The topics are those of `topic`.

        Raises:
            ParleyError: there is one already. ConfigError: an option is wrong.
        """

        require_name(topic, "node.on_subscribe")

        def register(handler: H) -> H:
            require_callable(handler, f"the handler of subscriptions to {topic!r}", "request")
            self.handlers.subscribes.add(
                topic, handler, allow=allow, supercategories=supercategories
            )
            return handler

        return register

    @overload
    def topic(
        self,
        name: str,
        note_type: type[N] | None = None,
        *,
        allow: Allow | None = ...,
        writers: Allow | None = ...,
        supercategories: Collection[Supercategory] | None = ...,
        slow: Slow = ...,
        buffer: int = ...,
        patience: float = ...,
        keep: int | None = ...,
        keep_bytes: int | None = ...,
        keep_last_by: KeepLastBy | None = ...,
        state: StateFunction | None = ...,
    ) -> Topic[N]: ...

    @overload
    def topic(
        self,
        name: str,
        note_type: UnionType | type[Any],
        *,
        allow: Allow | None = ...,
        writers: Allow | None = ...,
        supercategories: Collection[Supercategory] | None = ...,
        slow: Slow = ...,
        buffer: int = ...,
        patience: float = ...,
        keep: int | None = ...,
        keep_bytes: int | None = ...,
        keep_last_by: KeepLastBy | None = ...,
        state: StateFunction | None = ...,
    ) -> Topic[Any]: ...

    def topic(
        self,
        name: str,
        note_type: Any = None,
        *,
        allow: Allow | None = None,
        writers: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
        slow: Slow = "unsubscribe",
        buffer: int = BUFFER,
        patience: float = PATIENCE,
        keep: int | None = None,
        keep_bytes: int | None = None,
        keep_last_by: KeepLastBy | None = None,
        state: StateFunction | None = None,
    ) -> Topic[Any]:
        """Publish a topic: peers may subscribe to it from now on. With `note_type`, a class such as
        a dataclass, its notes are of that type, and nothing else is published.

        `slow` says what a subscriber loses for which more than `buffer` bytes wait (at
        least 1,024; a note counts its encoding and 64): its subscription, or its oldest
        notes. At half of that `publish` waits for it, at most `patience` seconds.

        With `keep` (notes) or `keep_bytes` (at least 1,024; counted as above, and 16 MiB
        unless it is said) the topic remembers its last notes: whoever subscribes gets these
        first, or those `after` its position, and one that does not keep up goes on with what
        is remembered; what is not is counted (`Subscription.gaps`). `slow` holds for guests.

        With `keep_last_by`, a field's name or a function that returns the key of a note, the topic
        remembers the newest note of each key, and `keep` counts keys. Notes that later notes of
        their key replaced don't count as gaps. Beyond `keep` or `keep_bytes` the topic forgets the
        key whose note is the oldest. Each note also counts its key and 192 bytes.

        With `state`, a function, notes are changes of what it returns. A subscriber gets that with
        its acceptance (`Subscription.data`), in place of what `on_subscribe` returns and of what is
        remembered, and then each note from that moment on. One that goes on `after` a position gets
        None, and the notes that it missed, if these are all remembered. It must not wait.

        With `writers`, which takes what `allow` does, these peers publish its notes too
        (`Peer.publish`); nobody else may. Data that is not of its type is answered with code 23.
        It is a handler with `once`, as in `on_call`.

        Raises:
            ParleyError: the topic exists. ConfigError: an option is wrong.
        """
        check_name("a topic", name)
        if name in self.topics:
            raise ParleyError(f"topic {name!r} exists already")
        if name.endswith(WILDCARD):
            raise ConfigError(
                f"cannot make the topic {name!r}: a topic has one name; patterns are for "
                "on_subscribe"
            )
        if state is not None:
            require_callable(state, f"the state of topic {name!r}")
        if is_async(state):
            raise ConfigError(
                f"cannot use the state of topic {name!r}: it must be a plain function, not async"
            )
        if writers is not None:
            require_room_for_epoch(self.config.info)
        kind = None if note_type is None else data_type(note_type)
        topic = Topic[Any](
            name,
            self.handlers,
            self._loop,
            self.config.limits.max_payload,
            allow=allow,
            supercategories=supercategories,
            slow=slow,
            buffer=buffer,
            patience=patience,
            keep=keep,
            keep_bytes=keep_bytes,
            keep_last_by=keep_last_by,
            note_type=kind,
            state=state,
        )
        if writers is not None:
            add_writers(topic, kind, writers, self.handlers)
        self.topics[name] = topic
        return topic

    def offer_topics(self, *, allow: Allow | None = None) -> None:
        """Answer calls of `parley.topics`: a peer is told what this node offers to it, with types
        and docstrings. Nothing is told without this, nor of what `allow=` would not grant to the
        peer that asks. For a pattern a function of `allow=` is asked about its text, `admin.*`.
        One address is answered 64 times at once and once a second; beyond it code 19 is.

        Raises:
            ParleyError: it is offered already. ConfigError: `allow` is wrong.
        """
        role, largest = self.config.role, self.config.limits.max_payload
        ration = Rations(OF_AN_ADDRESS).require
        catalogue = Introspection(self.handlers, self.topics, role, largest, ration)
        self.on_call(TOPICS_CALL, allow=allow, concurrency=AT_ONCE)(catalogue.answer)

    def bus(
        self, url: str, *, config: "BusConfig | None" = None, allow: "AllowBus | None" = None
    ) -> "Bus":
        """The durable bus at `sqlite:///FILE` or `redis://HOST:PORT/DATABASE`; the same one for
        the same address. It is opened at its first use, its handlers run as long as the node.

        With `allow` peers may use it (`Peer.bus`). Node ids and roles may do everything. A mapping
        has node ids and roles, or a function of peer and name, for each of the actions `publish`,
        `consume`, `inspect` and `manage`. A function, sync or async, is called with a `BusRequest`.

        Raises:
            AddressError: not the address of a bus. ConfigError: a setting is wrong, or is not
                what it was for this address, or `allow` is none of these. ParleyError: a bus is
                offered already.
        """
        if self._buses is None:
            # Here: most nodes have none, and would start later for it.
            from parley._node.bus.bus_registry import BusRegistry

            self._buses = BusRegistry(self._loop, self.handlers)
            readings = self._buses.readings
            self.metrics.add(readings.families, readings.refresh)
        return self._buses.get(url, config, allow)
