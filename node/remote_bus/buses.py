"""The buses of one node, made by address, begun and closed with it. One of them may be offered to
its peers.
"""

from collections.abc import Callable
from contextlib import suppress

import anyio

from parley._node.bus.bus import Bus
from parley._node.bus.bus_address import open_store, without_password
from parley._node.bus.config import BusConfig
from parley._node.errors import ConfigError, ParleyError, ungrouped
from parley._node.handlers.registry import Handlers
from parley._node.protocol.codes import BUS_LABEL
from parley._node.remote_bus.authorisation import AllowBus
from parley._node.remote_bus.readings import BusReadings
from parley._node.remote_bus.service import offer_bus
from parley._node.transport.backend import Backend


class Buses:
    """The buses of one node, in the loop that `loop` gives; `handlers` are the node's."""

    def __init__(self, loop: Callable[[], Backend], handlers: Handlers) -> None:
        self._loop = loop
        self._handlers = handlers
        self._buses: dict[str, tuple[Bus, BusConfig | None]] = {}
        self.readings = BusReadings(
            lambda: [bus for bus, _ in self._buses.values()], lambda: loop().now()
        )

    @property
    def by_url(self) -> dict[str, Bus]:
        """All of them, by their addresses."""
        return {url: bus for url, (bus, _) in self._buses.items()}

    def get(self, url: str, config: BusConfig | None, allow: AllowBus | None) -> Bus:
        """The bus at an address, made if need be, and not opened.

        Raises:
            AddressError: it is not the address of a bus. ConfigError: a setting is wrong, or is not
                what it was for this address. ParleyError: a bus is offered already.
        """
        known = self._buses.get(url)
        if known is None:
            store, settings = open_store(url, config)
            bus = Bus(store, settings, loop=self._loop)
        else:
            bus, first = known
            if config is not None and config != first:
                address = without_password(url)
                raise ConfigError(f"there is a bus at {address!r} already, with other settings")
        if allow is not None:
            self._offer(bus, allow)
        if known is None:
            self._buses[url] = (bus, config)
            with suppress(ParleyError):  # the node does not run yet; it calls `begin` when it does
                self._loop()
                bus.begin()
        return bus

    def begin(self) -> None:
        """The node runs: handlers begin."""
        for bus, _ in self._buses.values():
            bus.begin()

    async def drain(self, timeout: float) -> None:
        """Have all handlers finish what they do, in `timeout` seconds at most."""
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for bus, _ in self._buses.values():
                    tasks.start_soon(bus.drain, timeout)

    async def aclose(self) -> None:
        """Close them all, for good; none is offered any more."""
        self._handlers.reserved.pop(BUS_LABEL, None)
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for bus, _ in self._buses.values():
                    tasks.start_soon(bus.aclose)

    def _offer(self, bus: Bus, allow: AllowBus) -> None:
        offer_bus(self._handlers, bus, allow)
