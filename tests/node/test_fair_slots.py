"""Tests of node/fair_slots.py: which holder is evicted when a shared limit is reached."""

from hypothesis import given
from hypothesis import strategies as st

from parley._node.fair_slots import IDLE, FairSlots


def slots(**idle: float | None) -> FairSlots[str]:
    """Create slots whose holders are named after their owner, such as `a1`, with the times since
    which they are idle.
    """
    made: FairSlots[str] = FairSlots(idle.__getitem__)
    for holder in idle:
        made.add(holder, holder[0])
    return made


def test_the_identity_with_the_most_slots_loses_its_longest_idle_one() -> None:
    held = slots(a1=3.0, a2=1.0, a3=2.0, b1=0.0)
    assert held.evict_for("c", 3.0) == "a2"
    assert (len(held), held.count("a"), held.count("c")) == (3, 2, 0)
    held.add("c1", "c")
    held.remove("a2")  # counted until it is removed
    assert (len(held), held.count("a")) == (4, 2)


def test_among_equals_only_an_idle_holder_is_evicted() -> None:
    held = slots(a1=0.0, b1=1.0)
    assert held.evict_for("c", IDLE - 0.1) is None
    assert held.evict_for("c", IDLE) == "a1"
    assert held.evict_for("b", IDLE) is None
    assert held.evict_for("b", IDLE + 1) == "b1"  # its own
    assert len(held) == 0


def test_a_holder_at_work_is_not_evicted() -> None:
    assert slots(a1=None, a2=None, a3=None).evict_for("b", 1e9) is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 100)), min_size=1, max_size=12),
    st.sampled_from("abcde"),
)
def test_an_identity_never_loses_a_slot_to_one_that_has_more(
    found: list[tuple[str, float]], owner: str
) -> None:
    held: FairSlots[int] = FairSlots(lambda holder: found[holder][1])
    for number, (who, _) in enumerate(found):
        held.add(number, who)
    counts = {who: held.count(who) for who in "abcde"}
    evicted = held.evict_for(owner, 100.0)
    if evicted is not None:
        loser = found[evicted][0]
        assert counts[loser] == max(counts.values()) or found[evicted][1] <= 100.0 - IDLE
        assert counts[loser] >= counts[owner]
        assert held.count(loser) == counts[loser] - 1
    else:
        assert max(counts.values()) < counts[owner] + 2
