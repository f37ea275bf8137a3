"""Actors that call: one program on one side of a connection, and what it asks the other.

All of a call is drawn before it begins, so that no answer changes what is asked next.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from parley._node.apps.simulate.draws import Draws
from parley._node.apps.simulate.offers import Sleep
from parley._node.apps.simulate.plan import Plan
from parley._node.apps.simulate.tally import ACCEPTED, LATE, LOST, Tally
from parley._node.errors import CallRefused, CallTimeout, PeerClosedError
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode

# Calls a second and side of a connection, at rate 1.
RATE: Final = 4.0
# Calls begun at one moment, at most as many as leave room for others (section 8).
_AT_ONCE: Final = 256
# Weights of what is called; `cancelled` is a report whose caller gives up.
_MIX: Final = {
    "kv.get": 44,
    "kv.put": 24,
    "search": 8,
    "orders.place": 10,
    "reports.build": 4,
    "cancelled": 3,
    "admin.reload": 3,
    "nowhere": 4,
}
_PLAIN: Final = ("kv.get", "kv.put")

Ask = Callable[[], Coroutine[Any, Any, None]]


class Caller:
    """Calls `peer` until the connection ends. With a fixed size of payloads it only gets and
    puts, which cost two events each."""

    def __init__(self, plan: Plan, peer: Peer, draws: Draws, sleep: Sleep, tally: Tally) -> None:
        self._plan = plan
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally
        self._topics = list(_MIX if plan.payload is None else _PLAIN)
        self._weights = [_MIX[topic] for topic in self._topics]

    async def run(self, calls: TaskGroup) -> None:
        """Call now and then, or at a high rate many at once; each call is a task of `calls`."""
        rate = RATE * self._plan.rate
        at_once = max(1, min(_AT_ONCE, round(rate / 20)))
        while self._peer.is_open:
            await self._sleep(self._draws.pause(rate / at_once))
            for topic in self._draws.choices(self._topics, self._weights, k=at_once):
                calls.start_soon(self._call(topic))

    def _call(self, topic: str) -> Ask:
        draws, size = self._draws, self._plan.payload
        match topic:
            case "kv.get" | "kv.put":
                data = draws.payload(size)
                return lambda: self._counted(topic, self._peer.call(topic, data))
            case "search":
                wanted = {"items": draws.randint(1, 12), "size": draws.randint(16, 400)}
                return lambda: self._counted(topic, self._search(wanted))
            case "orders.place":
                order = {"amount": draws.randint(1, 100), "milliseconds": draws.randint(5, 120)}
                return lambda: self._counted(topic, self._peer.call(topic, order))
            case "reports.build" | "cancelled":
                report = {"milliseconds": draws.randint(300, 2_500)}
                patience = 0.2 if topic == "cancelled" else None
                return lambda: self._report(report, patience)
            case _:
                return lambda: self._counted(topic, self._peer.call(topic, None))

    async def _counted(self, topic: str, call: Awaitable[object]) -> None:
        outcome = LATE if self._peer.is_open else LOST
        try:
            await call
            outcome = ACCEPTED
        except CallTimeout:
            outcome = LATE
        except CallRefused as refused:
            outcome = LATE if refused.code == ResultCode.CANCELLED else str(refused.code)
        except PeerClosedError:
            outcome = LOST
        finally:
            # Also of a caller that is cancelled: it is asked to give up and does.
            self._tally.calls[topic, outcome] += 1

    async def _search(self, wanted: dict[str, int]) -> None:
        async with self._peer.call_stream("search", wanted, timeout=10.0) as hits:
            async for _ in hits:
                self._tally.chunks += 1

    async def _report(self, report: dict[str, int], patience: float | None) -> None:
        """Ask for what takes its time, with a deadline; give up after `patience` seconds."""
        topic = "reports.build"
        if patience is None:
            await self._counted(topic, self._peer.call(topic, report, timeout=2.0))
            return

        async def give_up() -> None:
            await self._sleep(patience)
            waiting.cancel_scope.cancel()

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(give_up)
            await self._counted(topic, self._peer.call(topic, report))
            waiting.cancel_scope.cancel()
