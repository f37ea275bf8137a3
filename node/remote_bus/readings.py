"""What is told of a node's buses: what it did with their events, and how far groups are behind.

How far that is only a store can say, so it is asked before the numbers are read, at most every few
seconds, and no longer than for a moment.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields

import anyio

from node.bus.bus import Bus
from node.bus.errors import BusError
from node.bus.model import Counters, GroupInfo
from node.errors import ConfigError, ParleyError
from node.metrics import catalogue
from node.metrics.families import MetricFamily, family, labelled, named

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
        groups, unreachable = [], 0
        for bus in self._buses():
            try:
                with anyio.fail_after(PATIENCE):
                    groups += await bus.groups()
            except (BusError, ConfigError, TimeoutError):
                unreachable += 1
        self._groups, self._unreachable = groups, unreachable

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
        yield named(catalogue.BUS_LAG, ((key, lag) for key, lag in lags if lag is not None))
        yield named(catalogue.BUS_PENDING, ((key, group.pending) for key, group in groups))
        yield named(catalogue.BUS_DEAD, ((key, group.dead_lettered) for key, group in groups))
