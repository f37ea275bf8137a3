"""Path finding: the shortest usable paths from one server to all others (section 19).

An edge exists if the cards of both its ends list it. A server can be an intermediate hop only if it
relays tunnels from its predecessor. So a server may be reachable by one path, and be an
intermediate hop only on another; the breadth-first search tracks both separately. Each level is
sorted, so the first path found has the lowest IDs.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from parley._crypto.identity import NodeId
from parley._node.federation.cards import Card, Cards
from parley._node.federation.limits import AVOIDED, MOST_AVOIDED
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.event_types import LONGEST_PATH

# The IDs from the origin to the target, including both.
Path: TypeAlias = tuple[NodeId, ...]
# A server, or an edge in the direction of the path.
Obstacle: TypeAlias = NodeId | tuple[NodeId, NodeId]
# The dialling account, or None for the server itself, and the target: [server] or [home, node].
Route: TypeAlias = tuple[NodeId | None, Path]

K = TypeVar("K", bound=Hashable)


def shortest_paths(
    origin: NodeId,
    neighbours: Collection[NodeId],
    cards: Mapping[NodeId, Card],
    avoided: Collection[Obstacle] = (),
) -> dict[NodeId, Path]:
    """Return the shortest path, of at most 8 IDs, to each server that `origin` can reach.

    `neighbours` are the servers with an open link to `origin`.
    """
    found: dict[NodeId, Path] = {origin: (origin,)}
    between = {origin}  # servers already used as intermediate hops
    level: list[Path] = [(origin,)]
    for _ in range(LONGEST_PATH - 1):
        further: list[Path] = []
        for path in level:
            server = path[-1]
            for other in sorted(neighbours) if server == origin else cards[server].links:
                card = cards.get(other)
                if other in between or card is None or server not in card.links:
                    continue
                if avoided and (server, other) in avoided:
                    continue
                longer = (*path, other)
                found.setdefault(other, longer)
                # An avoided server can still be a target.
                if card.links[server] and other not in avoided:
                    between.add(other)
                    further.append(longer)
        level = further
    del found[origin]
    return found


class Avoided(Generic[K]):
    """The obstacles of failed Dials, each avoided for 10 s. `version` changes with the content."""

    __slots__ = ("_until", "version")

    def __init__(self) -> None:
        self.version = 0
        self._until: dict[K, float] = {}  # in ascending order

    def add(self, obstacle: K, now: float) -> None:
        """Avoid an obstacle for 10 s; beyond 1,024 obstacles the oldest is dropped."""
        self._until.pop(obstacle, None)
        self._until[obstacle] = now + AVOIDED
        if len(self._until) > MOST_AVOIDED:
            del self._until[next(iter(self._until))]
        self.version += 1

    def at(self, now: float) -> Collection[K]:
        """Return the obstacles that are avoided now."""
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                break
            del self._until[oldest]
            self.version += 1
        return self._until.keys()


def obstacles(path: Path, code: int, hop: int | None) -> list[Obstacle]:
    """Return the obstacles to avoid after the server at index `hop` refused a Dial with `code`.

    Code 0 means that the handshake through the tunnel failed, so all intermediate servers are
    suspect. A missing or impossible index refers to the first step.
    """
    last = len(path) - 1
    if code == ResultCode.UNREACHABLE:
        at = hop if hop is not None and 0 <= hop < last else 0
        return [(path[at], path[at + 1]), (path[at + 1], path[at])]
    if code == ResultCode.ACCEPTED:
        return [*path[1:-1]]
    at = hop if hop is not None and 1 <= hop <= last else 1
    if code == ResultCode.NOT_AUTHORISED:
        return [(path[at - 1], path[at])]
    if code in (ResultCode.DEADLINE_EXCEEDED, ResultCode.OVERLOADED):
        return [path[at]]
    return []


class PathFinder:
    """The paths from the server `origin`, computed on demand and cached.

    `neighbours` are the servers with an open link; call `forget` when they change. All Dials avoid
    the obstacles in `avoided`. Only Dials from the same account to the same target avoid those in
    `avoided_by_route`, because these two can cause them.
    """

    __slots__ = (
        "_around",
        "_avoided_version",
        "_cards",
        "_cards_version",
        "_found",
        "_neighbours",
        "_origin",
        "avoided",
        "avoided_by_route",
    )

    def __init__(self, origin: NodeId, cards: Cards, neighbours: Collection[NodeId]) -> None:
        self.avoided: Avoided[Obstacle] = Avoided()
        self.avoided_by_route: Avoided[tuple[Route, Obstacle]] = Avoided()
        self._origin = origin
        self._cards = cards
        self._neighbours = neighbours
        self._cards_version = -1
        self._avoided_version = -1
        self._found: Mapping[NodeId, Path] = {}  # paths to all servers
        self._around: Mapping[NodeId, Path] = {}  # paths that avoid obstacles

    def forget(self) -> None:
        """Clear the cached paths, because the neighbours have changed."""
        self._cards_version = -1

    def path(self, to: Sequence[NodeId]) -> Path | None:
        """Return the best path to another server or [home, node]; None if the cards contain
        none.
        """
        self._refresh()
        return _extended(self._found, self._origin, to)

    def path_around(
        self, to: Sequence[NodeId], now: float, dialler: NodeId | None = None
    ) -> Path | None:
        """Return the best path without the obstacles that Dials from `dialler` to `to` avoid
        now.
        """
        self._refresh()
        avoided = self.avoided.at(now)
        route = (dialler, tuple(to))
        own = [obstacle for of, obstacle in self.avoided_by_route.at(now) if of == route]
        if own:
            around = {*avoided, *own}
            found = shortest_paths(self._origin, self._neighbours, self._cards, around)
            return _extended(found, self._origin, to)
        if not avoided:
            return _extended(self._found, self._origin, to)
        if self._avoided_version != self.avoided.version:
            self._around = shortest_paths(self._origin, self._neighbours, self._cards, avoided)
            self._avoided_version = self.avoided.version
        return _extended(self._around, self._origin, to)

    def _refresh(self) -> None:
        if self._cards_version != self._cards.version:
            self._cards_version = self._cards.version
            self._avoided_version = -1
            self._found = shortest_paths(self._origin, self._neighbours, self._cards)


def _extended(found: Mapping[NodeId, Path], origin: NodeId, to: Sequence[NodeId]) -> Path | None:
    """Return the path to the server `to[0]`, extended to its account `to[1]` if given."""
    if len(to) == 1:
        return found.get(to[0])
    path = (origin,) if to[0] == origin else found.get(to[0])
    if path is None:
        return None
    # A Dial's ids are distinct.
    return (*path, to[1]) if len(path) < LONGEST_PATH and to[1] not in path else None
