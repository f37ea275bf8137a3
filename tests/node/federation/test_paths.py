"""Paths compared with all possible paths, and paths around obstacles."""

from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from random import Random  # noqa: TID251 - seeded: random links

from hypothesis import example, given
from hypothesis import strategies as st

from parley._crypto.identity import NodeId
from parley._node.federation.cards import Card, Cards
from parley._node.federation.limits import AVOIDED, MOST_AVOIDED
from parley._node.federation.paths import (
    Avoided,
    Obstacle,
    Path,
    PathFinder,
    shortest_paths,
)
from parley._node.protocol.event_types import LONGEST_PATH
from tests.node.federation.servers import card, node_id

# The links that each server lists, and whether it relays for them.
Said = Mapping[int, Mapping[int, bool]]


def cards_of(said: Said) -> dict[NodeId, Card]:
    return {
        node_id(server): card(1, {node_id(n): c for n, c in links.items()}, server=server)
        for server, links in said.items()
    }


def is_usable(path: Path, cards: Mapping[NodeId, Card], avoided: Collection[Obstacle]) -> bool:
    """Check the rules of section 19 literally."""
    return (
        len(path) <= LONGEST_PATH
        and len(set(path)) == len(path)
        and all(b in cards[a].links and a in cards[b].links for a, b in pairwise(path))
        and all(cards[between].links[before] for before, between in pairwise(path[:-1]))
        and not any(one in avoided for one in (*path[1:-1], *pairwise(path)))
    )


def all_paths(
    origin: NodeId, cards: Mapping[NodeId, Card], avoided: Collection[Obstacle] = ()
) -> list[Path]:
    """Return every usable path from `origin`, found by trying all."""
    found: list[Path] = []
    line: list[Path] = [(origin,)]
    while line:
        path = line.pop()
        for other in cards:
            longer = (*path, other)
            if is_usable(longer, cards, avoided):
                found.append(longer)
                line.append(longer)
    return found


def by_hops(origin: NodeId, cards: Mapping[NodeId, Card]) -> dict[NodeId, int]:
    """Return the distance of each server, by a breadth-first search over (server, predecessor)."""
    hops: dict[NodeId, int] = {}
    line = [(origin, origin)]
    seen = set(line)
    for distance in range(1, LONGEST_PATH):
        further = []
        for server, before in line:
            if server != origin and not cards[server].links[before]:
                continue
            for other in cards[server].links:
                if other in cards and server in cards[other].links and (other, server) not in seen:
                    seen.add((other, server))
                    hops.setdefault(other, distance)
                    further.append((other, server))
        line = further
    hops.pop(origin, None)
    return hops


Numbers = st.integers(0, 5)
Links = st.dictionaries(Numbers, st.booleans(), max_size=5)
# A server, or an edge.
Obstacles = st.sets(Numbers | st.tuples(Numbers, Numbers), max_size=4)


@example({0: {1: False}, 1: {0: False}}, {1})  # an avoided server can still be a target
@given(st.dictionaries(Numbers, Links, min_size=2), Obstacles)
def test_they_are_the_best_of_all(
    said: dict[int, dict[int, bool]], obstacles: set[int | tuple[int, int]]
) -> None:
    cards = cards_of({0: {}, **said})
    origin = node_id(0)
    avoided = {
        (node_id(one[0]), node_id(one[1])) if isinstance(one, tuple) else node_id(one)
        for one in obstacles - {0}
    }
    best: dict[NodeId, Path] = {}
    for path in sorted(all_paths(origin, cards, avoided), key=lambda path: (len(path), path)):
        best.setdefault(path[-1], path)
    assert shortest_paths(origin, cards[origin].links, cards, avoided) == best


def test_they_are_as_short_as_can_be_in_large_federations(federations: int) -> None:
    for seed in range(federations):
        chance = Random(seed)
        size = chance.randrange(10, 200)
        said: dict[int, dict[int, bool]] = {server: {} for server in range(size)}
        for _ in range(size * chance.choice((1, 2, 4))):
            a, b = chance.sample(range(size), 2)
            if len(said[a]) < 64 and len(said[b]) < 64:
                said[a][b], said[b][a] = chance.random() < 0.8, chance.random() < 0.8
                if chance.random() < 0.1:
                    del said[b][a]
        cards = cards_of(said)
        for server in chance.sample(range(size), 5):
            origin = node_id(server)
            found = shortest_paths(origin, cards[origin].links, cards)
            assert {to: len(path) - 1 for to, path in found.items()} == by_hops(origin, cards)
            assert all(is_usable(path, cards, ()) for path in found.values())


