"""What lies between two simulated servers: sessions that carry events in order, one after another,
some of them late, until they are cut.
"""

from collections.abc import Callable
from typing import Final

from parley._node.apps.simulate.plan import SeededRandom
from tests.node.apps.simulate.federation.agenda import Agenda
from tests.node.apps.simulate.federation.plan import QUICKEST, SENT_AGAIN, SLOWEST

BANDWIDTH: Final = 12.5e6  # bytes a second and direction: 100 Mbit/s
# Bytes that an event takes besides its payload.
OVERHEAD: Final = 32


class Lane:
    """One direction of a session. It takes an event when the one before has left, at `free_at`."""

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
        self.is_asked = False  # somebody waits until it is free

    @property
    def is_free(self) -> bool:
        """Whether it takes an event now."""
        return self.free_at <= self._agenda.now

    def send(self, size: int, arrived: Callable[[], None]) -> None:
        """Carry an event of `size` bytes; `arrived` is called at its other end, unless it is cut
        before."""
        size += OVERHEAD
        self.free_at = max(self.free_at, self._agenda.now) + size / BANDWIDTH
        travels = self._latency * self._draws.uniform(QUICKEST, SLOWEST)
        if self._draws.random() < self._loss:
            travels += SENT_AGAIN
        # Behind what went before it, as in TCP.
        self._newest = max(self._newest, self.free_at + travels)
        self._agenda.at(self._newest, lambda: arrived() if self.alive else None)

    def cut(self) -> None:
        """What is under way is lost."""
        self.alive = False
