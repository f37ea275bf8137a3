"""A server's own card and when it is made, the streams of its links, and its deadlines."""

import pytest

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.fields import MAX_UINT
from parley._node.errors import ConfigError
from parley._node.federation.cards import Card
from parley._node.federation.directory import Directory
from parley._node.federation.limits import (
    CARD_INTERVAL,
    CARD_RENEWED,
    FIRST_CARD,
    LINK_REMEMBERED,
    MOST_LINKS,
)
from parley._node.protocol import codes
from tests.node.federation.servers import MS, card, identity, node_id, numbers_in

US, ONE, TWO, THREE = map(node_id, range(4))
HAVE = encode({keys.HAVE: []})


class Server:
    """A Directory and its two clocks; every member may be linked, and it relays for ONE."""

    def __init__(self, members: int = 4, settle: float = 0.0) -> None:
        self.now, self.now_ms = 50.0, MS
        others = map(node_id, range(1, members))
        self.directory = Directory(
            identity(0), others, carry=[ONE], exports=["shop.*"], settle=settle
        )

    @property
    def card(self) -> Card:
        return self.directory.cards[US]

    def up(self, neighbour: NodeId) -> None:
        assert self.directory.link_up(neighbour, self.now, self.now_ms)

    def down(self, neighbour: NodeId) -> None:
        self.directory.link_down(neighbour, self.now, self.now_ms)

    def wait(self, seconds: float) -> None:
        """Call it at each deadline, as a driver does."""
        end = self.now + seconds
        while (deadline := self.directory.next_deadline(self.now)) is not None and deadline <= end:
            self._go_to(max(deadline, self.now + 0.001))
        self._go_to(end)

    def _go_to(self, now: float) -> None:
        self.now_ms += round(now * 1000) - round(self.now * 1000)
        self.now = now
        self.directory.handle_deadline(now, self.now_ms)

    def receive(self, *cards: Card, by: NodeId = ONE) -> list[NodeId]:
        payload = encode({keys.ENVELOPES: [one.encoded for one in cards]})
        return self.directory.receive(by, codes.CARDS, payload, self.now, self.now_ms)

    def exchanging(self, *neighbours: NodeId) -> None:
        for neighbour in neighbours:
            self.up(neighbour)
            self.directory.begin_exchange(neighbour)
            self.directory.next_event(neighbour, self.now)
            self.directory.receive(neighbour, codes.HAVE, HAVE, self.now, self.now_ms)

    def sent(self, neighbour: NodeId) -> list[tuple[NodeId, int]]:
        found = []
        while (event := self.directory.next_event(neighbour, self.now)) is not None:
            found += numbers_in(event.payload)
        return found


def test_the_first_link_makes_the_first_card() -> None:
    server = Server()
    assert server.directory.next_deadline(server.now) is None
    assert not server.directory.cards
    server.up(ONE)
    assert (server.card.number, server.card.made_ms) == (MS, MS)
    assert dict(server.card.links) == {ONE: True}
    assert server.card.exports == ("shop.*",)
    server.card.envelope.verify()


def test_the_first_card_waits_for_links_that_come_up_together() -> None:
    server = Server(settle=FIRST_CARD)
    server.up(ONE)
    server.wait(FIRST_CARD - 0.01)
    assert not server.directory.cards
    server.up(TWO)
    server.wait(0.02)
    assert dict(server.card.links) == {ONE: True, TWO: False}


def test_a_change_makes_a_card_at_most_once_in_5_seconds() -> None:
    server = Server()
    server.up(ONE)
    server.up(TWO)
    server.up(THREE)
    assert dict(server.card.links) == {ONE: True}
    assert server.directory.next_deadline(server.now) == pytest.approx(50.0 + CARD_INTERVAL)
    server.wait(CARD_INTERVAL - 0.01)
    assert len(server.card.links) == 1
    server.wait(0.02)
    assert dict(server.card.links) == {ONE: True, TWO: False, THREE: False}
    # A change that was undone causes no new card.
    number = server.card.number
    server.wait(60)
    assert server.card.number == number


