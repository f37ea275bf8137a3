"""The statements that a server sends to a member and accepts from it: rates, sizes, and each slot
once in a stream.
"""

from collections.abc import Iterable
from functools import cache

import pytest

from parley._crypto.identity import Identity, NodeId, RecoveryKey
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation.directory import Directory
from parley._node.federation.limits import STATEMENT_EVENTS, STATEMENT_EVENTS_ACCEPTED
from parley._node.federation.statement_exchange import StatementExchange
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import (
    HAVE,
    LARGEST_STATEMENTS,
    MOST_SLOTS,
    MOST_STATEMENTS,
    STATEMENTS,
)
from tests.node.federation.servers import MS, identity, node_id

US, ONE, TWO = map(node_id, range(3))
BURST = int(STATEMENT_EVENTS.burst)
ACCEPTED = int(STATEMENT_EVENTS_ACCEPTED.burst)
EMPTY_HAVE = encode({keys.HAVE: [], keys.SLOTS: []})


@cache
def revocation(number: int) -> Statement:
    return create_revocation(identity(1_000 + number))


@cache
def large(number: int) -> Statement:
    """Return a statement of 12,704 bytes."""
    pairs: list[tuple[Identity, RecoveryKey]] = [
        Identity.create_recoverable(["ml-dsa-65"]) for _ in range(2)
    ]
    return create_succession(pairs[0][1], pairs[1][0])


def by_slot(statements: Iterable[Statement]) -> dict[bytes, Statement]:
    return {one.slot: one for one in statements}


def event(*statements: Statement) -> bytes:
    return encode({keys.STATEMENTS: [one.encoded for one in statements]})


def statements_in(payload: bytes) -> list[Statement]:
    return [Statement.parse(one) for one in STATEMENTS.read(payload)[keys.STATEMENTS]]


def sent(exchange: StatementExchange, now: float = 0.0) -> list[list[Statement]]:
    """Return the statements of each event that is sent now."""
    found = []
    while (payload := exchange.next_payload(now)) is not None:
        found.append(statements_in(payload))
    return found


def test_an_event_has_at_most_64_statements() -> None:
    statements = [revocation(number) for number in range(MOST_STATEMENTS + 1)]
    exchange = StatementExchange(by_slot(statements))
    exchange.received_have([])
    assert sent(exchange) == [statements[:MOST_STATEMENTS], statements[MOST_STATEMENTS:]]
    assert exchange.next_at() is None


def test_an_event_has_at_most_64_kib() -> None:
    statements = [large(number) for number in range(6)]
    exchange = StatementExchange(by_slot(statements))
    exchange.received_have([])
    assert sent(exchange) == [statements[:5], statements[5:]]
    assert 5 * len(statements[0].encoded) < LARGEST_STATEMENTS < 6 * len(statements[0].encoded)


def test_news_is_sent_at_12_events_and_then_one_in_5_seconds() -> None:
    shared: dict[bytes, Statement] = {}
    exchange = StatementExchange(shared)
    exchange.received_have([])
    events = []
    for number in range(BURST + 3):
        shared = {**shared, **by_slot([revocation(number)])}
        exchange.share(shared)
        events += sent(exchange)
    assert events == [[revocation(number)] for number in range(BURST)]
    assert exchange.next_at() == pytest.approx(STATEMENT_EVENTS.seconds)
    assert sent(exchange, STATEMENT_EVENTS.seconds - 0.01) == []
    # The others have waited, and are sent together.
    waited = [revocation(BURST + number) for number in range(3)]
    assert sent(exchange, STATEMENT_EVENTS.seconds) == [waited]


def test_new_streams_do_not_renew_the_rates() -> None:
    exchange = StatementExchange(by_slot([revocation(0)]))
    for number in range(BURST):
        exchange.received_have([])
        assert sent(exchange) == [[revocation(0)]], number
        exchange.begin_stream()
    exchange.received_have([])
    assert sent(exchange) == []
    payload = event(revocation(1))
    for _ in range(ACCEPTED):
        assert exchange.receive(payload, 0.0) is not None
        exchange.begin_stream()
    assert exchange.receive(payload, 0.0) is None
    assert exchange.receive(payload, STATEMENT_EVENTS_ACCEPTED.seconds) is not None


def test_events_above_the_rate_are_not_read() -> None:
    exchange = StatementExchange({})
    for _ in range(ACCEPTED):
        exchange.receive(event(revocation(1)), 0.0)
    assert exchange.receive(b"\xff", 0.0) is None
    with pytest.raises(LbmDecodeError):
        exchange.receive(b"\xff", STATEMENT_EVENTS_ACCEPTED.seconds)


