"""A simulated federation from its plan to its report."""

from collections.abc import Callable

from node.apps.simulate.federation.checks import check
from node.apps.simulate.federation.plan import FederationPlan
from node.apps.simulate.federation.report import FederationReport
from node.apps.simulate.federation.weight import weigh
from node.apps.simulate.federation.world import FederationWorld

# Servers that are weighed; the others are like them.
_WEIGHED = 4


def simulate_federation(
    plan: FederationPlan,
    passed: Callable[[float], None],
    written: Callable[[str], object] | None = None,
) -> FederationReport:
    """Run a plan; `passed` is told how many simulated seconds are over, `written` each line of
    the trace."""
    world = FederationWorld(plan, written)
    world.run(passed)
    sent = sum(link.bytes for link in world.links)
    checked = check(world)
    refused = sum((server.core.cards.refused for server in world.servers), start=Counter())
