"""What is told of a node's buses: what it did with their events, and how far groups are behind.

How far that is only a store can say, so it is asked before the numbers are read, at most every few
seconds, and no longer than for a moment.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields
from functools import partial

import anyio

from parley._node.bus.bus import Bus
from parley._node.bus.errors import BusError
from parley._node.bus.model import Counters, GroupInfo
from parley._node.errors import ConfigError, ParleyError, ungrouped
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled, named

# Seconds for one bus to answer, and seconds for which an answer is told again.
PATIENCE = 2.0
FRESH = 5.0


class BusReadings:
    """The buses that `buses` gives; `now` is seconds of a clock that never goes back."""

    def __init__(self, buses: Callable[[], Iterable[Bus]], now: Callable[[], float]) -> None:
        self._buses = buses
        self._now = now
        self._asked_at: float | None = None
        self._groups: list[GroupInfo] = []
        self._unreachable = 0

    async def refresh(self) -> None:
        """Ask the stores about their groups, unless that was a moment ago."""
        try:
            now = self._now()
        except ParleyError:
            return  # the node does not run
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
        """What is told of them."""
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
