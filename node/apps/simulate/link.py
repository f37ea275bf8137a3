"""A link of two simulated nodes: its sessions one after another, their traffic and their ends.

A lost link is dialled again until the simulation is over. The plan and the actors decide which node
does what.
"""

from typing import Final

import anyio
from anyio.abc import TaskGroup

from parley._node.apps.simulate.caller import Caller
from parley._node.apps.simulate.draws import Draws
from parley._node.apps.simulate.offers import ALERTS, NEWS, TICKS
from parley._node.apps.simulate.plan import Plan, Traffic
from parley._node.apps.simulate.simulated_time import SimulatedTime
from parley._node.apps.simulate.stream_sender import StreamSender
from parley._node.apps.simulate.tally import Tally
from parley._node.apps.simulate.topics import TopicReader
from parley._node.errors import HandshakeError, PeerClosedError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyLink, connect_nodes

# Seconds that a session lasts, where faults are wanted, as parts of the whole time.
_SHORTEST: Final = 0.15
_LONGEST: Final = 0.8
# How sessions end before their time: closed by the dialler or by the other side, cut, damaged.
_ENDINGS: Final = ("closed", "closed by the other", "cut", "damaged")


class SimulatedLink:
    """`number` of the plan, from `client`, who dials, to `server`. `wire` is to be entered
    before both nodes, which say Close over it when they leave."""

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
        """Meet, talk, part, and again; for ever."""
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
        """One session, from its beginning to its end."""
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

    def _act(self, actors: TaskGroup, peer: Peer, draws: Draws) -> None:
        plan, sleep, tally = self._plan, self._time.sleep, self._tally

        def own(name: str) -> Draws:
            return Draws(draws.getrandbits(64), name)

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
        # Both sides are to know before they meet again.
        while peer.is_open or back.is_open:
            await self._time.sleep(0.1)

    async def _damaged(self, peer: Peer) -> None:
        try:
            await peer.call("kv.get", b"over a bad line")
        except PeerClosedError:
            return
