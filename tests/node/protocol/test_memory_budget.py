"""Tests of node/protocol/memory_budget.py: a charge counts in each budget that it belongs to."""

from parley._node.protocol.memory_budget import MemoryBudget


def test_what_is_charged_counts_in_all_accounts_above() -> None:
    node = MemoryBudget(1_000)
    peer = MemoryBudget(500, node)
    emit = MemoryBudget(400, peer)
    emit.charge(300)
    assert (emit.held, peer.held, node.held) == (300, 300, 300)
    peer.charge_shared(100)
    assert (emit.held, peer.held, node.held) == (300, 400, 300)
    peer.charge_shared(-100)
    emit.release(300)
    assert (emit.held, peer.held, node.held) == (0, 0, 0)


def test_there_is_room_where_all_have_it() -> None:
    node = MemoryBudget(1_000)
    one, other = MemoryBudget(800, node), MemoryBudget(800, node)
    assert one.has_room(800)
    assert not one.has_room(801)
    other.charge(700)
    assert one.has_room(300)
    assert not one.has_room(301)


def test_whoever_holds_little_has_room_however_full_the_total_is() -> None:
    node = MemoryBudget(1_000)
    MemoryBudget(2_000, node).charge(1_500)
    small, none = MemoryBudget(500, node, share=100), MemoryBudget(500, node)
    assert small.has_room(100)
    assert not small.has_room(101)
    assert not none.has_room()
    assert "0 of 500" in repr(none)
