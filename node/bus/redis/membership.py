"""What this process knows of one group of one stream: how far it is, and what it has in hand.

One rule: it is a note, not the truth, which Redis has: without it nothing is lost, and what it
says too much is forgotten after `MOST_HELD`. Sends nothing.
"""

from collections.abc import Iterable
from typing import Final

from node.bus.ids import BEFORE_ALL
from node.bus.redis.books import Books, books_of
from node.errors import ConfigError

# Events in hand that are remembered for a group; then the oldest are forgotten. Only what was
# taken away from us, and never settled, can be so many.
MOST_HELD: Final = 100_000
# Groups that are remembered, and consumers of each: a peer may call them anything.
MOST_GROUPS: Final = 10_000
MOST_PLACES: Final = 10_000


class Membership:
    """A group, and those of its consumers that live here.

    Attributes:
        name: of the events that are read; in a stream of an API it passes over all others.
        held: what was handed out here and is not settled, with each one's attempt.
        places: of each consumer, the id after which it goes on, should the group vanish.
    """

    __slots__ = ("books", "group", "held", "name", "places")

    def __init__(self, name: str, key: str, group: str) -> None:
        self.name = name
        self.group = group
        self.books: Books = books_of(key, group)
        self.held: dict[str, int] = {}
        self.places: dict[str, str] = {}

    @property
    def key(self) -> str:
        """Of the stream."""
        return self.books.stream

    def place(self, consumer: str) -> str:
        """After which id it goes on."""
        return self.places.get(consumer, BEFORE_ALL)

    def came_to(self, consumer: str, id: str) -> None:
        """The consumer goes on after an id."""
        self.places.pop(consumer, None)
        self.places[consumer] = id
        if len(self.places) > MOST_PLACES:
            del self.places[next(iter(self.places))]

    def handed(self, id: str, attempt: int) -> None:
        """An event is handed out."""
        self.held.pop(id, None)  # the newest stand last
        self.held[id] = attempt
        if len(self.held) > MOST_HELD:
            del self.held[next(iter(self.held))]

    def settled(self, ids: Iterable[str]) -> None:
        """They are in nobody's hands here."""
        for id in ids:
            self.held.pop(id, None)


class Memberships:
    """Those of one store."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Membership] = {}

    def of(self, name: str, key: str, group: str) -> Membership:
        """That of a group, made at need."""
        found = self._all.pop((key, group), None) or Membership(name, key, group)
        self._all[key, group] = found  # who was asked for last stands last
        if len(self._all) > MOST_GROUPS:
            del self._all[next(iter(self._all))]
        return found

    def joined(self, name: str, key: str, group: str) -> Membership:
        """That of a group which is about to read events of this name.

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