def line_of(size: int, carries: Callable[[int, int], bool] = lambda *_: True) -> Said:
    return {
        server: {
            other: carries(server, other) for other in (server - 1, server + 1) if 0 <= other < size
        }
        for server in range(size)
    }


def finder_of(said: Said) -> PathFinder:
    cards = Cards(map(node_id, range(len(said))))
    for one in cards_of(said).values():
        cards.put(one)
    return PathFinder(node_id(0), cards, list(map(node_id, said[0])))


def test_a_path_has_at_most_8_ids() -> None:
    finder = finder_of(line_of(10))
    assert finder.path([node_id(7)]) == tuple(map(node_id, range(8)))
    assert finder.path([node_id(8)]) is None
    # The account counts as a hop, and its home need not relay for the previous server.
    account = node_id(50)
    assert finder.path([node_id(6), account]) == (*map(node_id, range(7)), account)
    assert finder.path([node_id(7), account]) is None


def test_an_account_needs_no_carrying_at_its_home() -> None:
    finder = finder_of(line_of(3, lambda server, other: (server, other) == (1, 0)))
    account = node_id(50)
    assert finder.path([node_id(2), account]) == (*map(node_id, range(3)), account)
    finder = finder_of(line_of(3, lambda server, other: (server, other) != (1, 0)))
    assert finder.path([node_id(2), account]) is None
    assert finder.path([node_id(1), account]) == (node_id(0), node_id(1), account)


def test_the_ids_of_a_path_are_distinct() -> None:
    finder = finder_of(line_of(3))
    assert finder.path([node_id(0)]) is None
    assert finder.path([node_id(0), node_id(50)]) == (node_id(0), node_id(50))
    for to in ([node_id(2), node_id(0)], [node_id(2), node_id(1)], [node_id(0), node_id(0)]):
        assert finder.path(to) is None


def test_the_first_step_is_an_open_link() -> None:
    cards = Cards(map(node_id, range(3)))
    said = line_of(3)
    for one in cards_of(said).values():
        cards.put(one)
    links = {node_id(1): None}
    finder = PathFinder(node_id(0), cards, links.keys())
    assert finder.path([node_id(2)]) == tuple(map(node_id, range(3)))
    links.clear()
    finder.forget()
    assert finder.path([node_id(2)]) is None


def test_a_path_changes_with_the_cards() -> None:
    cards = Cards(map(node_id, range(3)))
    for one in cards_of(line_of(3)).values():
        cards.put(one)
    finder = PathFinder(node_id(0), cards, [node_id(1)])
    assert finder.path([node_id(2)]) is not None
    cards.put(card(2, [], server=2))
    assert finder.path([node_id(2)]) is None


SQUARE: Said = {
    0: {1: True, 2: True},
    1: {0: True, 3: True},
    2: {0: True, 3: True},
    3: {1: True, 2: True},
}


def test_obstacles_are_avoided_for_10_seconds() -> None:
    finder = finder_of(SQUARE)
    to = [node_id(3)]
    first = finder.path(to)
    assert first is not None
    for obstacle in (first[1], (first[0], first[1]), (first[1], first[2])):
        finder.avoided.add(obstacle, 100.0)
        other = finder.path_around(to, 100.0)
        assert other is not None
        assert other[1] == ({node_id(1), node_id(2)} - {first[1]}).pop()
        assert finder.path(to) == first
        assert finder.path_around(to, 100.0 + AVOIDED - 0.001) == other
        assert finder.path_around(to, 100.0 + AVOIDED) == first


def test_number_of_obstacles_is_limited() -> None:
    avoided: Avoided[Obstacle] = Avoided()
    ids = [NodeId(number.to_bytes(32, "big")) for number in range(MOST_AVOIDED + 1)]
    for one in ids[:-1]:
        avoided.add(one, 1.0)
    assert list(avoided.at(1.0)) == ids[:-1]
    # A repeated obstacle becomes the newest.
    avoided.add(ids[0], 2.0)
    avoided.add(ids[-1], 2.0)
    assert list(avoided.at(2.0)) == [*ids[2:-1], ids[0], ids[-1]]
    version = avoided.version
    assert list(avoided.at(1.0 + AVOIDED)) == [ids[0], ids[-1]]
    assert avoided.version > version
    assert list(avoided.at(2.0 + AVOIDED)) == []


A, B, C, D = map(node_id, range(4))
