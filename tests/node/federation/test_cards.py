"""The table of cards: accepted, refused and counted cards, and their expiry."""

import pytest

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.federation.cards import Card, CardRefusal, Cards, read_card, sign_card
from parley._node.federation.envelopes import sign_envelope
from parley._node.federation.limits import CARD_VALID, CARDS_OF_ORIGIN, LARGEST_CARD, NUMBER_KEPT
from tests.node.federation.servers import MS, card, identity, node_id

HOUR = int(CARD_VALID * 1000)
MINUTE = 60_000


def forged(good: Card) -> Card:
    cells = decode(good.encoded)
    return read_card(encode({**cells, keys.SIGNATURE: bytes(64)}))


def table(*others: int) -> Cards:
    return Cards(node_id(one) for one in (0, *others))


def test_newer_card_replaces_an_older_one() -> None:
    cards = table()
    assert cards.take(card(5), 0, MS) is None
    assert cards.take(card(6, [node_id(1)]), 0, MS) is None
    assert cards.take(card(6), 0, MS) is CardRefusal.KNOWN
    assert cards.take(card(5), 0, MS) is CardRefusal.KNOWN
    assert [one.number for one in cards.values()] == [6]
    assert cards.refused == {CardRefusal.KNOWN: 2}


def test_the_version_changes_with_the_links() -> None:
    cards = table()
    versions = []
    for one in (card(1), card(2), card(3, [node_id(1)]), card(4, {node_id(1): False})):
        cards.take(one, 0, MS)
        versions.append(cards.version)
    assert versions == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("made_ms", "refusal", "clock"),
    [
        (MS + 5 * MINUTE, None, None),
        (MS + 5 * MINUTE + 1, CardRefusal.MADE_AHEAD, 5 * MINUTE + 1),
        (MS - HOUR + 1, None, None),
        (MS - HOUR, CardRefusal.EXPIRED, 0),
        (MS - HOUR - 7, CardRefusal.EXPIRED, -7),
    ],
)
def test_clocks(made_ms: int, refusal: CardRefusal | None, clock: int | None) -> None:
    cards = table()
    assert cards.take(card(5, made_ms=made_ms), 0, MS) is refusal
    assert cards.clocks.get(node_id(0)) == clock
    assert cards.take(card(6), 0, MS) is None
    assert cards.clocks == {}


def test_a_card_is_forgotten_when_it_expires_and_its_number_later() -> None:
    cards = table(1)
    cards.take(card(5), 0, MS)
    cards.take(card(5, server=1, made_ms=MS + 1), 0, MS)
    assert cards.next_expiry() == MS + HOUR
    cards.expire(MS + HOUR - 1)
    assert len(cards) == 2
    version = cards.version
    cards.expire(MS + HOUR)
    assert list(cards) == [node_id(1)]
    assert cards.version > version
    assert cards.next_expiry() == MS + HOUR + 1
    cards.expire(MS + HOUR + 1)
    # A server with a slow clock may still forward it; it is refused.
    assert cards.take(card(5), 0, MS) is CardRefusal.KNOWN
    forgets = MS + HOUR + int(NUMBER_KEPT * 1000)
    assert cards.next_expiry() == forgets
    cards.expire(forgets - 1)
    assert cards.take(card(5, made_ms=forgets), 0, forgets) is CardRefusal.KNOWN
    cards.expire(forgets)
    assert cards.take(card(5, made_ms=forgets), 0, forgets) is None
    cards.expire(forgets + 1)
    assert cards.next_expiry() == forgets + HOUR


def test_the_number_of_a_server_that_came_back_is_kept() -> None:
    cards = table()
    cards.take(card(5), 0, MS)
    cards.expire(MS + HOUR)
    assert cards.take(card(7, made_ms=MS + 2 * HOUR), 0, MS + 2 * HOUR) is None
    forgets = MS + HOUR + int(NUMBER_KEPT * 1000)
    cards.expire(forgets)
    assert cards.take(card(6, made_ms=forgets), 0, forgets) is CardRefusal.KNOWN
    assert cards[node_id(0)].number == 7


def test_of_cards_that_come_too_often_the_newest_is_taken_in_time() -> None:
    cards = table()
    burst = int(CARDS_OF_ORIGIN.burst)
    for number in range(1, burst + 1):
        assert cards.take(card(number), 1.0, MS) is None
    assert cards.next_release() is None
    for number in (burst + 1, burst + 3, burst + 2):
        assert cards.take(card(number), 1.0, MS) is CardRefusal.TOO_OFTEN
    assert cards.next_release() == 1.0 + CARDS_OF_ORIGIN.seconds
    assert cards.release(5.9, MS) == []
    assert [one.number for one in cards.release(6.0, MS)] == [burst + 3]
    assert cards[node_id(0)].number == burst + 3
    assert cards.next_release() is None
    # After the burst, one in five seconds.
    assert cards.take(card(50), 6.0, MS) is CardRefusal.TOO_OFTEN
    assert cards.take(card(51), 11.0, MS) is None
    assert cards.release(20.0, MS) == []
    assert cards[node_id(0)].number == 51


def test_cards_that_are_set_aside_may_expire_there() -> None:
    cards = table()
    for number in range(1, 14):
        cards.take(card(number), 0, MS)
    assert cards.release(5.0, MS + HOUR) == []
    assert cards.refused == {CardRefusal.TOO_OFTEN: 1, CardRefusal.EXPIRED: 1}


def test_there_are_at_most_1024_members() -> None:
    ids = [NodeId(number.to_bytes(32, "big")) for number in range(1_025)]
    assert len(Cards(ids[:1_024]).places) == 1_024
    assert len(Cards([*ids[:1_024], ids[0]]).places) == 1_024
    with pytest.raises(ConfigError):
        Cards(ids)


HOUR = int(CARD_VALID * 1000)
GOOD: dict[int, Encodable] = {
    keys.KIND: "card",
    keys.NUMBER: 7,
    keys.MADE_MS: MS,
    keys.EXPIRES_MS: MS + HOUR,
    keys.LINKS: [[node_id(1), True]],
}


def test_what_is_said_is_read() -> None:
    links = {node_id(number): number % 2 == 0 for number in range(1, 5)}
    encoded = sign_card(
        identity(0),
        number=7,
        made_ms=MS,
        links=links,
        exports=["shop.*"],
        addresses=["tcp://a.example:4747"],
    )
    card = read_card(encoded)
    card.envelope.verify()
    assert (card.origin, card.number, card.encoded) == (node_id(0), 7, encoded)
    assert (card.made_ms, card.expires_ms) == (MS, MS + HOUR)
    assert dict(card.links) == links
    assert list(card.links) == sorted(links)
    assert (card.exports, card.addresses) == (("shop.*",), ("tcp://a.example:4747",))


def test_a_card_has_at_most_8_kib() -> None:
    bare = len(sign_envelope(identity(0), {**GOOD, keys.ADDRESSES: ["a" * 4096]}))
    room = LARGEST_CARD - bare + 4096
    at_limit = sign_card(
        identity(0), number=7, made_ms=MS, links={node_id(1): True}, addresses=["a" * (room - 3)]
    )
    assert LARGEST_CARD - 2 <= len(at_limit) <= LARGEST_CARD
    read_card(at_limit)
    with pytest.raises(ConfigError):
        sign_card(
            identity(0), number=7, made_ms=MS, links={node_id(1): True}, addresses=["a" * room]
        )
    with pytest.raises(LbmDecodeError):
        read_card(sign_envelope(identity(0), {**GOOD, keys.ADDRESSES: ["a" * (room + 1)]}))
