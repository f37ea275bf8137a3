"""The handlers of a node, by name.

A name uses its own handler, otherwise that of the longest matching pattern (`admin.*`). The
`allow=` of every matching pattern also applies, so a more specific handler never permits what a
pattern forbids. This module runs no handlers.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypedDict, TypeVar

import anyio

from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, ParleyError
from parley._node.federation.accounts import Accounts
from parley._node.federation.exports import Exports
from parley._node.handlers.interceptors import Chain, Interceptors
from parley._node.handlers.permissions import Allow, Roles, Rule
from parley._node.logs import RateLimitedLogger
from parley._node.messaging.application_events import parse_types
from parley._node.messaging.topics import PUBLISH
from parley._node.metrics.metrics import RequestTally
from parley._node.protocol.codes import RESERVED_LABELS, Supercategory
from parley._node.transport.callables import check_name, require_name
from parley._node.transport.loop import Waiter

H = TypeVar("H")
Method = TypeVar("Method", bound=Callable[..., Any])

WILDCARD = "*"
# The longest name that can match a pattern. Open streams store their labels, which have no other
# limit, and refused names are logged.
LONGEST_NAME = 1_024
# The attribute that `on_event` sets on a method.
_MARK: Final = "__parley_event__"


class HandlerOptions(TypedDict, total=False):
    """Options of a handler.

    Attributes: allow: the peers that may use it: node IDs, roles, or a function of peer and name,
    sync or async; by default all. supercategories: the pairs of roles between which it may be used
    (section 2); by default all. concurrency: how many may run at the same time; further requests
    wait, and peers take turns. By default unlimited.
    """

    allow: Allow | None
    supercategories: Collection[Supercategory] | None
    concurrency: int | None


class ConcurrencyLimit:
    """Limits how many handlers run at the same time.

    Other requests wait in one queue per peer, and the peers take turns. The limits on unanswered
    requests bound the queues.
    """

    __slots__ = ("_free", "_lines")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lines: dict[object, dict[Waiter, None]] = {}  # The next peer first.

    @property
    def waiting(self) -> int:
        """How many requests are waiting."""
        return sum(map(len, self._lines.values()))

    async def acquire(self, who: object, new_waiter: Callable[[], Waiter]) -> None:
        """Wait for a slot in the queue of `who`; a cancelled caller does not get one."""
        if self._free:
            self._free -= 1
            return
        waiter = new_waiter()
        self._lines.setdefault(who, {})[waiter] = None
        try:
            await waiter
        except BaseException:
            line = self._lines.get(who, {})
            if waiter in line:
                del line[waiter]
                if not line:
                    del self._lines[who]
            else:
                self.release()  # It got a slot just before it was cancelled.
            raise

    def release(self) -> None:
        """Return a slot, or pass it to the next waiting request."""
        who = next(iter(self._lines), None)
        if who is None:
            self._free += 1
            return
        line = self._lines.pop(who)
        first = next(iter(line))
        del line[first]
        if line:
            self._lines[who] = line  # The peer's next turn is after the other peers.
        first.wake()


@dataclass(slots=True, eq=False)
class Entry(Generic[H]):
    """A handler and its options.

    `rules` contains all rules that apply to its names. With `once`, it can run once for each key of
    a node ID. `chain` contains its interceptors.
    """

    name: str
    handler: H
    own_rule: Rule | None = None
    supercategories: frozenset[Supercategory] | None = None
    slots: ConcurrencyLimit | None = None
    answers: frozenset[tuple[int, int]] = frozenset()
    once: bool = False
    rules: tuple[Rule, ...] = ()
    chain: Chain | None = None
    failures: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    tally: RequestTally = field(default_factory=RequestTally)

    def takes(self, supercategory: Supercategory | None) -> bool:
        """Whether peers of these roles may use it; None means unknown roles."""
        return self.supercategories is None or supercategory in self.supercategories


class Registry(Generic[H]):
    """The handlers of one kind; `kind` appears in messages.

    `remembers` is whether a handler has `once`. Patterns don't match names that begin with a string
    in `reserved`. `chain` contains the interceptors of the handlers.
    """

    __slots__ = ("_exact", "_patterns", "_reserved", "chain", "kind", "remembers")

    def __init__(
        self, kind: str, reserved: tuple[str, ...] = (), chain: Chain | None = None
    ) -> None:
        self.kind = kind
        self.chain = chain
        self.remembers = False
        self._reserved = reserved
        self._exact: dict[str, Entry[H]] = {}
        self._patterns: list[tuple[str, Entry[H]]] = []  # The longest first.

    def add(
        self,
        name: str,
        handler: H,
        *,
        allow: Allow | None = None,
        supercategories: Collection[Supercategory] | None = None,
        concurrency: int | None = None,
        answers: Collection[tuple[int, int]] = (),
        once: bool = False,
    ) -> Entry[H]:
        """Register a handler under a name, or a pattern that ends in `*`, and return its entry.

        Raises:
            ParleyError: the name has a handler already.
            ConfigError: an option is invalid.
        """
        check_name("a handler", name)
        if self.has(name):
            raise ParleyError(
                f"cannot register a handler for {self.kind} {name!r}: it has one already"
            )
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise ConfigError(
                f"invalid concurrency {concurrency!r}: expected a whole number, 1 or more"
            )
        if once and inspect.isasyncgenfunction(handler):
            raise ConfigError(
                f"cannot use once= for {self.kind} {name!r}: its handler answers in items"
            )
        entry = Entry(
            name,
            handler,
            None if allow is None else Rule(allow),
            parse_supercategories(supercategories),
            None if concurrency is None else ConcurrencyLimit(concurrency),
            parse_types(answers),
            once,
            chain=self.chain,
        )
        self.remembers = self.remembers or once
        if name.endswith(WILDCARD):
            self._patterns.append((name.removesuffix(WILDCARD), entry))
            self._patterns.sort(key=lambda pattern: len(pattern[0]), reverse=True)
        else:
            self._exact[name] = entry
        for known in self.entries():
            known.rules = self._rules(known)
        return entry

    def find(self, name: str) -> Entry[H] | None:
        """Return the handler of `name`; patterns match at most 1,024 characters."""
        entry = self._exact.get(name)
        if entry is not None or len(name) > LONGEST_NAME or name.startswith(self._reserved):
            return entry
        for prefix, pattern in self._patterns:
            if name.startswith(prefix):
                return pattern
        return None

    def entries(self) -> Iterator[Entry[H]]:
        """Return all entries."""
        yield from self._exact.values()
        for _, entry in self._patterns:
            yield entry

    def has(self, name: str) -> bool:
        """Whether exactly this name or pattern has a handler."""
        return name in self._exact or any(entry.name == name for _, entry in self._patterns)

    def names(self, node_id: NodeId) -> bool:
        """Return whether the rule of a handler contains a node ID."""
        # Copied, because this may run in a thread. A peer can cause this for many IDs, so that
        # generators would cost too much.
        for entry in (*self._exact.values(), *[entry for _, entry in [*self._patterns]]):
            if entry.own_rule is not None and entry.own_rule.names(node_id):
                return True
        return False

    def _rules(self, entry: Entry[H]) -> tuple[Rule, ...]:
        """Return the entry's own rule and those of all patterns that match every name it
        handles.
        """
        name = entry.name.removesuffix(WILDCARD)
        above = [
            pattern.own_rule
            for prefix, pattern in self._patterns
            if pattern is not entry and name.startswith(prefix)
        ]
        return tuple(rule for rule in (entry.own_rule, *above) if rule is not None)


@dataclass(slots=True, eq=False)
class Handlers:
    """All handlers of a node, and the roles that their `allow=` options use.

    `reserved` contains the handlers of streams with reserved labels, which patterns don't match.
    Peers connected through a tunnel can only use names in `exports` (section 19). If `accounts` is
    set, the node is a home server (section 20). `find_elsewhere` takes a name and a peer; it
    returns a topic of another node, a code that refuses the peer, or None if there is no such
    topic. `named_ids` contains functions that tell whether other rules contain a node ID.
    """

    interceptors: Interceptors = field(default_factory=Interceptors)
    calls: Registry[Any] = field(default_factory=lambda: Registry("topic", (PUBLISH,)))
    streams: Registry[Any] = field(default_factory=lambda: Registry("label"))
    subscribes: Registry[Any] = field(default_factory=lambda: Registry("subscriptions to"))
    # By namespace; "" for events without one.
    events: dict[str, Registry[Any]] = field(default_factory=dict)
    roles: Roles = field(default_factory=Roles)
    reserved: dict[str, Entry[Any]] = field(default_factory=dict)
    exports: set[Exports] = field(default_factory=set)
    accounts: Accounts[Any] | None = None
    # Untyped, because Topic is defined in terms of Handlers.
    find_elsewhere: Callable[[str, Any], Any] | None = None
    named_ids: list[Callable[[NodeId], bool]] = field(default_factory=list)
    # Held while one slice of a large answer is encoded.
    encoding: anyio.Lock = field(default_factory=anyio.Lock)
    # Rate-limited loggers for what peers cause, apart from failures of one handler.
    unsent: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    refused: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    logins: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    violations: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    ended: RateLimitedLogger = field(default_factory=RateLimitedLogger)

    def __post_init__(self) -> None:
        self.calls.chain = self.interceptors.call_in
        self.streams.chain = self.interceptors.stream_in

    def find_stream(self, label: str) -> Entry[Any] | None:
        """Return the handler of streams with this label."""
        return self.reserved.get(label) if label in RESERVED_LABELS else self.streams.find(label)

    def exported(self, name: str) -> bool:
        """Whether peers connected through a tunnel may use this name."""
        return any(one.names(name) for one in self.exports)

    def find_event(self, namespace: str, name: str) -> Entry[Any] | None:
        """Return the handler of a named event in its namespace."""
        registry = self.events.get(namespace)
        return None if registry is None else registry.find(name)

    def names(self, node_id: NodeId) -> bool:
        """Return whether roles or the rules of handlers contain a node ID."""
        registries = (self.calls, self.streams, self.subscribes, *self.events.values())
        for named in (self.roles.names, *self.named_ids, *[one.names for one in registries]):
            if named(node_id):
                return True
        return False

    def events_of(self, namespace: str) -> Registry[Any]:
        """Return the registry of a namespace, creating it if necessary."""
        kind = f"event of {namespace!r}" if namespace else "event"
        chain = self.interceptors.event_in
        return self.events.setdefault(namespace, Registry(kind, chain=chain))


@dataclass(frozen=True, slots=True)
class Declared:
    """The options given to `on_event` for one method; see `Registrar.on`."""

    name: str
    allow: Allow | None
    supercategories: Collection[Supercategory] | None
    concurrency: int | None


class Namespace:
    """Handlers of named events in the namespace `name`, as methods marked with `on_event`.

    Register an instance with `Node.add_namespace`.

    Example:

        from parley import Namespace, on_event

        class Shop(Namespace):
            name = "shop"

            @on_event("order")
            async def order(self, event):
                return "accepted"

        node.add_namespace(Shop())
    """

    name: ClassVar[str] = ""

    def handlers(self) -> Iterator[tuple[Declared, Callable[..., Any]]]:
        """Yield the options and the bound method of each handler; a subclass overrides its base
        class.

        Raises:
            ConfigError: the namespace has no name, or its name cannot be encoded.
        """
        if not self.name:
            raise ConfigError(
                f"cannot use {type(self).__name__} as a namespace: it has no name; set name="
            )
        check_name("a namespace", self.name)
        for attribute in dir(type(self)):
            declared = getattr(getattr(type(self), attribute), _MARK, None)
            if isinstance(declared, Declared):
                yield declared, getattr(self, attribute)


def on_event(
    name: str,
    *,
    allow: Allow | None = None,
    supercategories: Collection[Supercategory] | None = None,
    concurrency: int | None = None,
) -> Callable[[Method], Method]:
    """Mark a method of a Namespace as the handler of an event; the options are those of
    `Node.on`.
    """

    require_name(name, "on_event")

    def mark(method: Method) -> Method:
        setattr(method, _MARK, Declared(name, allow, supercategories, concurrency))
        return method

    return mark


def parse_supercategories(
    given: Collection[Supercategory] | None,
) -> frozenset[Supercategory] | None:
    """Return the supercategories that a handler accepts; None for all.

    Raises:
        ConfigError: the collection is empty, or contains something other than supercategories.
    """
    if given is None:
        return None
    members: Any = given
    if not isinstance(members, Collection) or not all(
        isinstance(one, Supercategory) for one in members or [None]
    ):
        raise ConfigError(
            f"invalid supercategories {given!r}: expected a collection of one or more Supercategory"
        )
    return frozenset(given)
