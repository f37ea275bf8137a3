"""Actors of topics: what a node publishes, and the readers with their paces.

A publisher never asks whether anybody reads; a reader that lost its subscription because it was
slow subscribes again.
"""

from typing import Final

from anyio.lowlevel import checkpoint

from parley._node.apps.simulate.draws import Draws
from parley._node.apps.simulate.offers import ALERTS, NEWS, TICKS, Sleep
from parley._node.apps.simulate.plan import Plan
from parley._node.apps.simulate.tally import Tally
from parley._node.errors import CallRefused, PeerClosedError, StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode

# Moments a second at which each topic is published, at rate 1.
RATES: Final = {TICKS: 3.0, NEWS: 0.5, ALERTS: 0.05}
# At a higher rate more is published at each moment, no more often than this.
_MOMENTS: Final = 20.0
# How many notes at once, where the plan does not say: mostly one, now and then many.
_BURSTS: Final = (1, 1, 1, 1, 2, 3, 5, 8, 40)
# One of so many readers sleeps between two batches.
_SLOW: Final = 4
_NAP: Final = 4.0
# The least window that a reader may name which still lets it read.
_NARROW: Final = 4 * 1024


class TopicPublisher:
    """Publishes one topic of a node for ever."""

    def __init__(self, plan: Plan, topic: Topic, draws: Draws, sleep: Sleep, tally: Tally) -> None:
        self._plan = plan
        self._topic = topic
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def run(self) -> None:
        """Publish at its pace."""
        draws, topic, plan = self._draws, self._topic, self._plan
        wanted = RATES[topic.name] * plan.rate
        rate = min(wanted, _MOMENTS)
        times = max(1, round(wanted / rate))
        number = 0
        while True:
            await self._sleep(draws.pause(rate))
            for _ in range(times):
                count = plan.burst or draws.choice(_BURSTS)
                headers = {"severity": draws.randint(1, 5)} if topic.name == ALERTS else None
                for _ in range(count):
                    number += 1
                    note = {"number": number, "data": draws.payload(plan.payload)}
                    self._tally.published[topic.name] += 1
                    await topic.publish(note, headers)
                # So that what was said at once, and only that, goes together: a turn of the
                # loop later it is on its way.
                topic.flush()
                await checkpoint()


class TopicReader:
    """Reads one topic of `peer` until the connection ends; where the plan fixes how much is
    published at once, without a break."""

    def __init__(
        self, plan: Plan, name: str, peer: Peer, draws: Draws, sleep: Sleep, tally: Tally
    ) -> None:
        self._plan = plan
        self._name = name
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def run(self) -> None:
        """Subscribe, read, leave now and then, and subscribe again."""
        fixed = self._plan.burst is not None
        slow = self._draws.once_in(_SLOW) and not fixed
        try:
            while self._peer.is_open:
                count = self._draws.randint(200, 2_000)
                await self._read(2**62 if fixed else count, slow)
                await self._sleep(self._draws.uniform(0.5, 3.0))
        except (PeerClosedError, CallRefused):
            return

    async def _read(self, count: int, slow: bool) -> None:
        window = _NARROW if slow else None
        try:
            async with self._peer.subscribe(self._name, window=window) as notes:
                self._tally.subscriptions[self._name] += 1
                while count > 0 and (batch := await notes.next_batch()):
                    self._tally.received[self._name] += len(batch)
                    count -= len(batch)
                    if slow:
                        await self._sleep(_NAP)
        except StreamResetError as error:
            if error.code != CloseCode.SLOW_CONSUMER:
                raise
            self._tally.slow_resets[self._name] += 1
