"""A simulated federation from its plan to its report."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.node.apps.simulate.federation.checks import check
from tests.node.apps.simulate.federation.plan import FederationPlan
from tests.node.apps.simulate.federation.report import FederationReport
from tests.node.apps.simulate.federation.weight import weigh
from tests.node.apps.simulate.federation.world import FederationWorld, Passed

# Servers that are weighed; the others are like them.
_WEIGHED: Final = 4


def simulate_federation(
    plan: FederationPlan,
    passed: Passed,
    written: Callable[[str], object] | None = None,
) -> FederationReport:
    """Run a plan; `passed` is told how many simulated seconds are over, and of how many;
    `written` each line of the trace."""
    world = FederationWorld(plan, written)
    world.run(passed)
    sent = sum(link.bytes for link in world.links)
    simulated, events, spread = world.agenda.now, world.agenda.happened, world.spread
    checked = check(world)
    refused: Counter[str] = Counter()
    for server in world.servers:
        refused.update(server.core.cards.refused)
    weighed = world.servers[:: -(-len(world.servers) // _WEIGHED)]
    steady = not world.happened["cut"]
    return FederationReport(
        servers=plan.servers,
        links=len(world.links),
        simulated=simulated,
        events=events,
        happened=world.happened
        + Counter({"cards made": spread.made_count, "cards taken": spread.taken_count}),
        refused=refused,
        answers=world.answers,
        most_forwards=world.dials.most_forwards,
        sent=sent,
        memory=sum(weigh(server.directory) for server in weighed) // len(weighed),
        spread=spread.seconds,
        settled=spread.last_taken - world.last_opened if steady else None,
        checked=checked,
        broken=world.breaches.counts,
        breaches=world.breaches.kept,
        trace=world.trace,
    )
