"""The stream `federation`: sent and received events; no card passes twice."""

import pytest

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.federation.card_exchange import CardExchange
from parley._node.federation.cards import Cards
from parley._node.federation.statement_exchange import StatementExchange
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import HAVE, LARGEST_CARDS
from tests.node.federation.servers import card, node_id, numbers_in


def have(*numbers: tuple[NodeId, int]) -> bytes:
    return encode({keys.HAVE: [list(one) for one in numbers]})


def cards_of(*servers: int) -> Cards:
    cards = Cards(node_id(one) for one in range(200))
    for server in servers:
        cards.put(card(5, server=server))
    return cards


def begun(cards: Cards, *numbers: tuple[NodeId, int]) -> CardExchange:
    """Return an exchange on which both sides have sent Have."""
    exchange = CardExchange(cards, StatementExchange({}))
    event = exchange.next_event(0)
    assert event is not None
    assert event.subcategory == codes.HAVE
    exchange.receive(codes.HAVE, have(*numbers))
    return exchange


def sent(exchange: CardExchange) -> list[tuple[NodeId, int]]:
    found = []
    while (event := exchange.next_event(0)) is not None:
        assert event.subcategory == codes.CARDS
        assert len(event.payload) <= LARGEST_CARDS
        found += numbers_in(event.payload)
    return found


def test_it_begins_with_what_there_is() -> None:
    assert CardExchange(cards_of(), StatementExchange({})).next_at() is not None
    exchange = CardExchange(cards_of(1, 2), StatementExchange({}))
    event = exchange.next_event(0)
    assert event is not None
    assert HAVE.read(event.payload)[keys.HAVE] == [[node_id(1), 5], [node_id(2), 5]]
    # Only the peer's Have shows which cards it lacks.
    assert exchange.next_at() is None
    assert exchange.next_event(0) is None


def test_of_one_server_only_the_newest_waits() -> None:
    cards = cards_of(1, 2)
    exchange = begun(cards, (node_id(1), 5), (node_id(2), 5))
    for number in range(6, 60):
        for server in (1, 2):
            news = card(number, server=server)
            cards.put(news)
            exchange.news(news)
    assert sent(exchange) == [(node_id(1), 59), (node_id(2), 59)]


def test_received_cards_are_not_sent_back() -> None:
    cards = cards_of(1, 2)
    exchange = begun(cards)
    exchange.received_card(card(5, server=1))
    assert sent(exchange) == [(node_id(2), 5)]


def test_expired_cards_are_not_sent() -> None:
    cards = cards_of(1)
    exchange = begun(cards)
    cards.expire(cards[node_id(1)].expires_ms)
    assert exchange.next_at() is not None
    assert sent(exchange) == []


def test_an_event_has_at_most_64_kib() -> None:
    links = [bytes([number]) * 32 for number in range(64)]
    cards = Cards(node_id(one) for one in range(60))
    for server in range(60):
        cards.put(card(5, map(NodeId, links), server=server))
    exchange = begun(cards)
    sizes, servers = [], []
    while (event := exchange.next_event(0)) is not None:
        sizes.append(len(event.payload))
        servers += [origin for origin, _ in numbers_in(event.payload)]
    assert sorted(servers) == sorted(map(node_id, range(60)))
    assert servers == [*cards]
    assert all(LARGEST_CARDS - 3_000 < size <= LARGEST_CARDS for size in sizes[:-1])
    assert len(sizes) == 3
    # Two events of this size are one too many.
    full = [one.encoded for one in cards.values()][:26]
    assert sum(map(len, full)) <= LARGEST_CARDS
    assert exchange.receive(codes.CARDS, encode({keys.ENVELOPES: full})) == full
    with pytest.raises(RemoteProtocolError):
        exchange.receive(codes.CARDS, encode({keys.ENVELOPES: full + full[:2]}))
