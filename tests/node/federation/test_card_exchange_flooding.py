"""Flooding (section 19) in random graphs and orders: all servers end with the newest card of each,
and no card passes a link session twice in one direction.

By default it checks a part of the claim; `--federations 1000` checks all of it.
"""

from functools import cache
from itertools import combinations, permutations

import pytest

from tests.node.federation.servers import Servers

Graph = tuple[tuple[int, int], ...]
ORDERS = 20


def connected_graphs(size: int) -> list[Graph]:
    """Return one graph of each shape with so many servers."""
    edges = list(combinations(range(size), 2))
    place = {edge: 1 << index for index, edge in enumerate(edges)}
    renamings = [
        [place[min(name[a], name[b]), max(name[a], name[b])] for a, b in edges]
        for name in permutations(range(size))
    ]
    seen = bytearray(1 << len(edges))
    found = []
    for mask in range(1 << len(edges)):
        if seen[mask]:
            continue
        graph = tuple(edge for edge in edges if mask & place[edge])
        bits = [index for index in range(len(edges)) if mask >> index & 1]
        for renaming in renamings:
            seen[sum(renaming[index] for index in bits)] = True
        if is_connected(graph, size):
            found.append(graph)
    return found


def is_connected(graph: Graph, size: int) -> bool:
    reached = {0}
    for _ in range(size):
        reached |= {one for edge in graph if reached & set(edge) for one in edge}
    return len(reached) == size


@cache
def shapes() -> list[tuple[int, Graph]]:
    return [(size, graph) for size in range(2, 7) for graph in connected_graphs(size)]


def disturb(servers: Servers, graph: Graph) -> None:
    """Bring links up in random order, cut them and restart servers, while cards are in transit."""
    chance = servers.random
    for link in chance.sample(graph, len(graph)):
        servers.connect(*link)
        servers.turn()
    for _ in range(chance.randrange(4)):
        event = chance.randrange(3)
        if event == 0:
            servers.restart(chance.randrange(len(servers.directories)))
        elif event == 1 and servers.links:
            servers.cut(*chance.choice(sorted(servers.links)))
        else:
            servers.wait(chance.choice((0.1, 3, 61)))
        for _ in range(chance.randrange(6)):
            servers.turn()
    for link in set(graph) - servers.links:
        if chance.random() < 0.8:
            servers.connect(*link)


def test_there_are_as_many_connected_graphs_as_there_should_be() -> None:
    # A001349 of the On-Line Encyclopedia of Integer Sequences.
    assert [len(connected_graphs(size)) for size in range(2, 7)] == [1, 2, 6, 21, 112]


def test_each_small_graph_agrees_in_any_order(federations: int) -> None:
    graphs = shapes() if federations >= 100 else shapes()[::3]
    for seed in range(min(ORDERS, 1 + federations // 50)):
        for size, graph in graphs:
            servers = Servers(size, seed)
            disturb(servers, graph)
            servers.settle()
            servers.check()


def test_random_graphs_agree(federations: int) -> None:
    for seed in range(federations):
        # Most are small, because a large one takes seconds.
        chance = Servers(0, seed).random
        size = round(7 * (200 / 7) ** chance.random() ** 2) if federations >= 100 else 7 + 8 * seed
        edges = {(chance.randrange(server), server) for server in range(1, size)}
        edges |= {(a, b) for a, b in (sorted(chance.sample(range(size), 2)) for _ in range(size))}
        for order in range(min(ORDERS, 1 + federations // 50)):
            servers = Servers(size, seed * ORDERS + order)
            disturb(servers, tuple(sorted(edges)))
            servers.settle()
            servers.check()


def test_a_partition_that_heals_agrees() -> None:
    servers = Servers(4)
    for link in ((0, 1), (1, 2), (2, 3)):
        servers.connect(*link)
    servers.settle()
    servers.cut(1, 2)
    servers.settle()
    servers.check()
    servers.connect(1, 2)
    servers.settle()
    servers.check()
    assert all(len(directory.cards) == 4 for directory in servers.directories)


@pytest.mark.parametrize("behind", [0, 240_000], ids=["right", "behind"])
def test_restarted_server_uses_higher_card_numbers(behind: int) -> None:
    """Even if its clock is four minutes behind its earlier time."""
    servers = Servers(3)
    for link in ((0, 1), (1, 2)):
        servers.connect(*link)
    servers.settle()
    servers.cut(0, 1)
    before = servers.directories[2].cards[servers.directories[0].node_id].number
    servers.now_ms -= behind
    servers.restart(0)
    servers.connect(0, 1)
    servers.settle()
    servers.check()
    assert servers.directories[2].cards[servers.directories[0].node_id].number > before
