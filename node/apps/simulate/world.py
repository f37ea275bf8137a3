"""The simulated world: its nodes, their journals, their links and their common time.

When the time is up all nodes close as they would anywhere, and nothing is left running.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from parley._crypto.auditor import AuditorKey
from parley._crypto.identity import Identity
from parley._node.apps.simulate.link import SimulatedLink
from parley._node.apps.simulate.offers import offer
from parley._node.apps.simulate.plan import Plan, Traffic
from parley._node.apps.simulate.simulated_time import SimulatedTime
from parley._node.apps.simulate.tally import Tally
from parley._node.apps.simulate.topics import TopicPublisher
from parley._node.journal.journal import Journal
from parley._node.journal.options import BUFFER_SIZE, SEGMENT_SIZE
from parley._node.node import Node

# Bytes that may wait to be written before time stands still.
_WAITING: Final = BUFFER_SIZE // 8


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where and for whom the nodes keep their journals; `segment_size` in bytes."""

    directory: Path
    auditor: AuditorKey
    segment_size: int = SEGMENT_SIZE

    def journal(self, time: SimulatedTime) -> Journal:
        """The journal of one node. The disk may take its time: it is made-up data."""
        return Journal.open(
            self.directory,
            self.auditor,
            segment_size=self.segment_size,
            fsync="never",
            on_failure="stop",
            clock=time.nanoseconds,
        )


async def simulate(
    plan: Plan, passed: Callable[[float], None], keeping: Keeping | None = None
) -> Tally:
    """Run a plan; `passed` is told how many simulated seconds are over.

    Without `keeping` nobody keeps a journal. Raises JournalFailedError.
    """
    time, tally = SimulatedTime(), Tally()
    journals: list[Journal] = []
    nodes: list[Node] = []
    for number in range(plan.nodes):
        await checkpoint()  # so many keys take a while
        if keeping:
            journals.append(keeping.journal(time))
        nodes.append(
            Node(
                Identity.create(plan.keys()),
                config=plan.config(number),
                clock=time.clock,
                journal=journals[number] if keeping else None,
            )
        )

    def behind() -> bool:
        return any(journal.metrics.waiting > _WAITING for journal in journals)

    links = [
        SimulatedLink(plan, time, number, nodes[client], nodes[server], tally)
        for number, (client, server) in enumerate(plan.links())
    ]
    async with anyio.create_task_group() as moving:
        async with entered(link.wire for link in links), entered(nodes):
            moving.start_soon(time.run, behind, passed)
            async with anyio.create_task_group() as life:
                _publish(plan, time, nodes, tally, life)
                for link in links:
                    life.start_soon(link.run)
                await time.sleep(plan.seconds)
                life.cancel_scope.cancel()
        moving.cancel_scope.cancel()
    for journal in journals:
        if journal.failed is not None:
            raise journal.failed
    return tally


@asynccontextmanager
async def entered(contexts: Iterable[AbstractAsyncContextManager[object]]) -> AsyncIterator[None]:
    """Enter all, one after the other, and leave all at once. Each has a task of its own: scopes in
    scopes, hundreds deep, take minutes to cancel, or cannot be cancelled at all."""
    over = anyio.Event()

    async def hold(
        context: AbstractAsyncContextManager[object], *, task_status: TaskStatus[None]
    ) -> None:
        async with context:
            task_status.started()
            await over.wait()

    async with anyio.create_task_group() as tasks:
        for context in contexts:
            await tasks.start(hold, context)
        yield
        over.set()


def _publish(
    plan: Plan, time: SimulatedTime, nodes: Sequence[Node], tally: Tally, life: TaskGroup
) -> None:
    """Have every node offer what it has, and publish."""
    for number, node in enumerate(nodes):
        topics = offer(node, time.sleep, patient=plan.burst is not None)
        if Traffic.TOPICS in plan.traffic:
            for name, topic in topics.items():
                draws = plan.draws("publisher", number, name)
                life.start_soon(TopicPublisher(plan, topic, draws, time.sleep, tally).run)
