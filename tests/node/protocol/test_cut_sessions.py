"""Tests of sessions that are cut anywhere: everything arrives once and in order, and journals
verify.
"""

from random import Random  # noqa: TID251 - where to cut

import pytest

from tests.node.protocol.cut_pair import parted
from tests.node.protocol.cut_session import CutSession, check, uncut

# Number of tested positions among all bytes, and of random pairs.
STRIDE, PAIRS, MANY_PAIRS = 67, 30, 10_000


def test_without_a_cut_all_of_it_happens() -> None:
    told, carried = uncut()
    assert [told_one[-2] for told_one in told] == ["ended 1 bye", "ended 1 bye"]
    assert told[0][-1] == "1 Pongs"
    assert sum("rekey=1" in line for line in told[0]) == 1
    assert carried > 3_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cut_after_each_byte(every_cut: bool) -> None:
    for place in range(1, uncut()[1], 1 if every_cut else STRIDE):
        check(CutSession((place,)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("there", [True, False])
def test_a_cut_after_each_byte_of_one_direction(there: bool, every_cut: bool) -> None:
    whole = CutSession((), there=there).run().carried
    for place in range(1, whole, 1 if every_cut else STRIDE):
        check(CutSession((place,), there=there))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_cuts_anywhere(every_cut: bool) -> None:
    random = Random(17)
    for _ in range(MANY_PAIRS if every_cut else PAIRS):
        place = random.randrange(1, uncut()[1])
        # The second cut may be in the Resume, Resumed or retransmission after the first.
        session = CutSession((place, place + random.randrange(0, 1_000)), journals=True)
        check(session)
        assert parted(session.pair.b) <= 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_journals_verify(every_cut: bool) -> None:
    whole = CutSession((), journals=True).run()
    for place in range(1, whole.carried, 1 if every_cut else 9 * STRIDE):
        check(CutSession((place,), journals=True))


def test_a_cut_after_every_few_bytes() -> None:
    session = CutSession(range(50, 8_000, 230)).run()
    assert session.told() == uncut()[0]
    assert parted(session.pair.a) > 10
