"""Unread events of one reader: order, credit, and unreadable ones."""

import pytest

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, encode
from parley._node.messaging.inbox import UNPAID_LIMIT, NoteInbox
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.protocol.codes import NOTES, NOTIFY
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget


class Reader:
    """An inbox, how often its reader was woken, and the credit that was given back."""

    def __init__(self) -> None:
        self.woken = 0
        self.consumed: list[int] = []
        self.events = 0
        self.account = MemoryBudget(1 << 21)
        self.inbox = NoteInbox(self.wake, self.consume, self.account)

    def wake(self) -> None:
        self.woken += 1

    def consume(self, cost: int, count: int) -> None:
        self.consumed.append(cost)
        self.events += count

    def notify(self, data: Encodable, headers: dict[str, Encodable] | None = None) -> None:
        cells: dict[int, Encodable] = {keys.DATA: data}
        if headers:
            cells[keys.HEADERS] = headers
        assert self.inbox.put(NOTIFY, encode(cells), 100)

    def take(self) -> list[Value]:
        return self.inbox.take()[0]


def test_events_are_taken_in_their_order_and_their_credit_goes_back_when_used() -> None:
    reader = Reader()
    reader.notify(1, {"a": 2})
    assert reader.inbox.put(NOTES, encode({keys.NOTES: [2, 3]}), 70)
    assert (reader.woken, len(reader.inbox)) == (2, 2)
    assert reader.inbox.take() == ([1], {"a": 2})
    assert reader.consumed == []
    assert reader.inbox.take() == ([2, 3], {})
    reader.inbox.used()
    assert reader.consumed == [170]
    reader.inbox.used()
    assert (reader.consumed, reader.events) == ([170], 2)
    with pytest.raises(IndexError):
        reader.take()


@pytest.mark.parametrize(
    ("subcategory", "payload"),
    [
        (NOTIFY, b""),
        (NOTIFY, b"junk"),
        (NOTIFY, encode({keys.HEADERS: []})),
        (NOTES, b"junk"),
        (NOTES, encode({keys.NOTES: 1})),
        (NOTES, encode({keys.NOTES: [0] * 4_097})),
    ],
)
def test_what_is_malformed_is_counted_and_its_credit_goes_back(
    subcategory: int, payload: bytes
) -> None:
    reader = Reader()
    assert reader.inbox.put(subcategory, payload, 100)
    assert reader.take() == []
    assert reader.inbox.malformed == 1
    reader.inbox.used()
    assert reader.consumed == [100]


def test_the_count_of_what_was_lost() -> None:
    reader = Reader()
    told: list[Encodable] = [5, 9, 3, "20", -1, True, None]
    for count in told:
        reader.notify(0, {DROPPED_HEADER: count})
    counts = []
    while reader.inbox:
        reader.take()
        counts.append(reader.inbox.dropped)
    assert counts == [5, 9, 9, 9, 9, 9, 9]


def test_what_costs_nothing_is_bounded() -> None:
    reader = Reader()
    payload = encode({keys.DATA: bytes(10_000)})
    fits = UNPAID_LIMIT // (len(payload) + EVENT_WEIGHT)
    assert [reader.inbox.put(NOTIFY, payload, 0) for _ in range(fits + 2)] == [
        *[True] * fits,
        False,
        False,
    ]
    reader.notify("paid for")
    assert reader.take() == [bytes(10_000)]
    assert reader.inbox.put(NOTIFY, payload, 0)
    assert not reader.inbox.put(NOTIFY, payload, 0)
    reader.inbox.used()
    assert reader.consumed == []


def test_nothing_is_kept_for_who_left() -> None:
    reader = Reader()
    reader.notify(1)
    reader.notify(2)
    reader.inbox.put(NOTIFY, encode({}), 0)
    reader.take()
    reader.inbox.close()
    assert sorted(reader.consumed) == [100, 100]
    assert len(reader.inbox) == 0
    woken = reader.woken
    reader.notify(3)
    assert reader.consumed == [100, 100, 100]
    assert (len(reader.inbox), reader.woken) == (0, woken)
