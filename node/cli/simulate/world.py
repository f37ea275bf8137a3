"""The simulated world: its nodes, their journals, their links and the time of all.

One rule: when its time is up everybody closes as they would anywhere, and nothing is left
running. Knows no command line.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from crypto.identity import Identity
from node.cli.simulate.link import Link
from node.cli.simulate.offers import offer
from node.cli.simulate.plan import Plan, Traffic
from node.cli.simulate.simulated_time import SimulatedTime
from node.cli.simulate.tally import Tally
from node.cli.simulate.topics import Publisher
from node.node import Node


async def simulate(plan: Plan, passed: Callable[[float], None]) -> Tally:
    """Run a plan; `passed` is told how many simulated seconds are over."""
    time, tally = SimulatedTime(), Tally()
    nodes = [
        Node(Identity.create(plan.keys()), config=plan.config(number), clock=time.clock)
        for number in range(plan.nodes)
    ]
    async with anyio.create_task_group() as moving:
        moving.start_soon(time.run, lambda: False, passed)
        async with AsyncExitStack() as stack:
            for node in nodes:
                await stack.enter_async_context(node)
            async with anyio.create_task_group() as life:
                _begin(plan, time, nodes, tally, life)
                await time.sleep(plan.seconds)
                life.cancel_scope.cancel()
        moving.cancel_scope.cancel()
    return tally


def _begin(
    plan: Plan, time: SimulatedTime, nodes: Sequence[Node], tally: Tally, life: TaskGroup
) -> None:
    """Have every node offer and publish, and every link be dialled."""
    for number, node in enumerate(nodes):
        topics = offer(node, time.sleep)
        if Traffic.TOPICS in plan.traffic:
            for name, topic in topics.items():
                draws = plan.draws("publisher", number, name)
                life.start_soon(Publisher(plan, topic, draws, time.sleep, tally).run)
    for number, (client, server) in enumerate(plan.links()):
        link = Link(plan, time, number, nodes[client], nodes[server], tally)
        life.start_soon(link.run)