def test_wrong_signatures_count_as_events() -> None:
    exchange = StatementExchange({})
    assert exchange.receive(event(revocation(0)), 0.0) is not None
    counted = [exchange.count_wrong_signature(0.0) for _ in range(ACCEPTED)]
    assert counted == [True] * (ACCEPTED - 1) + [False]
    assert exchange.receive(event(revocation(0)), 0.0) is None
    seconds = STATEMENT_EVENTS_ACCEPTED.seconds
    assert exchange.receive(event(revocation(0)), seconds) is not None
    assert not exchange.count_wrong_signature(seconds)


def test_a_reader_accepts_twice_what_a_sender_sends() -> None:
    assert STATEMENT_EVENTS_ACCEPTED.burst == 2 * STATEMENT_EVENTS.burst
    assert STATEMENT_EVENTS_ACCEPTED.seconds == STATEMENT_EVENTS.seconds / 2


def test_slots_that_were_not_stored_are_forgotten() -> None:
    """A member could send any number of them."""
    exchange = StatementExchange(by_slot([revocation(0)]))
    exchange.received_have([revocation(0).slot])
    seconds = STATEMENT_EVENTS_ACCEPTED.seconds
    for turn in range(50):
        statements = [revocation(turn * 10 + number) for number in range(10)]
        assert exchange.receive(event(*statements), turn * seconds) is not None
    # Of those that another member brings later, only the last ones are not sent back.
    exchange.share(by_slot(map(revocation, range(500))))
    assert [one for each in sent(exchange) for one in each] == [
        *map(revocation, range(1, 490)),
    ]


def test_have_lists_at_most_1024_slots() -> None:
    shared = {number.to_bytes(32): revocation(0) for number in range(MOST_SLOTS + 1)}
    exchange = StatementExchange(shared)
    slots = exchange.slots()
    assert slots == list(shared)[:MOST_SLOTS]
    assert HAVE.read(encode({keys.HAVE: [], keys.SLOTS: slots}))[keys.SLOTS] == slots
    have = [[bytes(32), 2**64 - 1]] * 1_024
    assert len(encode({keys.HAVE: have, keys.SLOTS: slots})) == 79_883


# The same in a directory.


def linked() -> Directory:
    directory = Directory(identity(0), map(node_id, range(1, 4)))
    for one in (ONE, TWO):
        directory.link_up(one, 0, MS)
        directory.begin_exchange(one)
        directory.receive(one, codes.HAVE, EMPTY_HAVE, 0, MS)
        drained(directory, one)
    return directory


def drained(directory: Directory, neighbour: NodeId) -> list[Statement]:
    """Take all events for a neighbour; return the statements in them."""
    found = []
    while (sent := directory.next_event(neighbour, 0)) is not None:
        if sent.subcategory == codes.STATEMENTS:
            found += statements_in(sent.payload)
    return found


def test_news_goes_to_all_but_its_sender() -> None:
    directory = linked()
    payload = event(revocation(1))
    assert directory.receive_statements(ONE, payload, 0) == [revocation(1).encoded]
    assert directory.ready(0) == []
    directory.share_statements([revocation(1)], 0, MS)
    assert directory.ready(0) == [TWO]
    assert drained(directory, ONE) == []
    assert drained(directory, TWO) == [revocation(1)]
    # Before a new stream the member may have lost or dropped it.
    for one in (ONE, TWO):
        directory.begin_exchange(one)
        directory.next_event(one, 0)
        directory.receive(one, codes.HAVE, EMPTY_HAVE, 0, MS)
        assert drained(directory, one) == [revocation(1)]


def test_the_deadline_is_that_of_the_next_event() -> None:
    directory = linked()
    for number in range(BURST + 1):
        directory.share_statements(map(revocation, range(number + 1)), 0, MS)
        drained(directory, ONE)
        drained(directory, TWO)
    assert directory.ready(0) == []
    assert directory.next_deadline(0) == pytest.approx(STATEMENT_EVENTS.seconds)
    assert directory.ready(STATEMENT_EVENTS.seconds) == [ONE, TWO]


def test_a_member_that_left_has_no_exchange() -> None:
    directory = linked()
    directory.change_members([TWO], [], 0, MS)
    assert directory.receive_statements(ONE, event(revocation(1)), 0) == []
    directory.share_statements([revocation(1)], 0, MS)
    directory.begin_exchange(TWO)
    assert directory.next_event(ONE, 0) is None
    assert not directory.count_wrong_signature(ONE, 0)


def test_a_violation_ends_the_exchange_and_not_the_link() -> None:
    directory = linked()
    with pytest.raises(RemoteProtocolError):
        directory.receive_statements(ONE, b"\xff", 0)
    assert directory.receive_statements(ONE, event(revocation(1)), 0) == []
    assert ONE in directory.links
