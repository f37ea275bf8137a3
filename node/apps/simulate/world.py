"""The simulated world: its nodes, journals and links, and their common time.

At the end, all nodes close gracefully and all tasks have ended.
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
from parley._node.apps.simulate.actors import Caller, StreamSender, TopicPublisher, TopicReader
from parley._node.apps.simulate.offers import ALERTS, NEWS, TICKS, offer
from parley._node.apps.simulate.plan import Plan, SeededRandom, Traffic
from parley._node.apps.simulate.simulated_time import SimulatedTime
from parley._node.apps.simulate.tally import Tally
from parley._node.errors import HandshakeError, PeerClosedError
from parley._node.journal.journal import Journal
from parley._node.journal.options import BUFFER_SIZE, SEGMENT_SIZE
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyLink, connect_nodes

# The minimum and maximum duration of a session with faults, as fractions of the whole time.
_SHORTEST: Final = 0.15
_LONGEST: Final = 0.8
# How sessions end early: closed by one side, by the other, cut, or damaged.
_ENDINGS: Final = ("closed", "closed by the other", "cut", "damaged")


class SimulatedLink:
    """Link number `number` of the plan, from the dialling `client` to `server`.

    Enter `wire` before both nodes, because they send Close over it at the end.
    """

    def __init__(
        self,
        plan: Plan,
        time: SimulatedTime,
        number: int,
        client: Node,
        server: Node,
        tally: Tally,
    ) -> None:
        self._plan = plan
        self._time = time
        self._number = number
        self._client = client
        self._server = server
        self._tally = tally
        self._draws = plan.draws("link", number)
        self._session = 0
        self.wire = FaultyLink(clock=time.clock)
        self.wire.delay(plan.latency)

    async def run(self) -> None:
        """Connect, exchange traffic and disconnect, repeatedly, until cancelled."""
        while True:
            try:
                peer, back = await connect_nodes(self._client, self._server, link=self.wire)
            except (HandshakeError, PeerClosedError):
                self._tally.endings["not opened"] += 1
            else:
                self._tally.sessions += 1
                self._session += 1
                await self._meeting(peer, back)
            await self._time.sleep(self._draws.uniform(0.5, 5.0))

    async def _meeting(self, peer: Peer, back: Peer) -> None:
        """Run one session until its end."""
        async with anyio.create_task_group() as actors:
            for side, who in (("client", peer), ("server", back)):
                self._act(actors, who, self._plan.draws(self._number, self._session, side))
            if Traffic.FAULTS in self._plan.traffic:
                part = self._draws.uniform(_SHORTEST, _LONGEST)
                await self._time.sleep(part * self._plan.seconds)
                ending = self._draws.choice(_ENDINGS)
                self._tally.endings[ending] += 1
                await self._end(ending, peer, back)
            else:
                await anyio.sleep_forever()
            actors.cancel_scope.cancel()

    def _act(self, actors: TaskGroup, peer: Peer, draws: SeededRandom) -> None:
        plan, sleep, tally = self._plan, self._time.sleep, self._tally

        def own(name: str) -> SeededRandom:
            return SeededRandom(draws.getrandbits(64), name)

        traffic = plan.traffic
        sender = {name: StreamSender(plan, peer, own(name), sleep, tally) for name in Traffic}
        if Traffic.CALLS in traffic:
            actors.start_soon(Caller(plan, peer, own("caller"), sleep, tally).run, actors)
        if Traffic.TOPICS in traffic:
            for name in (TICKS, NEWS, ALERTS):
                actors.start_soon(TopicReader(plan, name, peer, own(name), sleep, tally).run)
        if Traffic.FILES in traffic:
            actors.start_soon(sender[Traffic.FILES].files)
        if Traffic.EVENTS in traffic:
            actors.start_soon(sender[Traffic.EVENTS].events)
            actors.start_soon(sender[Traffic.CALLS].readings)
        if Traffic.KEYS in traffic:
            actors.start_soon(sender[Traffic.KEYS].keys)

    async def _end(self, ending: str, peer: Peer, back: Peer) -> None:
        match ending:
            case "closed":
                await peer.close()
            case "closed by the other":
                await back.close(CloseCode.GOING_AWAY, "closing for today")
            case "cut":
                self.wire.cut()
            case _:
                self.wire.flip(after=30)
                await self._damaged(peer)
        # Both sides must notice the end before they reconnect.
        while peer.is_open or back.is_open:
            await self._time.sleep(0.1)

    async def _damaged(self, peer: Peer) -> None:
        try:
            await peer.call("kv.get", b"over a bad line")
        except PeerClosedError:
            return


# The simulated time stops while more bytes than this wait to be written.
_WAITING: Final = BUFFER_SIZE // 8


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where and for which auditor the nodes record journals; `segment_size` is in bytes."""

    directory: Path
    auditor: AuditorKey
    segment_size: int = SEGMENT_SIZE

    def journal(self, time: SimulatedTime) -> Journal:
        """Create the journal of one node. It doesn't sync to disk, because the data is
        generated.
        """
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
    """Run a plan; `passed` is called with the simulated seconds so far.

    Without `keeping`, the nodes record no journals.

    Raises:
        JournalFailedError: a journal cannot be written.
    """
    time, tally = SimulatedTime(), Tally()
    journals: list[Journal] = []
    nodes: list[Node] = []
    for number in range(plan.nodes):
        await checkpoint()  # creating many keys takes long
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
    """Enter all contexts in order and exit them concurrently, each in a separate task.

    Hundreds of nested cancel scopes would take minutes to cancel, or fail.
    """
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
    """Register the handlers of every node and start the publishers."""
    for number, node in enumerate(nodes):
        topics = offer(node, time.sleep, patient=plan.burst is not None)
        if Traffic.TOPICS in plan.traffic:
            for name, topic in topics.items():
                draws = plan.draws("publisher", number, name)
                life.start_soon(TopicPublisher(plan, topic, draws, time.sleep, tally).run)
