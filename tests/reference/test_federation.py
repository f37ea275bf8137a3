"""The second reading of section 19 against itself: cards over small graphs, and Dials that end."""

from itertools import combinations
from random import Random  # noqa: TID251 - graphs, the same for a number

import pytest

from tests.reference import cbor
from tests.reference.dialling import DialRefused, Situation, dial_payload, take_dial
from tests.reference.envelopes import CardTable, read_card
from tests.reference.flooding import Flooding
from tests.reference.identity import node_id
from tests.reference.primitives import SigningKey
from tests.reference.recorded import seed
from tests.reference.sharing import Sharing
from tests.reference.statements import read
from tests.reference.vectors_cards import NOW, card_of, outer
from tests.reference.vectors_statements import Draft, key_of
from tests.reference.ways import Avoided, choose, is_usable
from tests.reference.wire import CELLS, TYPES

KEYS = [SigningKey("ed25519", seed(f"flood {number}")) for number in range(5)]
IDS = [node_id("ed25519", key.public) for key in KEYS]
Edge = tuple[int, int]
EDGES: list[Edge] = list(combinations(range(len(IDS)), 2))


class Flood:
    """Servers over a graph; each direction of a link is a queue, and the next message is chosen at
    random.
    """

    def __init__(self, edges: list[Edge], chance: Random) -> None:
        self.chance = chance
        self.tables = [CardTable(own, set(IDS) - {own}) for own in IDS]
        self.own = [card_of(key, number=NOW + n, links=[]) for n, key in enumerate(KEYS)]
        self.ends: dict[Edge, Flooding] = {}
        self.queues: dict[Edge, list[tuple[int, bytes]]] = {}
        self.crossed: dict[tuple[Edge, bytes], int] = {}
        for one, other in edges:
            for end in ((one, other), (other, one)):
                self._open(*end)

    def _open(self, at: int, to: int) -> None:
        offers = {IDS[at]: (NOW + at, self.own[at])}
        flooding = self.ends[at, to] = Flooding(self.tables[at], offers)
        self.queues[at, to] = [(TYPES["Have"][1], outer(have=flooding.have()))]

    def run(self) -> None:
        """Run until no message is in transit."""
        while waiting := [edge for edge, queue in self.queues.items() if queue]:
            at, to = self.chance.choice(waiting)
            subcategory, payload = self.queues[at, to].pop(0)
            table, before = self.tables[to], dict(self.tables[to].numbers)
            self._send(to, at, self.ends[to, at].receive(subcategory, payload, NOW))
            for origin in [o for o, n in table.numbers.items() if before.get(o) != n]:
                card, envelope = table.cards[origin]
                for here, there in [edge for edge in self.ends if edge[0] == to]:
                    sent = self.ends[here, there].news(origin, card.number, envelope)
                    self._send(here, there, sent)

    def _send(self, at: int, to: int, origins: set[bytes]) -> None:
        for origin in origins:
            key = ((at, to), origin)
            self.crossed[key] = self.crossed.get(key, 0) + 1
            envelope = self.ends[at, to].offers[origin][1]
            self.queues[at, to].append((TYPES["Cards"][1], outer(envelopes=[envelope])))


@pytest.mark.parametrize("number", range(20))
def test_each_card_reaches_all_and_crosses_a_link_once(number: int) -> None:
    chance = Random(number)
    edges = [(n, chance.randrange(n)) for n in range(1, len(IDS))]
    edges += [edge for edge in EDGES if edge[::-1] not in edges and chance.random() < 0.4]
    flood = Flood(edges, chance)
    flood.run()
    for table in flood.tables:
        assert set(table.cards) == set(IDS) - {table.own}
    assert max(flood.crossed.values()) == 1


