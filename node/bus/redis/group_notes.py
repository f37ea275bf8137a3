"""What one store remembers of streams and groups in Redis: their keys, how far each consumer is,
which events are in hand, how large entries are.

These are notes; the truth is in Redis: without them nothing is lost, and they are bounded. Beside
the streams, the keys are `parley:bus:...`: a Lightbus next to us never sees them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import anyio

from parley._node.bus.ids import BEFORE_ALL
from parley._node.errors import ConfigError

# Events in hand that are remembered for a group; beyond that the oldest are forgotten. Only events
# that others took over, and that were never settled here, can be so many.
MOST_HELD: Final = 100_000
# Groups that are remembered, and consumers of each: a peer may call them anything.
MOST_GROUPS: Final = 10_000
MOST_PLACES: Final = 10_000

# Bytes of entries that one answer is to have, about.
HANDFUL: Final = 2**20
# Entries of one answer, however small the last ones were: the next ones may be large.
MOST: Final = 256
# Bytes of an entry of a stream that was not read yet.
FIRST: Final = 16 * 2**10
# Streams whose longest entry is remembered; beyond that the oldest are forgotten.
REMEMBERED: Final = 1_000

PREFIX: Final = "parley:bus"


class GroupKeys(NamedTuple):
    """The keys that the scripts for a group take, in their order.

    Attributes:
        stream: the stream itself.
        due: a sorted set, of ids by when they are due (ms).
        past: a hash, of ids to what became of their attempts (JSON).
        counts: a hash: redelivered, dead_lettered.
    """

    stream: str
    due: str
    past: str
    counts: str

    @property
    def own(self) -> tuple[str, str, str]:
        """All but the stream: the keys that only Parley uses."""
        return self.due, self.past, self.counts


def keys_of(key: str, group: str) -> GroupKeys:
    """The keys of one group of the stream with this key."""
    return GroupKeys(
        key,
        f"{PREFIX}:due:{key}:{group}",
        f"{PREFIX}:past:{key}:{group}",
        f"{PREFIX}:counts:{key}:{group}",
    )


def idempotency_key(name: str, key: str) -> str:
    """The key that exists as long as an idempotency key is remembered."""
    return f"{PREFIX}:key:{name}:{key}"


class Membership:
    """A group, and those of its consumers that live here.

    Attributes:
        name: of the events that are read; in a stream of an API all others are passed over.
        held: events handed out here and not settled, with the attempt of each.
        places: for each consumer the id after which it goes on, should the group vanish.
        drained: consumers for which an earlier process of their name left no event pending.
        lost: consumers with a cancelled read of which the answer was lost.
        is_due: whether events became due since a consumer here asked for these.
        scopes: of the reads that wait for new events.
    """

    __slots__ = (
        *("drained", "group", "held", "is_due", "keys", "lost", "name", "places", "scopes"),
    )

    def __init__(self, name: str, key: str, group: str) -> None:
        self.name = name
        self.group = group
        self.keys: GroupKeys = keys_of(key, group)
        self.held: dict[str, int] = {}
        self.places: dict[str, str] = {}
        self.drained: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.is_due = False
        self.scopes: set[anyio.CancelScope] = set()

    @property
    def key(self) -> str:
        """Of the stream."""
        return self.keys.stream

    def place(self, consumer: str) -> str:
        """The id after which it goes on."""
        return self.places.get(consumer, BEFORE_ALL)

    def came_to(self, consumer: str, id: str) -> None:
        """The consumer goes on after an id."""
        self.places.pop(consumer, None)
        self.places[consumer] = id
        if len(self.places) > MOST_PLACES:
            del self.places[next(iter(self.places))]

    @contextmanager
    def waiting(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Have `scope` cancelled when events become due."""
        self.scopes.add(scope)
        try:
            yield
        finally:
            self.scopes.discard(scope)

    def has_drained(self, consumer: str) -> None:
        """Remember that an earlier process left this consumer nothing."""
        _remember(self.drained, consumer)

    def lost_answer(self, consumer: str) -> None:
        """Remember that the answer to a cancelled read was lost: events may be pending."""
        _remember(self.lost, consumer)

    def handed(self, id: str, attempt: int) -> None:
        """An event is handed out."""
        self.held.pop(id, None)  # the newest stand last
        self.held[id] = attempt
        if len(self.held) > MOST_HELD:
            del self.held[next(iter(self.held))]

    def settled(self, ids: Iterable[str]) -> None:
        """No consumer here holds them any more."""
        for id in ids:
            self.held.pop(id, None)


def _remember(consumers: dict[str, None], consumer: str) -> None:
    """Add a consumer to a bounded set."""
    consumers.pop(consumer, None)
    consumers[consumer] = None
    if len(consumers) > MOST_PLACES:
        del consumers[next(iter(consumers))]


class Memberships:
    """The groups of one store."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Membership] = {}

    def of(self, name: str, key: str, group: str) -> Membership:
        """The membership of a group, made if need be."""
        found = self._all.pop((key, group), None) or Membership(name, key, group)
        self._all[key, group] = found  # the last one used stands last
        if len(self._all) > MOST_GROUPS:
            del self._all[next(iter(self._all))]
        return found

    def known(self, key: str, group: str) -> Membership | None:
        """The membership of a group, if it is remembered."""
        return self._all.get((key, group))

    def joined(self, name: str, key: str, group: str) -> Membership:
        """The membership of a group that is about to read events of this name.

        Raises:
            ConfigError: it reads others here, in the same stream of an API: each would take, and
                acknowledge, the other's.
        """
        found = self.of(name, key, group)
        if found.places and found.name != name:
            raise ConfigError(
                f"group {group} reads {found.name} here, of the same stream {key}: "
                f"take another group for {name}"
            )
        found.name = name
        return found


class EntrySizes:
    """How many entries to ask for at a time, so that an answer is bounded: the entries of a stream
    that came last tell how large the next ones may be; unknown ones are taken to be large."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest: dict[str, int] = {}

    def count(self, key: str, wanted: int) -> int:
        """How many entries to ask for if `wanted` would be welcome."""
        return max(1, min(wanted, MOST, HANDFUL // self._longest.get(key, FIRST)))

    def saw(self, key: str, entries: Iterable[Sequence[bytes]]) -> None:
        """Entries came, with these fields."""
        longest = max((sum(map(len, fields)) for fields in entries), default=0)
        if not longest:
            return
        # Small ones after a large one: twice as many each time.
        before = self._longest.pop(key, longest)
        self._longest[key] = max(longest, before // 2)
        if len(self._longest) > REMEMBERED:
            del self._longest[next(iter(self._longest))]