def test_a_link_is_listed_for_a_minute_after_it_closed() -> None:
    server = Server()
    server.up(ONE)
    server.up(TWO)
    server.wait(CARD_INTERVAL)
    number = server.card.number
    server.down(ONE)
    assert server.directory.links == (TWO,)
    server.wait(LINK_REMEMBERED - 0.01)
    assert ONE in server.card.links
    server.wait(0.02)
    assert list(server.card.links) == [TWO]
    assert server.card.number > number
    server.down(TWO)
    server.wait(30)
    server.up(TWO)
    number = server.card.number
    server.wait(LINK_REMEMBERED)
    assert server.card.number == number


def test_each_closed_link_is_listed_for_a_minute() -> None:
    server = Server()
    for neighbour in (ONE, TWO, THREE):
        server.up(neighbour)
    server.down(ONE)
    server.wait(10)
    server.down(TWO)
    server.up(ONE)
    server.wait(10)
    server.down(ONE)
    server.wait(LINK_REMEMBERED - 10)
    assert set(server.card.links) == {ONE, THREE}
    server.wait(10)
    assert set(server.card.links) == {THREE}


def test_card_is_renewed_every_20_minutes() -> None:
    server = Server()
    server.up(ONE)
    for count in range(1, 4):
        server.wait(CARD_RENEWED - 0.01)
        before = server.card.number
        server.wait(0.01)
        assert server.card.number > before
        assert server.card.made_ms == pytest.approx(MS + count * CARD_RENEWED * 1000, abs=5)
    assert len(server.directory.cards) == 1


@pytest.mark.parametrize("minutes", [-30, 30, 90])
def test_a_clock_that_was_set_makes_a_card(minutes: int) -> None:
    server = Server()
    server.up(ONE)
    server.wait(60)
    before = server.card.number
    server.now_ms += minutes * 60_000
    server.wait(0)
    assert server.card.made_ms == server.now_ms
    assert server.card.number == max(before + 1, server.now_ms)


def test_changed_addresses_make_a_new_card() -> None:
    server = Server()
    server.up(ONE)
    server.directory.announce(["tcp://a.example:1"], server.now, server.now_ms)
    assert not server.card.addresses
    server.wait(CARD_INTERVAL)
    assert server.card.addresses == ("tcp://a.example:1",)
    with pytest.raises(ConfigError):
        server.directory.announce(["a" * 9_000], server.now, server.now_ms)
    server.up(TWO)
    server.wait(CARD_INTERVAL)
    assert server.card.addresses == ("tcp://a.example:1",)


def test_card_can_list_the_maximum_of_links() -> None:
    room = 8_192
    with pytest.raises(ConfigError):
        Directory(identity(0), [], addresses=["a" * (room - 64 * 36)])
    members = [NodeId(number.to_bytes(32, "big")) for number in range(MOST_LINKS + 1)]
    directory = Directory(identity(0), members, addresses=["a" * (room - 64 * 36 - 400)])
    ups = [directory.link_up(one, 1.0, MS) for one in members]
    assert ups == [True] * MOST_LINKS + [False]
    # A closed link is dropped from the card in favour of an open one.
    directory.link_down(members[0], 2.0, MS)
    assert directory.link_up(members[-1], 2.0, MS)
    directory.handle_deadline(7.0, MS)
    assert set(directory.cards[US].links) == set(members[1:])


def test_server_that_is_not_a_member_has_no_link() -> None:
    server = Server()
    for stranger in (node_id(9), US):
        assert not server.directory.link_up(stranger, server.now, server.now_ms)
        server.directory.begin_exchange(stranger)
    server.directory.begin_exchange(ONE)
    assert server.directory.ready(server.now) == []
    assert server.directory.next_event(ONE, server.now) is None
    assert server.directory.receive(ONE, codes.HAVE, b"", server.now, server.now_ms) == []


def test_news_goes_to_all_others() -> None:
    server = Server()
    server.exchanging(ONE, TWO)
    ours = (US, server.card.number)
    assert server.directory.ready(server.now) == [ONE, TWO]
    assert server.sent(ONE) == [ours]
    assert server.receive(card(7, server=3)) == []
    assert server.directory.ready(server.now) == [TWO]
    assert server.sent(TWO) == [ours, (THREE, 7)]
    assert server.sent(ONE) == []
    server.wait(CARD_INTERVAL)
    assert server.sent(ONE) == [(US, server.card.number)]
    assert server.directory.ready(server.now) == [TWO]


