"""No loops (section 19): a Dial ends after at most seven forwards and visits no server twice, in
any graph, whatever the cards contain and whatever is dialled.
"""

from collections.abc import Iterator
from itertools import combinations
from random import Random  # noqa: TID251 - seeded: random paths

from parley._crypto.identity import NodeId
from parley._node.federation.cards import Card
from parley._node.federation.dials import (
    DeliverLocally,
    Dials,
    Forward,
    NoAccounts,
    Refuse,
    encode_dial,
)
from parley._node.federation.paths import Path, shortest_paths
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.event_types import LONGEST_PATH
from tests.node.federation.servers import TRACE, card, node_id
from tests.node.federation.test_card_exchange_flooding import Graph

DIALS_OF_FEDERATION = 1_000


class Federation:
    """Servers that follow the specification, which is sufficient for this property."""

    def __init__(self, size: int, graph: Graph, uncarried: frozenset[tuple[int, int]]) -> None:
        self.now = 0.0
        self.linked: dict[int, set[int]] = {server: set() for server in range(size)}
        for a, b in graph:
            self.linked[a].add(b)
            self.linked[b].add(a)
        self.uncarried = uncarried
        members = [node_id(server) for server in range(size)]
        self._dials = {
            node_id(server): Dials(
                node_id(server),
                members,
                [node_id(other) for other in self.linked[server]],
                [node_id(o) for o in self.linked[server] if (server, o) not in uncarried],
                NoAccounts(),
            )
            for server in range(size)
        }

    def cards(self) -> dict[NodeId, Card]:
        return {
            node_id(server): card(
                1,
                {node_id(other): (server, other) not in self.uncarried for other in linked},
                server=server,
            )
            for server, linked in self.linked.items()
        }

    def dial(self, path: Path, sender: NodeId, receiver: NodeId) -> tuple[list[NodeId], object]:
        """Return the servers that a Dial visits and its result; the sender's path may be
        invalid.
        """
        self.now += 1.0  # so that no rate limit applies
        payload = encode_dial(TRACE, 30, path=path)
        visited = []
        while True:
            visited.append(receiver)
            decision = self._dials[receiver].judge(sender, payload, self.now)
            if not isinstance(decision, Forward):
                return visited, decision
            sender, receiver = receiver, decision.after


def check(visited: list[NodeId]) -> None:
    # The first forward is by the server that wrote the path.
    assert len(visited) <= LONGEST_PATH - 1
    assert len(set(visited)) == len(visited)


def federations_of(count: int) -> Iterator[tuple[Random, Federation]]:
    for seed in range(count):
        chance = Random(seed)
        size = chance.randrange(3, 16)
        graph = [pair for pair in combinations(range(size), 2) if chance.random() < 0.5]
        uncarried = frozenset(
            pair for edge in graph for pair in (edge, edge[::-1]) if chance.random() < 0.2
        )
        yield chance, Federation(size, tuple(graph), uncarried)


def test_paths_by_true_cards_are_never_refused(federations: int) -> None:
    for _, federation in federations_of(federations):
        cards = federation.cards()
        for origin in cards:
            for path in shortest_paths(origin, cards[origin].links, cards).values():
                visited, end = federation.dial(path, origin, path[1])
                assert (tuple(visited), end) == (path[1:], DeliverLocally(TRACE, path))


def test_forged_and_stale_cards_make_no_loop(federations: int) -> None:
    for chance, federation in federations_of(federations):
        servers = range(len(federation.linked))
        cards = {
            node_id(server): card(
                1,
                {
                    node_id(other): chance.random() < 0.9
                    for other in servers
                    if chance.random() < 0.7
                },
                server=server,
            )
            for server in servers
        }
        for server, linked in federation.linked.items():
            origin = node_id(server)
            neighbours = [node_id(other) for other in linked]
            for path in shortest_paths(origin, neighbours, cards).values():
                visited, end = federation.dial(path, origin, path[1])
                check(visited)
                assert end == DeliverLocally(TRACE, path) or isinstance(end, Refuse)


def test_adversarial_dials_make_no_loop(federations: int) -> None:
    ends = set()
    for chance, federation in federations_of(federations):
        ids = [node_id(server) for server in federation.linked] + [node_id(99)]
        linked = {
            node_id(server): [node_id(one) for one in others]
            for server, others in federation.linked.items()
            if others
        }
        for _ in range(DIALS_OF_FEDERATION if linked else 0):
            sender = chance.choice(list(linked))
            receiver = chance.choice(linked[sender])
            path = [sender, receiver]
            # Mostly a walk along links, because invalid paths end immediately.
            while len(path) < LONGEST_PATH and chance.random() < 0.8:
                path.append(chance.choice(linked.get(path[-1], ids)))
            if chance.random() < 0.3:
                path[chance.randrange(len(path))] = chance.choice(ids)
            if chance.random() < 0.2:
                chance.shuffle(path)
            visited, end = federation.dial(tuple(path), sender, receiver)
            check(visited)
            ends.add(end.code if isinstance(end, Refuse) else type(end))
    assert ends >= {
        DeliverLocally,
        ResultCode.MALFORMED,
        ResultCode.NOT_AUTHORISED,
        ResultCode.UNREACHABLE,
        ResultCode.TOPIC_NOT_FOUND,
    }
