"""Ten real servers and forty nodes under cuts, stalls, crashes and wrong clocks.

Each request is executed once, every loss is reported, and all work is finished once the faults end.
`--hours` sets the simulated hours. Runs with the same seed are identical.
"""

import logging

import pytest

from parley._node.errors import ParleyError
from tests.node.server.whole.ledger import Job, Ledger, Reading
from tests.node.server.whole.run import run_whole
from tests.node.server.whole.world import Plan


@pytest.mark.slow
def test_whole_network(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "parley"):
        ledger = run_whole(plan)
    print(f"\n{plan}: {ledger.trace}")  # for `-s`
    print("\n".join(f"  {what}: {count}" for what, count in sorted(ledger.counts.items())))
    assert ledger.wrong == []
    assert [record.getMessage() for record in caplog.records] == []
    for what in ("cuts", "crashes", "call, answered", "call once, answered", "notes read"):
        assert ledger.counts[what]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace() -> None:
    plan = Plan(seed=1, hours=0.06, servers=4, accounts=6, pause=240.0, cuts=120.0, crashes=60.0)
    one, again = run_whole(plan), run_whole(plan)
    assert one.wrong == []
    assert one.counts["cuts"]
    assert one.counts["crashes"]
    assert (one.trace, one.counts) == (again.trace, again.counts)


# Errors that the ledger must find.


def ledger() -> Ledger:
    return Ledger(lambda: 1.0)


def test_ledger_finds_duplicated_misplaced_and_missing_work() -> None:
    found = ledger()
    job = found.begin(Job("call 1 of node 2", "server 3", once=True))
    found.ran(job.name, "server 3")
    found.answered(job)
    assert found.wrong == []
    found.ran(job.name, "server 3")
    found.ran(found.begin(Job("call 2 of node 2", "server 3", once=False)).name, "server 4")
    found.answered(found.begin(Job("call 3 of node 2", "server 3", once=False)))
    assert found.wrong == [
        "1.000 call 1 of node 2 ran 2 times",
        "1.000 call 2 of node 2 was for server 3 and ran at server 4",
        "1.000 call 3 of node 2 is answered and ran 0 times",
    ]


def test_ledger_finds_unreported_losses_and_duplicates() -> None:
    found = ledger()
    for life in range(2):
        found.born("server 0")
        for number in range(1, 5):
            found.begin(Job(f"note {life} {number}", "server 0", once=True))
            found.note("server 0", f"note {life} {number}")
    reader = Reading(found, "node 1")
    for name, told, wrong in (
        ("note 0 1", 0, 0),
        ("note 0 3", 1, 0),  # the first gap was reported
        ("note 0 3", 0, 1),
        ("note 1 1", 0, 2),  # the new history was not
        ("note 1 2", 0, 2),
        ("note 1 4", 0, 3),
    ):
        reader.take(name, told)
        assert len(found.wrong) == wrong
    reader.tell(ParleyError())
    found.born("server 0")
    found.begin(Job("note 2 1", "server 0", once=True))
    found.note("server 0", "note 2 1")
    reader.take("note 2 1", 0)
    assert len(found.wrong) == 3
