"""Publishing many at a time: what is published while requests are under way goes with the next.

One rule: nobody notices: who published alone is refused alone. A request stores all of its events
or none, so one that was refused is asked again, for each of those who shared it. Knows no wire.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from node.bus.errors import BusClosedError, BusError, BusUnavailableError
from node.bus.model import NewEvent, Published
from node.bus.wire.answers import row_cost
from node.bus.wire.limits import ANSWER_SIZE, LARGEST_COUNT
from node.transport.loop import Loop, Waiter

Send: TypeAlias = Callable[[Sequence[NewEvent], bool], Awaitable[list[Published]]]

# Requests under way at a time: one is answered while the next one is written.
UNDER_WAY: Final = 2


class _Share:
    """What one caller publishes, and what became of it."""

    __slots__ = ("cost", "durable", "error", "events", "published", "waiter")

    def __init__(self, events: Sequence[NewEvent], durable: bool, waiter: Waiter) -> None:
        self.events = events
        self.durable = durable
        self.waiter = waiter
        self.cost = sum(row_cost([event.name, event.body, event.key]) for event in events)
        self.published: list[Published] | None = None
        self.error: BusError | None = None


class Gathering:
    """Publishes by `send`, many at a time, in the order in which they came."""

    def __init__(self, send: Send, loop: Loop, largest: int) -> None:
        """`largest` is the longest payload, bytes."""
        self._send = send
        self._loop = loop
        self._largest = min(largest, ANSWER_SIZE)
        self._shares: deque[_Share] = deque()
        self._running = 0

    async def publish(self, events: Sequence[NewEvent], durable: bool) -> list[Published]:
        """As `Store.publish`; raises what `send` does."""
        share = _Share(events, durable, self._loop.waiter())
        self._shares.append(share)
        if self._running < UNDER_WAY:
            self._running += 1
            self._loop.spawn(self._run)
        try:
            await share.waiter.wait()
        finally:
            if share.published is None and share.error is None and share in self._shares:
                self._shares.remove(share)
        if share.published is not None:
            return share.published
        raise share.error or BusClosedError("the bus is closed")

    async def _run(self) -> None:
        """Send until nothing waits."""
        try:
            while self._shares:
                await self._publish(self._next())
        finally:
            self._running -= 1

    def _next(self) -> list[_Share]:
        """The first that wait, as many as one request takes; always one."""
        taken = [self._shares.popleft()]
        count, cost = len(taken[0].events), taken[0].cost
        while self._shares:
            share = self._shares[0]
            count += len(share.events)
            cost += share.cost
            if count > LARGEST_COUNT or cost > self._largest or share.durable != taken[0].durable:
                break
            taken.append(self._shares.popleft())
        return taken

    async def _publish(self, shares: list[_Share]) -> None:
        try:
            events = [event for share in shares for event in share.events]
            published = iter(await self._send(events, shares[0].durable))
            for share in shares:
                share.published = [next(published) for _ in share.events]
        except BusError as error:
            if len(shares) > 1 and not isinstance(error, BusUnavailableError):
                for share in shares:
                    await self._publish([share])
            else:
                for share in shares:
                    share.error = error
        finally:
            for share in shares:
                share.waiter.wake()
