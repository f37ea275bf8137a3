"""Connections between simulated servers: sessions that deliver events in order, some of them late,
until they are cut.
"""

from collections.abc import Callable
from typing import Final

from parley._node.apps.simulate.plan import SeededRandom
from tests.node.apps.simulate.federation.agenda import Agenda
from tests.node.apps.simulate.federation.plan import QUICKEST, SENT_AGAIN, SLOWEST

BANDWIDTH: Final = 12.5e6  # bytes per second in each direction: 100 Mbit/s
# Overhead of an event in bytes.
OVERHEAD: Final = 32


class Lane:
    """One direction of a session. It accepts the next event when the previous one has been sent, at
    `free_at`.
    """

    __slots__ = (
        "_agenda",
        "_draws",
        "_latency",
        "_loss",
        "_newest",
        "alive",
        "free_at",
        "is_asked",
    )

    def __init__(self, agenda: Agenda, draws: SeededRandom, latency: float, loss: float) -> None:
        self._agenda = agenda
        self._draws = draws
        self._latency = latency
        self._loss = loss
        self._newest = 0.0
        self.alive = True
        self.free_at = 0.0
        self.is_asked = False  # a sender waits until it is free

    @property
    def is_free(self) -> bool:
        """Whether it accepts an event now."""
        return self.free_at <= self._agenda.now

    def send(self, size: int, arrived: Callable[[], None]) -> None:
        """Send an event of `size` bytes; `arrived` is called at the other end, unless the session
        is cut first.
        """
        size += OVERHEAD
        self.free_at = max(self.free_at, self._agenda.now) + size / BANDWIDTH
        travels = self._latency * self._draws.uniform(QUICKEST, SLOWEST)
        if self._draws.random() < self._loss:
            travels += SENT_AGAIN
        # Delivered in order, as in TCP.
        self._newest = max(self._newest, self.free_at + travels)
        self._agenda.at(self._newest, lambda: arrived() if self.alive else None)

    def cut(self) -> None:
        """Discard the events in transit."""
        self.alive = False
