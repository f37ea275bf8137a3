"""The handlers of a node, found by the name that a peer asks for.

A name finds its own handler, else that of the longest pattern (`admin.*`) it falls under; the
`allow=` of every pattern above a name holds for it as well, so that a more exact handler never
opens what a pattern closed. Nothing is run here.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypedDict, TypeVar

import anyio

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
# Characters that a name may have to fall under a pattern: each open stream keeps its
# label, whose length nothing else bounds, and refusals put names into the log.
LONGEST_NAME = 1_024
# What `on_event` leaves at a method.
_MARK: Final = "__parley_event__"


class HandlerOptions(TypedDict, total=False):
    """Options of a handler.

    Attributes:
        allow: the peers that may use it: node ids, roles, or a function of peer and name, sync or
            async; by default all.
        supercategories: the pairs of roles between which it may be used (section 2); by default
            all.
        concurrency: how many run at once; further requests wait, and their peers take turns. By
            default unlimited.
    """

    allow: Allow | None
    supercategories: Collection[Supercategory] | None
    concurrency: int | None


class ConcurrencyLimit:
    """At most `limit` handlers run at a time; others wait in line, one for each peer, and
    the peers take turns.

    The lines are bounded by what peers may have unanswered.
    """

    __slots__ = ("_free", "_lines")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lines: dict[object, dict[Waiter, None]] = {}  # the next one's turn first

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    async def acquire(self, who: object, new_waiter: Callable[[], Waiter]) -> None:
        """Wait for a slot in the line of `who`; whoever is cancelled has none."""
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
                self.release()  # it was given to us at the last moment
            raise

    def release(self) -> None:
        """Give a slot back: to the first in the line whose turn it is, if there is one."""
        who = next(iter(self._lines), None)
        if who is None:
            self._free += 1
            return
        line = self._lines.pop(who)
        first = next(iter(line))
        del line[first]
        if line:
            self._lines[who] = line  # behind the others
        first.wake()


@dataclass(slots=True, eq=False)
class Entry(Generic[H]):
    """A handler and what was declared with it. `rules` are all that hold for its names; with `once`
    it can be run once for each key of a node id; `chain` has what runs around it."""

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
        """Whether what travels between these roles may come here; None: unknown roles."""
        return self.supercategories is None or supercategory in self.supercategories


class Registry(Generic[H]):
    """The handlers of one kind; `kind` is for messages. `remembers` says whether there is one
    with `once`. No pattern stands for a name that begins as one of `reserved`. What runs around
    each of them is in `chain`."""

    __slots__ = ("_exact", "_patterns", "_reserved", "chain", "kind", "remembers")

    def __init__(
        self, kind: str, reserved: tuple[str, ...] = (), chain: Chain | None = None
    ) -> None:
        self.kind = kind
        self.chain = chain
        self.remembers = False
        self._reserved = reserved
        self._exact: dict[str, Entry[H]] = {}
        self._patterns: list[tuple[str, Entry[H]]] = []  # the longest first

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
        """Register a handler under a name, or a pattern that ends in `*`; returns its entry.

        Raises:
            ParleyError: there is one of this name.
            ConfigError: an option is wrong.
        """
        check_name("a handler", name)
        if self.has(name):
            raise ParleyError(f"{self.kind} {name!r} has a handler already")
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise ConfigError(
                f"concurrency is {concurrency!r}; it must be a whole number, 1 or more"
            )
        if once and inspect.isasyncgenfunction(handler):
            raise ConfigError(f"{self.kind} {name!r}: an answer in items is not remembered")
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
        """The handler that serves `name`; patterns are for 1,024 characters at most."""
        entry = self._exact.get(name)
        if entry is not None or len(name) > LONGEST_NAME or name.startswith(self._reserved):
            return entry
        for prefix, pattern in self._patterns:
            if name.startswith(prefix):
                return pattern
        return None

    def entries(self) -> Iterator[Entry[H]]:
        """All that are registered."""
        yield from self._exact.values()
        for _, entry in self._patterns:
            yield entry

    def has(self, name: str) -> bool:
        """Whether this very name, or pattern, has a handler."""
        return name in self._exact or any(entry.name == name for _, entry in self._patterns)

    def _rules(self, entry: Entry[H]) -> tuple[Rule, ...]:
        """Its own rule, and those of the patterns that hold for every name it serves."""
        name = entry.name.removesuffix(WILDCARD)
        above = [
            pattern.own_rule
            for prefix, pattern in self._patterns
            if pattern is not entry and name.startswith(prefix)
        ]
        return tuple(rule for rule in (entry.own_rule, *above) if rule is not None)


@dataclass(slots=True, eq=False)
class Handlers:
    """All that peers may ask a node for, and the roles that its `allow=` speak of. `reserved` are
    the handlers of streams with reserved labels, which no pattern of `streams` stands for. Peers
    that came through a tunnel may ask for what one of the `exports` names, and for nothing else
    (section 19). With `accounts`, whose sessions are connections, it is a home (section 20).
    `find_elsewhere` gives the topics that are other nodes', by name and who asks, or the code that
    refuses it; None for a topic of nobody."""

    interceptors: Interceptors = field(default_factory=Interceptors)
    calls: Registry[Any] = field(default_factory=lambda: Registry("topic", (PUBLISH,)))
    streams: Registry[Any] = field(default_factory=lambda: Registry("label"))
    subscribes: Registry[Any] = field(default_factory=lambda: Registry("subscriptions to"))
    events: dict[str, Registry[Any]] = field(default_factory=dict)  # by namespace, "" for none
    roles: Roles = field(default_factory=Roles)
    reserved: dict[str, Entry[Any]] = field(default_factory=dict)
    exports: set[Exports] = field(default_factory=set)
    accounts: Accounts[Any] | None = None
    find_elsewhere: Callable[[str, Any], Any] | None = None  # its Topic is made with handlers
    # Held while one slice of a large answer is encoded.
    encoding: anyio.Lock = field(default_factory=anyio.Lock)
    # For the log, of what peers cause apart from failures of one handler.
    unsent: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    refused: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    logins: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    violations: RateLimitedLogger = field(default_factory=RateLimitedLogger)
    ended: RateLimitedLogger = field(default_factory=RateLimitedLogger)

    def __post_init__(self) -> None:
        self.calls.chain = self.interceptors.call_in
        self.streams.chain = self.interceptors.stream_in

    def find_stream(self, label: str) -> Entry[Any] | None:
        """The handler of streams of this label."""
        return self.reserved.get(label) if label in RESERVED_LABELS else self.streams.find(label)

    def exported(self, name: str) -> bool:
        """Whether peers that came through a tunnel may ask for this name."""
        return any(one.names(name) for one in self.exports)

    def find_event(self, namespace: str, name: str) -> Entry[Any] | None:
        """The handler of a named event: that of its namespace alone, if it has one."""
        registry = self.events.get(namespace)
        return None if registry is None else registry.find(name)

    def events_of(self, namespace: str) -> Registry[Any]:
        """The handlers of a namespace, of which these may be the first."""
        kind = f"event of {namespace!r}" if namespace else "event"
        chain = self.interceptors.event_in
        return self.events.setdefault(namespace, Registry(kind, chain=chain))


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared of one method; the options are those of `Registrar.on`."""

    name: str
    allow: Allow | None
    supercategories: Collection[Supercategory] | None
    concurrency: int | None


