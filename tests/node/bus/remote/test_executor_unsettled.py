"""Unsettled events of open and of ended streams, whose numbers are limited."""

from parley._node.bus.remote.executor import OrphanedDeliveries, Unsettled
from parley._node.protocol.memory_budget import MemoryBudget

PLACE = ("a.b", "g", "c")


def test_only_delivered_events_are_known() -> None:
    handed = Unsettled(MemoryBudget(1 << 20))
    handed.add(PLACE, ["1-0", "2-0"])
    assert handed.known("a.b", "g", ["1-0", "3-0"]) == ["1-0"]
    assert handed.known("a.b", "other", ["1-0"]) == []
    handed.settle("a.b", "g", ["1-0", "9-9"])
    assert handed.known("a.b", "g", ["1-0", "2-0"]) == ["2-0"]


def test_the_oldest_are_forgotten() -> None:
    handed = Unsettled(MemoryBudget(1 << 20), most=3)
    handed.add(PLACE, [f"{n}-0" for n in range(5)])
    assert handed.known("a.b", "g", [f"{n}-0" for n in range(5)]) == ["2-0", "3-0", "4-0"]
    left = OrphanedDeliveries(most=2)
    handed.leave(left)
    assert (len(handed), len(left)) == (0, 2)
    assert left.take(PLACE, 9) == ["3-0", "4-0"]


def test_orphaned_events_go_to_their_consumer_once() -> None:
    left = OrphanedDeliveries()
    for n in range(3):
        left.add(PLACE, f"{n}-0")
    left.add(("a.b", "g", "another"), "7-0")
    assert left.take(PLACE, 2) == ["0-0", "1-0"]
    assert left.take(PLACE, 2) == ["2-0"]
    assert left.take(PLACE, 2) == []
    assert len(left) == 1
