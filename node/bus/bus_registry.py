"""The buses of one node by address, with their metrics. One bus can be offered to peers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields
from functools import partial

import anyio

from parley._node.bus.address import open_store, without_password
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError
from parley._node.bus.model import Counters, GroupInfo
from parley._node.bus.remote.authorisation import AllowBus
from parley._node.bus.remote.service import offer_bus
from parley._node.errors import ConfigError, ParleyError, ungrouped
from parley._node.handlers.registry import Handlers
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled, named
from parley._node.protocol.codes import BUS_LABEL
from parley._node.transport.backend import Backend

# The time for one bus to answer, and for which its answer is reused, in seconds.
PATIENCE = 2.0
FRESH = 5.0


class BusCollector:
    """Collects metrics of the buses that `buses` returns; `now` is a monotonic clock in seconds."""

    def __init__(self, buses: Callable[[], Iterable[Bus]], now: Callable[[], float]) -> None:
        self._buses = buses
        self._now = now
        self._asked_at: float | None = None
        self._groups: list[GroupInfo] = []
        self._unreachable = 0

    async def refresh(self) -> None:
        """Ask the stores for their groups, at most every `FRESH` seconds."""
        try:
            now = self._now()
        except ParleyError:
            return  # The node is not running.
        if self._asked_at is not None and now - self._asked_at < FRESH:
            return
        self._asked_at = now
        answers: dict[Bus, list[GroupInfo]] = {}

        async def ask(bus: Bus) -> None:
            with suppress(BusError, ConfigError, TimeoutError), anyio.fail_after(PATIENCE):
                answers[bus] = await bus.groups()

        buses = list(self._buses())
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for bus in buses:
                    tasks.start_soon(ask, bus)
        self._groups = [group for bus in buses for group in answers.get(bus, ())]
        self._unreachable = len(buses) - len(answers)

    def families(self) -> Iterator[MetricFamily]:
        total = Counter[str]()
        for bus in self._buses():
            names = (field.name for field in fields(Counters))
            total.update(dict(zip(names, astuple(bus.counters), strict=True)))
        done = (((name.replace("_", "-"),), count) for name, count in total.items())
        yield labelled(catalogue.BUS_EVENTS, done)
        yield family(catalogue.BUS_UNREACHABLE, self._unreachable)
        groups = [((group.stream, group.name), group) for group in self._groups]
        lags = ((key, group.lag) for key, group in groups)
        by_group = partial(named, name_size=2)
        yield by_group(catalogue.BUS_LAG, ((key, lag) for key, lag in lags if lag is not None))
        yield by_group(catalogue.BUS_PENDING, ((key, group.pending) for key, group in groups))
        yield by_group(catalogue.BUS_DEAD, ((key, group.dead_lettered) for key, group in groups))


class BusRegistry:
    """The buses of one node. They run in the event loop that `loop` returns."""

    def __init__(self, loop: Callable[[], Backend], handlers: Handlers) -> None:
        self._loop = loop
        self._handlers = handlers
        self._buses: dict[str, tuple[Bus, BusConfig | None]] = {}
        self.readings = BusCollector(
            lambda: [bus for bus, _ in self._buses.values()], lambda: loop().now()
        )

    @property
    def by_url(self) -> dict[str, Bus]:
        return {url: bus for url, (bus, _) in self._buses.items()}

    def get(self, url: str, config: BusConfig | None, allow: AllowBus | None) -> Bus:
        """Return the bus at an address, created if necessary but not opened.

        Raises:
            AddressError: the address is invalid.
            ConfigError: a setting is invalid, or the bus is open with other settings.
            ParleyError: a bus is already offered.
        """
        known = self._buses.get(url)
        if known is None:
            store, settings = open_store(url, config)
            bus = Bus(store, settings, loop=self._loop)
        else:
            bus, first = known
            if config is not None and config != first:
                address = without_password(url)
                raise ConfigError(
                    f"cannot open the bus at {address!r}: it is already open with other settings"
                )
        if allow is not None:
            self._offer(bus, allow)
        if known is None:
            self._buses[url] = (bus, config)
            with suppress(
                ParleyError
            ):  # If the node is not running, it calls `begin` when it starts.
                self._loop()
                bus.begin()
        return bus

    def begin(self) -> None:
        """Start the handlers when the node runs."""
        for bus, _ in self._buses.values():
            bus.begin()

    async def drain(self, timeout: float) -> None:
        """Stop all handlers. Running handlers have `timeout` seconds to finish."""
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for bus, _ in self._buses.values():
                    tasks.start_soon(bus.drain, timeout)

    async def aclose(self) -> None:
        """Close all buses and stop offering one to peers."""
        self._handlers.reserved.pop(BUS_LABEL, None)
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for bus, _ in self._buses.values():
                    tasks.start_soon(bus.aclose)

    def _offer(self, bus: Bus, allow: AllowBus) -> None:
        offer_bus(self._handlers, bus, allow)
