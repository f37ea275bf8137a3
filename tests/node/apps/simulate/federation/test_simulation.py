"""A simulated federation as a whole: what holds, the same each time, and a fault that is planted
is found."""

import subprocess
import sys

import pytest

from parley._node.protocol.codes import ResultCode
from tests.node.apps.simulate.federation.plan import FederationPlan, Misbehaviour
from tests.node.apps.simulate.federation.report import CLAIMS, FederationReport
from tests.node.apps.simulate.federation.run import simulate_federation

# What each misbehaviour breaks.
BREAKS = {
    Misbehaviour.TWICE: "cards",
    Misbehaviour.OLD: "cards",
    Misbehaviour.DEAF: "ends",
    Misbehaviour.LIE: "truth",
    Misbehaviour.FORK: "dials",
    Misbehaviour.BACK: "dials",
}
PLAN = FederationPlan(servers=6, seed=3, minutes=2)


def run(plan: FederationPlan) -> FederationReport:
    return simulate_federation(plan, lambda *_: None)


@pytest.mark.parametrize(
    "plan",
    [
        FederationPlan(servers=2, seed=1, minutes=2, cuts=90),
        FederationPlan(servers=24, seed=2, links=3, minutes=4),
        # Faults all the time, hardly anybody who carries, and clocks as far apart as may be.
        FederationPlan(servers=7, seed=3, cuts=90, crashes=40, loss=0.2, carry=0.5, dials=10),
        # Longer than a card is valid, on a ring: what has gone is forgotten.
        FederationPlan(servers=6, seed=4, links=2, minutes=70, cuts=2, crashes=1, dials=0.2),
    ],
    ids=lambda plan: f"{plan.servers} servers",
)
def test_all_that_is_claimed_holds(plan: FederationPlan) -> None:
    report = run(plan)
    assert report.breaches == []
    assert report.held
    assert set(report.checked) == set(CLAIMS)
    assert all(report.checked.values())
    assert report.checked["ends"] == plan.servers**2
    assert report.happened["cut"]
    assert report.happened["cards taken"] >= plan.servers * (plan.servers - 1)
    assert report.answers[0]
    assert report.memory > 1_000
    assert report.settled is None


def test_the_same_seed_gives_the_same_trace() -> None:
    plan = FederationPlan(servers=6, seed=5, minutes=2)
    lines = list[str]()
    report = simulate_federation(plan, lambda *_: None, lines.append)
    again = run(plan)
    assert again.fields() == report.fields()
    assert len(report.trace) == 64
    assert len(lines) == sum(report.happened[what] for what in {line.split()[1] for line in lines})
    assert run(FederationPlan(servers=6, seed=6, minutes=2)).trace != report.trace


@pytest.mark.parametrize("misbehaviour", Misbehaviour)
def test_what_one_server_does_wrong_is_found(misbehaviour: Misbehaviour) -> None:
    plan = FederationPlan(servers=8, links=3, minutes=3, carry=1, misbehaviour=misbehaviour)
    report = run(plan)
    assert report.broken[BREAKS[misbehaviour]] > 0
    if BREAKS[misbehaviour] in ("cards", "truth"):
        assert set(report.broken) == {BREAKS[misbehaviour]}


def test_without_faults_cards_settle_and_cross_each_link_once_or_twice() -> None:
    plan = FederationPlan(servers=16, links=4, minutes=0, cuts=0, crashes=0, dials=0)
    report = run(plan)
    assert report.held
    assert report.settled is not None
    assert report.settled < 6
    passes = report.happened["cards passed on"] / report.happened["cards made"]
    assert report.links * 0.8 < passes < report.links * 2
    assert max(report.spread) < 1


def test_who_is_cut_off_is_dialled_in_vain() -> None:
    # Nobody carries: only neighbours are reached.
    report = run(FederationPlan(servers=8, links=2, carry=0, minutes=5, dials=4, cuts=0, crashes=0))
    assert report.held
    assert report.checked["reach"] == 16
    assert report.answers[ResultCode.UNREACHABLE] > 0


@pytest.mark.process
def test_another_process_gives_the_same_trace() -> None:
    code = (
        "from tests.node.apps.simulate.federation.plan import FederationPlan\n"
        "from tests.node.apps.simulate.federation.run import simulate_federation\n"
        f"print(simulate_federation({PLAN!r}, lambda *_: None).trace)"
    )
    # Sets of bytes are in another order there.
    env = {"PYTHONHASHSEED": "7", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == run(PLAN).trace
