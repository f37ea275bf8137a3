"""Tests of node/messaging/outgoing_calls.py: bounds and credit of unread Chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.outgoing_calls import ChunkInbox
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import MemoryBudget


class Reader:
    """An inbox that records its reports."""

    def __init__(self, size: int) -> None:
        self.woken = 0
        self.granted: list[int] = []
        self.inbox = ChunkInbox(size, self.wake, self.granted.append, MemoryBudget(1 << 20))

    def wake(self) -> None:
        self.woken += 1


def item(data: object, size: int = 0) -> bytes:
    """A Chunk's payload, with noise up to `size`."""
    cells = {keys.DATA: data, **({keys.NOISE: bytes(size)} if size else {})}
    return encode(cells)  # type: ignore[arg-type]  # LBM values


def test_items_come_out_as_they_went_in() -> None:
    reader = Reader(10_000)
    for data in (1, None, [2], {"a": b"x"}):
        reader.inbox.put(item(data))
    reader.inbox.put(encode({}))  # an absent cell is null
    assert (len(reader.inbox), reader.woken) == (5, 5)
    assert [reader.inbox.take() for _ in range(5)] == [1, None, [2], {"a": b"x"}, None]
    assert not reader.inbox
    with pytest.raises(IndexError):
        reader.inbox.take()


def test_a_chunk_that_the_connection_has_no_memory_for_is_not_kept() -> None:
    account = MemoryBudget(1_000)
    inbox = ChunkInbox(1 << 20, lambda: None, lambda credit: None, account)
    assert inbox.put(item(1, 500))
    held = account.held
    assert not inbox.put(item(2, 500))
    assert (len(inbox), account.held) == (1, held)
    inbox.clear()
    assert account.held == 0


def test_credit_comes_back_when_half_was_read_and_not_when_it_came() -> None:
    payload = item(1)
    cost = len(payload) + EVENT_COST
    reader = Reader(4 * cost)
    for _ in range(4):
        reader.inbox.put(payload)
    assert reader.granted == []
    reader.inbox.take()
    assert reader.granted == []
    reader.inbox.take()
    assert reader.granted == [2 * cost]


def test_one_chunk_may_go_below_and_the_next_is_a_violation() -> None:
    reader = Reader(1)
    reader.inbox.put(item(bytes(1000)))
    with pytest.raises(RemoteProtocolError) as caught:
        reader.inbox.put(item(1))
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    assert len(reader.inbox) == 1


def test_noise_counts() -> None:
    reader = Reader(500)
    reader.inbox.put(item(1, 500))
    with pytest.raises(RemoteProtocolError):
        reader.inbox.put(item(1))


@pytest.mark.parametrize("payload", [b"", b"junk", b"\x80"])
def test_a_malformed_chunk_is_its_reader_s_matter_and_gives_its_credit_back(payload: bytes) -> None:
    reader = Reader(1)
    reader.inbox.put(payload)
    with pytest.raises(LbmDecodeError):
        reader.inbox.take()
    assert reader.granted == [len(payload) + EVENT_COST]


def test_clearing_forgets_and_grants_nothing() -> None:
    reader = Reader(10)
    reader.inbox.put(item(1))
    reader.inbox.clear()
    assert (len(reader.inbox), reader.granted) == (0, [])


@given(st.integers(1, 2000), st.lists(st.one_of(st.integers(0, 300), st.none()), max_size=60))
def test_an_honest_sender_is_never_at_fault_and_what_waits_is_bounded(
    size: int, steps: list[int | None]
) -> None:
    """None reads an item; a number sends one of that size if there is credit."""
    reader = Reader(size)
    credit, waiting = size, 0
    for step in steps:
        if step is None and reader.inbox:
            before = len(reader.granted)
            data = reader.inbox.take()
            assert isinstance(data, bytes)
            waiting -= len(item(data)) + EVENT_COST
            credit += sum(reader.granted[before:])
        elif step is not None and credit > 0:
            cost = len(item(bytes(step))) + EVENT_COST
            reader.inbox.put(item(bytes(step)))
            credit -= cost
            waiting += cost
            assert waiting - cost < size
    while reader.inbox:
        reader.inbox.take()
    # All chunks were read: there is credit to continue, whatever the order was.
    assert credit + sum(reader.granted) > 0
