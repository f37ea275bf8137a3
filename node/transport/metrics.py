"""What is told of a node's loop: the processor time of its thread and of its turns, and how late it
is.

The thread's whole time is the system's own count, read when asked for: it costs nothing meanwhile.
To measure every turn would cost each of them two system calls. Instead one turn is measured four
times a second, while somebody reads the numbers: a timer rings (how late, that is the lag), and
until the loop has come around once the thread's processor time is that of one turn, waiting for
sockets not counted. Turns are chosen by time and not by their length, so those that are many count
as much as they are many.
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
    """The loop of one node, which `running` gives, or raises ParleyError."""

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
        """Measure turns, if the node runs and somebody reads the numbers."""
        if self._loop is not None or not self._metrics.is_watched:
            return
        try:
            self._loop = self._running()
        except ParleyError:
            return  # it is called again when the node runs
        self._wait()

    def stop(self) -> None:
        """The node ends."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def families(self) -> Iterator[MetricFamily]:
        """What is told of it; to be asked in its own thread."""
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
        self._timer = loop.at(self._due, self._ring)

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None:
            self._lag.observe(max(0.0, loop.now() - self._due))
            self._began = time.thread_time()
            loop.soon(self._turned)

    def _turned(self) -> None:
        self._turns.observe(time.thread_time() - self._began)
        self._wait()
