"""A simulated federation: its invariants hold, and a deliberate fault is found."""

from collections import Counter

import pytest

from parley._node.protocol.codes import ResultCode
from tests.node.apps.simulate.federation.checks import check
from tests.node.apps.simulate.federation.plan import FederationPlan, Misbehaviour
from tests.node.apps.simulate.federation.world import FederationWorld

# The claims that each fault violates.
BREAKS = {
    Misbehaviour.TWICE: "cards",
    Misbehaviour.OLD: "cards",
    Misbehaviour.DEAF: "ends",
    Misbehaviour.LIE: "truth",
    Misbehaviour.FORK: "dials",
    Misbehaviour.BACK: "dials",
}
# Every server ends with the newest card of each other server. The cards at the end state which
# servers are linked, and which carry. Each card passes each link session at most once in each
# direction. No Dial visits a server twice, or is forwarded more than 7 times. Paths are as short
# as possible, and all servers on them carry. A Dial reaches every server that has a path.
CLAIMS = {"ends", "truth", "cards", "dials", "paths", "reach"}


def run(plan: FederationPlan) -> tuple[FederationWorld, Counter[str]]:
    """Run a plan and check the result. Returns how often each claim was tested, too."""
    world = FederationWorld(plan)
    world.run()
    return world, check(world)


@pytest.mark.parametrize(
    "plan",
    [
        FederationPlan(servers=2, seed=1, minutes=2, cuts=90),
        FederationPlan(servers=24, seed=2, links=3, minutes=4),
        # Faults all the time, few servers that carry, and clocks as far apart as allowed.
        FederationPlan(servers=7, seed=3, cuts=90, crashes=40, loss=0.2, carry=0.5, dials=10),
        # Longer than a card is valid, on a ring: expired cards are deleted.
        FederationPlan(servers=6, seed=4, links=2, minutes=70, cuts=2, crashes=1, dials=0.2),
    ],
    ids=lambda plan: f"{plan.servers} servers",
)
def test_all_claims_hold(plan: FederationPlan) -> None:
    world, checked = run(plan)
    assert world.breaches.kept == []
    assert set(checked) == CLAIMS
    assert all(checked.values())
    assert checked["ends"] == plan.servers**2
    assert world.happened["cut"]
    assert world.spread.taken_count >= plan.servers * (plan.servers - 1)
    assert world.answers[0]


def test_the_same_seed_gives_the_same_trace() -> None:
    plan = FederationPlan(servers=6, seed=5, minutes=2)
    (world, checked), (again, checked_again) = run(plan), run(plan)
    assert (again.trace, again.happened, checked_again) == (world.trace, world.happened, checked)
    assert run(FederationPlan(servers=6, seed=6, minutes=2))[0].trace != world.trace


@pytest.mark.parametrize("misbehaviour", Misbehaviour)
def test_fault_of_one_server_is_found(misbehaviour: Misbehaviour) -> None:
    plan = FederationPlan(servers=8, links=3, minutes=3, carry=1, misbehaviour=misbehaviour)
    world, _ = run(plan)
    assert world.breaches.counts[BREAKS[misbehaviour]] > 0
    if BREAKS[misbehaviour] in ("cards", "truth"):
        assert set(world.breaches.counts) == {BREAKS[misbehaviour]}


def test_without_faults_cards_settle_and_cross_each_link_once_or_twice() -> None:
    world = FederationWorld(
        FederationPlan(servers=16, links=4, minutes=0, cuts=0, crashes=0, dials=0)
    )
    world.run()
    assert world.spread.last_taken - world.last_opened < 6
    passes = world.happened["cards passed on"] / world.spread.made_count
    assert len(world.links) * 0.8 < passes < len(world.links) * 2
    assert max(world.spread.seconds) < 1
    check(world)
    assert world.breaches.kept == []


def test_a_dial_without_a_path_is_unreachable() -> None:
    # No server relays: a server reaches only its neighbours.
    plan = FederationPlan(servers=8, links=2, carry=0, minutes=5, dials=4, cuts=0, crashes=0)
    world, checked = run(plan)
    assert world.breaches.kept == []
    assert checked["reach"] == 16
    assert world.answers[ResultCode.UNREACHABLE] > 0