@pytest.mark.parametrize("number", range(10))
def test_each_statement_reaches_all_and_crosses_a_link_once(number: int) -> None:
    chance = Random(number)
    statements = [Draft(new=key_of(n), new_recovery=key_of(n + 10)).encode() for n in (40, 41)]
    statements.append(Draft("revocation").encode())
    member = read(statements[0]).origin
    edges = [(n, chance.randrange(n)) for n in range(1, len(IDS))]
    edges += [edge for edge in EDGES if edge[::-1] not in edges and chance.random() < 0.4]
    stored = {n: set[bytes]() for n in range(len(IDS))}
    ends = {end: Sharing({member}) for edge in edges for end in (edge, edge[::-1])}
    queue = [(edge, outer(have=[], slots=[])) for edge in ends]
    crossed: list[tuple[Edge, bytes]] = []

    def send(at: int, to: int, slots: set[bytes]) -> None:
        crossed.extend(((at, to), slot) for slot in slots)
        found = [one for one in statements if read(one).slot in slots]
        queue.extend([((at, to), outer(statements=found))] if found else [])

    def learn(at: int, data: bytes, by: int) -> None:
        if data not in stored[at]:
            stored[at].add(data)
            for here, to in [end for end in ends if end[0] == at and end[1] != by]:
                send(here, to, ends[here, to].news(data))

    while queue or len(stored[0]) < len(statements):
        if not queue:
            learn(0, statements[len(stored[0])], 0)
            continue
        (at, to), payload = queue.pop(chance.randrange(len(queue)))
        end = ends[to, at]
        if CELLS["slots"] in cbor.decode_payload(payload):
            send(to, at, end.receive_have(payload))
            continue
        send(to, at, end.receive(payload))
        for one in cbor.decode_payload(payload)[CELLS["statements"]]:
            learn(to, one, at)
    assert all(found == set(statements) for found in stored.values())
    assert len(set(crossed)) == len(crossed)


def test_a_forgotten_card_does_not_come_again() -> None:
    data = card_of(KEYS[0], links=[])
    card, _ = read_card(data)
    table = CardTable(IDS[1], set(IDS))
    table.take(data, NOW)
    table.forget(card.expires_ms - 1)
    assert table.cards
    table.forget(card.expires_ms)
    assert not table.cards
    table.forget(card.expires_ms + 65 * 60_000 - 1)
    assert table.numbers == {card.origin: card.number}
    table.forget(card.expires_ms + 65 * 60_000)
    assert not table.numbers


def test_ones_own_number_is_always_above_the_last() -> None:
    table = CardTable(IDS[0], set())
    numbers = [table.next_number(now) for now in (NOW, NOW, NOW - 5, NOW + 1, NOW + 9)]
    assert numbers == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 9]


@pytest.mark.parametrize("number", range(30))
def test_a_path_that_is_chosen_is_usable_and_no_other_is_shorter(number: int) -> None:
    chance = Random(number)
    ids = [bytes([n]) * 32 for n in range(6)]
    links: dict[bytes, dict[bytes, bool]] = {one: {} for one in ids}
    for one, other in combinations(ids, 2):
        for at, to in ((one, other), (other, one)):
            if chance.random() < 0.5:
                links[at][to] = chance.random() < 0.7
    for target in ids[1:]:
        path = choose(links, ids[0], target, Avoided())
        if path is not None:
            assert is_usable(path, links)
            assert choose(links, ids[0], target, Avoided(), len(path) - 1) is None


@pytest.mark.parametrize("number", range(30))
def test_no_dial_visits_a_server_twice(number: int) -> None:
    """Whatever the path: everybody is linked to everybody, and carries for all."""
    chance = Random(number)
    ids = [bytes([n]) * 32 for n in range(8)]
    path = [chance.choice(ids) for _ in range(chance.randrange(2, 9))]
    at, visited, payload = path[0], [path[0]], dial_payload(path, bytes(16), 60_000)
    following = path[1]
    while True:
        others = frozenset(ids) - {following}
        node = Situation(following, members=others, linked=others, carry=others)
        visited.append(following)
        try:
            goes_on = take_dial(node, at, payload, 0)
        except DialRefused:
            break
        if goes_on is None:
            break
        at, following, payload = following, goes_on.to, goes_on.payload
    # A path with an id twice ends at its first server, which may be the one that wrote it.
    assert len(visited) <= 8
    assert len(set(visited)) == len(visited) or len(visited) == 2
