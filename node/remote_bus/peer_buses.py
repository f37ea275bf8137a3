"""The buses of one peer that were asked for here: they end with the connection."""

from node.bus.bus import Bus
from node.bus.config import BusConfig
from node.remote.live import LiveConnection
from node.remote_bus.remote_store import RemoteStore
from node.streams.table import StreamTable
from node.transport.loop import Runner


class PeerBuses:
    """The buses that the other side of a connection offers, as `Peer.bus` opened them."""

    __slots__ = ("_live", "_open", "_streams")

    def __init__(self, live: LiveConnection, streams: StreamTable) -> None:
        self._live = live
        self._streams = streams
        self._open: dict[Bus, Runner] = {}

    def open(self, config: BusConfig | None) -> Bus:
        """One more; as `Peer.bus`."""
        for one, runner in list(self._open.items()):
            if one.is_closed:
                runner.cancel()
                del self._open[one]
        live, config = self._live, config or BusConfig()
        bus = Bus(RemoteStore(live, self._streams, config), config, loop=lambda: live.backend)
        self._open[bus] = live.backend.spawn(self._close_at_end, bus)
        bus.begin()
        return bus

    async def aclose(self) -> None:
        """Close all of them."""
        for bus in list(self._open):
            await bus.aclose()

    async def _close_at_end(self, bus: Bus) -> None:
        await self._live.closed()
        await bus.aclose(because=f"the connection ended: {self._live.closed_error()}")
