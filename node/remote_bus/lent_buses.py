"""`LentBuses`: the buses of another node that were opened over one connection, or one link, and end
with it.
"""

from collections.abc import Awaitable, Callable

from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.store import Store
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner


class LentBuses:
    """Buses on the stores that `make` makes; `over` waits for the end of what they came over, and
    returns why they end."""

    __slots__ = ("_loop", "_make", "_open", "_over")

    def __init__(
        self, loop: Backend, make: Callable[[BusConfig], Store], over: Callable[[], Awaitable[str]]
    ) -> None:
        self._loop = loop
        self._make = make
        self._over = over
        self._open: dict[Bus, Runner] = {}

    def open(self, config: BusConfig | None) -> Bus:
        """Open one more; as `Peer.bus`."""
        for one, runner in list(self._open.items()):
            if one.is_closed:
                runner.cancel()
                del self._open[one]
        config = config or BusConfig()
        bus = Bus(self._make(config), config, loop=lambda: self._loop)
        self._open[bus] = self._loop.spawn(self._close_at_end, bus)
        bus.begin()
        return bus

    async def aclose(self, because: str = "") -> None:
        """Close all of them; as `Bus.aclose`."""
        for bus in list(self._open):
            await bus.aclose(because=because)

    async def _close_at_end(self, bus: Bus) -> None:
        await bus.aclose(because=await self._over())
