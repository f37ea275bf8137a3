"""How often keys changed on the connections of a node: an observer of each, and their sum.

One rule: secrets are not kept. Seconds are those of the process's own clock.
"""

from time import perf_counter
from typing import Any

from node.protocol.handshake import Agreed

# Of connections that lived for less a rate would say little.
SHORT = 1.5


class Epochs:
    """The sums over all connections, each for as long as it was under load."""

    def __init__(self) -> None:
        self.connections = 0
        self.seconds = 0.0
        self.sent = self.received = self.rekeys = self.events = 0
        self.late = 0
        self.slowest: float | None = None
        self.counting: set[EpochCounter] = set()

    def rest(self) -> None:
        """The load is over: from now on nothing is counted."""
        for counter in list(self.counting):
            counter.finish()

    def add(self, one: "EpochCounter", seconds: float) -> None:
        """Add a connection that was under load for so long."""
        self.connections += 1
        self.seconds += seconds
        self.sent += one.sent
        self.received += one.received
        self.rekeys += one.rekeys
        self.events += one.events
        least = min(one.sent, one.received)
        self.late += least < int(seconds) - 1
        if seconds >= SHORT:
            rate = least / seconds
            self.slowest = rate if self.slowest is None else min(self.slowest, rate)

    def observer(self) -> "EpochCounter":
        """For one connection more."""
        return EpochCounter(self)

    def summary(self) -> dict[str, Any]:
        """All of it; `late` counts the connections with less than one epoch a second in
        either direction, but for one; `slowest` is the least rate of any direction of a
        connection that was under load for 1.5 seconds or more, in epochs a second."""
        return {
            "connections": self.connections,
            "seconds": round(self.seconds, 1),
            "sent": self.sent,
            "received": self.received,
            "rekeys": self.rekeys,
            "events": self.events,
            "late": self.late,
            "slowest": self.slowest,
        }


class EpochCounter:
    """Observes one connection: how many events, and how many times keys changed."""

    __slots__ = ("_began", "_sums", "events", "received", "rekeys", "sent")

    def __init__(self, sums: Epochs) -> None:
        self._sums = sums
        self._began = 0.0
        self.sent = self.received = self.rekeys = self.events = 0

    def session_started(self, agreed: Agreed, initiator: bool) -> None:
        """The handshake is over."""
        self._began = perf_counter()
        self._sums.counting.add(self)

    def epoch_began(self, sent: bool, epoch: int, secret: bytes) -> None:
        """Epochs are numbered from 0, so the number is that of changes."""
        if sent:
            self.sent = epoch
        else:
            self.received = epoch

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        """Count it."""
        self.events += 1

    def rekeyed(self, number: int, shared_secret: bytes) -> None:
        """Rekeys are numbered from 1."""
        self.rekeys = number

    def session_ended(self, code: int) -> None:
        """It may have been counted when the load ended."""
        self.finish()

    def finish(self) -> None:
        """Add it to the sums, once."""
        if self in self._sums.counting:
            self._sums.counting.discard(self)
            self._sums.add(self, perf_counter() - self._began)
