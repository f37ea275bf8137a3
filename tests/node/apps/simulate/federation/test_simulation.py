"""A simulated federation as a whole: what holds, the same each time, and a fault that is planted
is found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from node.apps.simulate.federation.plan import FederationPlan, Misbehaviour
from node.apps.simulate.federation.report import CLAIMS, FederationReport
from node.apps.simulate.federation.run import simulate_federation
from node.protocol.codes import ResultCode
from tests.node.cli.conftest import Parley

# What each misbehaviour breaks.
BREAKS = {
    Misbehaviour.TWICE: "cards",
    Misbehaviour.OLD: "cards",
    Misbehaviour.DEAF: "ends",
    Misbehaviour.LIE: "truth",
    Misbehaviour.FORK: "dials",
    Misbehaviour.BACK: "dials",
}
ARGUMENTS = ("simulate", "federation", "--servers", "6", "--seed", "3", "--minutes", "2")


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


def test_the_command_says_what_held(parley: Parley, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = parley(*ARGUMENTS, "--trace", str(trace))
    assert done.code == 0, done.err
    for word in ("cards passed on", "what held", "simulated  ", "trace      "):
        assert word in done.out
    assert len(trace.read_text().splitlines()) > 100
    as_json = parley(*ARGUMENTS, "--json")
    assert as_json.code == 0
    (last,) = as_json.lines
    assert (last["event"], last["held"], last["servers"]) == ("done", True, 6)
    assert last["trace"] in done.out


def test_the_command_says_what_did_not_hold(parley: Parley) -> None:
    done = parley(*ARGUMENTS, "--misbehave", "lie", "--json")
    assert done.code == 7
    broken, last = done.lines
    assert (broken["event"], broken["claim"]) == ("broken", "truth")
    assert (last["held"], last["broken"]["truth"]) == (False, 1)
    done = parley(*ARGUMENTS, "--misbehave", "lie")
    assert done.code == 7
    assert re.search(r"^broken     at [\d.]+ s, truth: server ", done.out, re.MULTILINE)


@pytest.mark.process
def test_another_process_gives_the_same_trace(parley: Parley) -> None:
    program = [sys.executable, "-m", "parley", *ARGUMENTS, "--json"]
    # Sets of bytes are in another order there.
    env = {"PYTHONHASHSEED": "7", "PATH": ""}
    there = subprocess.run(program, capture_output=True, text=True, check=True, env=env)
    assert parley(*ARGUMENTS, "--json").last["trace"] in there.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seed", "1", "federation"], "options stand behind federation"),
        (["federation", "--servers", "1"], "Invalid value for '--servers'"),
        (["federation", "--servers", "1025"], "Invalid value for '--servers'"),
        (["federation", "--clocks", "241"], "Invalid value for '--clocks'"),
        (["federation", "--misbehave", "x"], "Invalid value for '--misbehave'"),
        (["federation", "--minutes", "nan"], "Invalid value for '--minutes'"),
        ([], "Missing option '--journals'."),
    ],
)
def test_what_is_asked_for_must_make_sense(
    parley: Parley, arguments: list[str], sentence: str
) -> None:
    done = parley("simulate", *arguments)
    assert done.code == 2
    assert sentence in done.err
