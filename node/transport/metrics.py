"""Metrics of a node's event loop: processor time, duration of turns and lag.

Measuring every turn would cost two system calls each. Instead, one turn is measured four times a
second while the metrics are read: a timer fires (its delay is the lag), and the thread's processor
time until the loop's next turn is the turn's duration. Turns are sampled by time, so that frequent
turns are measured more often.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from parley._node.errors import ParleyError
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import Histogram, MetricFamily, family
from parley._node.metrics.metrics import Metrics
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Timer

# Seconds between two turns that are measured.
PERIOD: Final = 0.25


class LoopCollector:
    """The metrics of one node's loop; `running` returns the backend or raises ParleyError."""

    def __init__(self, running: Callable[[], Backend], metrics: Metrics) -> None:
        self._running = running
        self._metrics = metrics
        self._turns = Histogram()
        self._lag = Histogram()
        self._loop: Backend | None = None
        self._timer: Timer | None = None
        self._due = 0.0
        self._began = 0.0
        metrics.on_watched = self.begin
        metrics.add(self.families)

    def begin(self) -> None:
        """Start to measure if the node runs and the metrics are read."""
        if self._loop is not None or not self._metrics.is_watched:
            return
        try:
            self._loop = self._running()
        except ParleyError:
            return  # it is called again when the node runs
        self._wait()

    def stop(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def families(self) -> Iterator[MetricFamily]:
        """Collect in the loop's own thread."""
        yield family(catalogue.PROCESSOR, time.thread_time())
        yield family(catalogue.LOOP_TURN, self._turns)
        yield family(catalogue.LOOP_LAG, self._lag)
        try:
            yield family(catalogue.TURN, self._running().scheduler.seconds)
        except ParleyError:
            return

    def _wait(self) -> None:
        loop = self._loop
        if loop is None or not self._metrics.is_watched:
            self._loop = self._timer = None
            return
        self._due = loop.now() + PERIOD
        self._timer = loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None:
            self._lag.observe(max(0.0, loop.now() - self._due))
            self._began = time.thread_time()
            loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._turns.observe(time.thread_time() - self._began)
        self._wait()