def test_an_exchange_ends_with_its_link_or_stream() -> None:
    server = Server()
    server.exchanging(ONE)
    server.directory.end_exchange(ONE)
    assert server.directory.ready(server.now) == []
    # A new stream starts from the beginning.
    server.exchanging(ONE)
    assert server.sent(ONE) == [(US, server.card.number)]
    server.exchanging(TWO)
    server.down(ONE)
    server.receive(card(7, server=3), by=TWO)
    assert server.directory.ready(server.now) == [TWO]
    server.up(ONE)
    assert server.directory.next_event(ONE, server.now) is None


def test_path_is_known_while_its_first_link_is_open() -> None:
    server = Server()
    server.exchanging(ONE)
    server.receive(card(7, [US, THREE], server=1), card(7, [ONE], server=3))
    assert server.directory.path([THREE]) == (US, ONE, THREE)
    attempts = server.directory.attempts([THREE], 3.0)
    assert (attempts.next(server.now), attempts.timeout) == ((US, ONE, THREE), 1.0)
    server.down(ONE)
    assert server.directory.path([THREE]) is None
    server.up(ONE)
    assert server.directory.path([THREE]) == (US, ONE, THREE)


def test_wrong_clocks_are_reported() -> None:
    server = Server()
    server.exchanging(ONE)
    ahead = card(7, server=3, made_ms=MS + 360_000)
    late = card(7, server=2, made_ms=MS - 4_000_000)
    assert server.receive(ahead, late, card(7, server=9)) == [THREE, TWO]
    assert server.directory.cards.clocks == {THREE: 360_000, TWO: -400_000}


def test_own_card_from_before_a_restart_gets_a_higher_successor() -> None:
    server = Server()
    server.exchanging(ONE, TWO)
    server.sent(ONE)
    # Made when this server's clock was ten minutes ahead.
    old = card(MS + 600_000, server=0, made_ms=MS + 600_000)
    server.receive(old)
    server.wait(CARD_INTERVAL)
    assert server.card.number == old.number + 1
    assert server.sent(ONE) == [(US, old.number + 1)]
    server.receive(card(5, server=0))
    server.wait(CARD_INTERVAL)
    assert server.card.number == old.number + 1
    # The largest number cannot be exceeded.
    server.receive(card(MAX_UINT, server=0))
    server.wait(60)
    assert server.card.number == MAX_UINT


def test_deadlines_make_progress() -> None:
    """However clocks are rounded, no deadline repeats forever."""
    server = Server()
    server.exchanging(ONE, TWO, THREE)
    server.receive(card(7, [US], server=1), card(8, [US], server=2))
    server.down(THREE)
    calls = 0
    while server.now < 10_000:
        deadline = server.directory.next_deadline(server.now)
        assert deadline is not None
        server.now_ms = MS + int((deadline - 50.0) * 1000)  # rounded down
        server.now = deadline
        server.directory.handle_deadline(server.now, server.now_ms)
        calls += 1
    assert calls < 40


def test_exchanges_continue_unless_there_is_a_new_member() -> None:
    server = Server()
    server.exchanging(ONE, TWO)
    server.wait(CARD_INTERVAL)
    for one in (ONE, TWO):
        server.sent(one)
    server.receive(card(server=2), card(server=3), by=TWO)
    # The card of the removed member was queued for ONE, and is no longer sent.
    assert server.directory.change_members([ONE, THREE], [], server.now, server.now_ms) is False
    assert THREE in server.directory.cards
    assert {origin for origin, _ in server.sent(ONE)} - {US} == {THREE}
    server.receive(card(2, server=3))
    assert server.directory.cards[THREE].number == 2
    assert server.directory.change_members([ONE, TWO], [], server.now, server.now_ms) is True
    assert server.directory.next_event(ONE, server.now) is None
    server.directory.begin_exchange(ONE)
    assert server.directory.next_event(ONE, server.now) is not None