class Namespace:
    """Handlers of named events under one `name`: methods that `on_event` marks. It only says
    what there is; `Node.add_namespace` registers it."""

    name: ClassVar[str] = ""

    def handlers(self) -> Iterator[tuple[Declared, Callable[..., Any]]]:
        """What was declared, with the bound method; a subclass's goes before its base's.

        Raises:
            ConfigError: it has no name, or one that cannot be encoded.
        """
        if not self.name:
            raise ConfigError(f"{type(self).__name__} has no name: it is the namespace")
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
    """Mark a method of a Namespace as the handler of its events of this name; the options
    are those of `Node.on`."""

    require_name(name, "on_event")

    def mark(method: Method) -> Method:
        setattr(method, _MARK, Declared(name, allow, supercategories, concurrency))
        return method

    return mark


def parse_supercategories(
    given: Collection[Supercategory] | None,
) -> frozenset[Supercategory] | None:
    """The supercategories that a handler takes; None for all of them.

    Raises:
        ConfigError: it is empty, or has something other than supercategories.
    """
    if given is None:
        return None
    members: Any = given
    if not isinstance(members, Collection) or not all(
        isinstance(one, Supercategory) for one in members or [None]
    ):
        raise ConfigError(
            f"supercategories is {given!r}; it must be a collection of one or more Supercategory"
        )
    return frozenset(given)
