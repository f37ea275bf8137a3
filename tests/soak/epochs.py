"""Counts of key changes on the connections of a node: an observer of each, and their sum.

Secrets are not stored. Seconds are those of the process's own clock.
"""

from time import perf_counter
from typing import Any

import anyio

from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint

# Seconds between two measurements of the event loop's delay.
TICK = 0.05


class Epochs:
    """The sums over all connections, each while it was under load."""

    def __init__(self) -> None:
        self.connections = 0
        self.seconds = 0.0
        self.sent = self.received = self.rekeys = self.events = 0
        self.longest = self.lag = 0.0
        self.counting: set[EpochCounter] = set()

    def rest(self) -> None:
        """Stop counting, because the load has ended."""
        for counter in list(self.counting):
            counter.finish()

    def add(self, one: "EpochCounter", seconds: float) -> None:
        """Add a connection with its time under load."""
        self.connections += 1
        self.seconds += seconds
        self.sent += one.sent
        self.received += one.received
        self.rekeys += one.rekeys
        self.events += one.events
        one.keys_changed()

    async def watch_loop(self, rest: anyio.Event) -> None:
        """Measure the delay of the event loop until `rest`."""
        while not rest.is_set():
            due = perf_counter() + TICK
            await anyio.sleep(TICK)
            self.lag = max(self.lag, perf_counter() - due)

    def observer(self) -> "EpochCounter":
        """Return an observer for a new connection."""
        return EpochCounter(self)

    def summary(self) -> dict[str, Any]:
        """Return all sums.

        `longest` is the maximum number of seconds that one set of sending keys was used, and `lag`
        the maximum delay of the event loop.
        """
        return {
            "connections": self.connections,
            "seconds": round(self.seconds, 1),
            "sent": self.sent,
            "received": self.received,
            "rekeys": self.rekeys,
            "events": self.events,
            "longest": round(self.longest, 2),
            "lag": round(self.lag, 2),
        }


class EpochCounter:
    """Observes one connection, and counts events and key changes.

    Keys without any sent event need not change, so their time counts from the first event.
    """

    __slots__ = ("_began", "_since", "_sums", "events", "received", "rekeys", "sent")

    def __init__(self, sums: Epochs) -> None:
        self._sums = sums
        self._began = 0.0
        self._since: float | None = None  # first event sent under the current keys
        self.sent = self.received = self.rekeys = self.events = 0

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        self._began = perf_counter()
        self._sums.counting.add(self)

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        """Record the number of key changes, which is the epoch's number, because epochs start at
        0.
        """
        if sent:
            self.keys_changed()
            self.sent = epoch
        else:
            self.received = epoch

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        self.events += 1
        if sent and self._since is None:
            self._since = perf_counter()

    def keys_changed(self) -> None:
        """Record that the current keys are no longer used."""
        since, self._since = self._since, None
        if since is not None:
            self._sums.longest = max(self._sums.longest, perf_counter() - since)

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        """Record the number of rekeys; they are numbered from 1."""
        self.rekeys = number

    def _ignore(self, *_: object) -> None:
        """Ignore the other observer methods."""

    stream_opened = direction_ended = session_suspended = session_resumed = _ignore

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        """Finish, unless the connection was already counted when the load ended."""
        self.finish()

    def finish(self) -> None:
        """Add it to the sums, once."""
        if self in self._sums.counting:
            self._sums.counting.discard(self)
            self._sums.add(self, perf_counter() - self._began)
