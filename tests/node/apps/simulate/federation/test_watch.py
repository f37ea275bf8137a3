"""What is watched on the wires: it finds what it is to find, and nothing else."""

from parley._node.federation.card import read_card, sign_card
from tests.node.apps.simulate.federation.plan import FederationPlan
from tests.node.apps.simulate.federation.spread import Spread
from tests.node.apps.simulate.federation.watch import (
    KEPT,
    Breaches,
    CardReader,
    DialWatch,
    SessionWatch,
)

A, B = b"a" * 32, b"b" * 32
TRACE = b"t" * 16


def watched() -> tuple[SessionWatch, Breaches]:
    breaches = Breaches(lambda: 1.5)
    return SessionWatch("link 1-2 #1", breaches), breaches


def test_cards_that_are_newer_each_time_pass() -> None:
    session, breaches = watched()
    session.sent(0, A, 5)
    session.sent(0, B, 5)
    session.sent(1, A, 5)  # it met itself under way
    session.received(0, A, 5)
    session.received(1, A, 5)
    session.sent(0, A, 6)
    assert not breaches.counts


def test_a_card_again_and_an_old_card_are_found() -> None:
    session, breaches = watched()
    session.sent(0, A, 5)
    session.sent(0, A, 5)
    session.sent(0, A, 4)
    session.received(1, A, 5)
    session.sent(1, A, 5)  # back to where it came from
    assert [breach.text for breach in breaches.kept] == [
        "link 1-2 #1: end 0 sent a card that passed before",
        "link 1-2 #1: end 0 sent a card older than one that passed",
        "link 1-2 #1: end 1 sent a card that passed before",
    ]
    assert {(breach.at, breach.claim) for breach in breaches.kept} == {(1.5, "cards")}


def test_dials_that_go_round_fork_or_go_too_far_are_found() -> None:
    breaches = Breaches(float)
    dials = DialWatch(breaches)
    dials.began(TRACE, 0)
    for server in range(8):
        dials.forwarded(TRACE, server)
        dials.arrived(TRACE, server + 1)
    dials.arrived(TRACE, 0)
    dials.forwarded(TRACE, 3)
    assert [breach.text.partition(": ")[2] for breach in breaches.kept] == [
        "forwarded 8 times",
        "server 0 is visited twice",
        "forwarded 9 times",
        "forwarded twice by server 3",
    ]
    assert (len(dials), dials.most_forwards) == (1, 9)


def test_all_are_counted_and_some_kept() -> None:
    breaches = Breaches(float)
    for number in range(KEPT + 3):
        breaches.add("cards", str(number))
    breaches.add("dials", "x")
    assert breaches.counts == {"cards": KEPT + 3, "dials": 1}
    assert len(breaches.kept) == KEPT + 1


def test_how_long_a_card_takes_until_all_have_it() -> None:
    identity = FederationPlan(servers=3).identity(0)
    first, second = (
        read_card(sign_card(identity, number=number, made_ms=1_000, links={})) for number in (7, 9)
    )
    assert CardReader().read(first.encoded) == (identity.node_id, 7)
    spread = Spread(3)
    spread.made(first, 0, 1.0, is_whole=True)
    spread.made(first, 0, 1.5, is_whole=True)  # it is known
    spread.taken(first, 1, 2.0)
    spread.taken(first, 1, 3.0)
    assert spread.seconds == []
    spread.taken(first, 2, 4.5)
    spread.made(second, 0, 6.0, is_whole=False)
    spread.taken(second, 1, 7.0)
    spread.taken(second, 2, 8.0)
    assert spread.seconds == [3.5]
    assert (spread.made_count, spread.taken_count, spread.last_taken) == (2, 4, 8.0)
    # What was made lately may be under way.
    assert spread.newest(0, 5.0) == [7, 9]
    assert spread.newest(0, 6.0) == [9]
    assert spread.newest(1, 6.0) == []
