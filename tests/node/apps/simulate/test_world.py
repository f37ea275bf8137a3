"""A simulation is the same on each event loop, and its journals match its counts."""

from collections import Counter

import anyio

from parley._node.apps.simulate.plan import Plan, Traffic
from parley._node.apps.simulate.tally import count
from parley._node.apps.simulate.world import entered
from tests.node.apps.simulate.journals import Audited, Simulated, run
from tests.node.network import settled


def test_a_seed_gives_the_same_traffic_on_both_event_loops() -> None:
    plan = Plan(nodes=3, minutes=0.1, seed=3)
    traffic = run(plan).fields()
    assert run(plan, backend="trio").fields() == traffic
    assert traffic["sessions"] >= 3
    assert traffic["calls"]["kv.get"]["accepted"] > 10
    assert traffic["received"]["market.ticks"] > 100


def test_only_the_traffic_that_is_asked_for() -> None:
    calls = frozenset({Traffic.CALLS})
    tally = run(Plan(nodes=2, minutes=0.05, traffic=calls, payload=16, rate=10, mixed=False))
    assert {topic for topic, _ in tally.calls} == {"kv.get", "kv.put"}
    assert tally.sessions == 1
    assert not tally.published.total() + tally.emits.total() + tally.files.total()


async def test_hundreds_of_nodes_are_cancelled_at_once(anyio_backend: str) -> None:
    # Twice as many as the nested scopes that asyncio's backend can cancel.
    with anyio.CancelScope() as scope:
        async with entered(anyio.create_task_group() for _ in range(2_000)):
            await settled()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught


def test_the_journals_say_what_the_applications_saw(simulated: Simulated, audited: Audited) -> None:
    tally = simulated.tally
    assert audited.findings == []
    assert {event["status"] for event in audited.events} <= {"ok", "unsealed"}
    starts = [session for session in audited.sessions if session.what == "start"]
    assert len(starts) == 2 * tally.sessions
    assert len({session.suite for session in starts}) > 2
    assert any(session.generation for session in audited.sessions)  # a rekey
    calls: Counter[str] = Counter()
    results: Counter[int] = Counter()
    notes: Counter[str] = Counter()
    for event in audited.events:
        if event["type"] == "call" and event["direction"] == "sent":
            calls[event["topic"]] += 1
        elif event["type"] == "result" and event["direction"] == "received":
            results[event["code"]] += 1
        elif event["type"] in ("notes", "notify") and event["direction"] == "received":
            notes[event["topic"]] += 1
    outcomes = tally.outcomes()
    for code in (1, 20, 64):
        assert results[code] == outcomes[str(code)]
    # Cancelled calls also have an answer, unless the connection ended first.
    assert results[17] + results[18] <= outcomes["late"]
    made = sum(count for (topic, _), count in tally.calls.items() if topic == "nowhere")
    lost = outcomes["lost"]
    assert made - lost <= calls["nowhere"] <= made
    assert tally.calls.total() - lost <= calls.total() <= tally.calls.total()
    # More notes are received than read if a session ends early.
    assert all(notes[topic] >= number for topic, number in tally.received.items())


def test_what_is_counted_in_journals(simulated: Simulated, audited: Audited) -> None:
    counts = count(simulated.directory)
    events = {(e["journal"], e["direction"], e["session"], e["place"]) for e in audited.events}
    proofs = 2 * counts.records["session start"]
    assert counts.total() == len(events) - proofs
    assert sum(found.total() for found in counts.events.values()) == counts.total()
    assert counts.segments == counts.records["segment end"] > 4
    assert counts.fields()["size"] == counts.size > 0
