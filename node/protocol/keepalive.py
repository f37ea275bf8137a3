"""Keep-alive of an idle connection: when to free keys, send a Ping, or time out (section 9).

Any received byte counts as an answer to a Ping.
"""

from typing import Final

from parley._node.protocol.limits import OWN_PINGS, WAITING_PONGS
from parley._node.protocol.rate_limit import TokenBucket

# Seconds without a received byte after which a connection frees its keys.
REST: Final = 1.0
AWAKE: Final = 0
RESTING: Final = 1
PROBING: Final = 2


class KeepAlive:
    """The timers of an idle connection. All times are seconds of `now`.

    `heard` is when bytes were last received. At `due`, or later if bytes were received in the
    meantime, the check for the current `stage` becomes true: `rest_due`, `probe_due` or `expired`.
    """

    __slots__ = (
        "_next_id",
        "_pings",
        "_timeout",
        "awake",
        "due",
        "heard",
        "idle",
        "stage",
        "waiting",
    )

    def __init__(self, now: float, idle: float, timeout: float) -> None:
        self.idle = idle
        self.awake = min(REST, idle)
        self.received(now)
        self._timeout = timeout
        self.waiting: dict[int, float] = {}
        self._next_id = 1
        self._pings = TokenBucket(OWN_PINGS)

    def silent_for(self, now: float) -> float:
        return now - self.heard

    def received(self, now: float) -> None:
        """Restart the timers, because bytes were received or the transport is new."""
        self.heard, self.due, self.stage = now, now + self.awake, AWAKE

    def rest_due(self, now: float) -> bool:
        """Return whether to free keys, because no byte was received for a second."""
        if self.stage != AWAKE:
            return False
        self.due = self.heard + self.awake
        return now >= self.due

    def rests(self) -> None:
        """Record that keys were freed."""
        self.due += self.idle - self.awake
        self.stage = RESTING

    def probe_due(self, now: float) -> bool:
        return self.stage == RESTING and now >= self.due

    def expired(self, now: float) -> bool:
        return self.stage == PROBING and now >= self.due

    def probe_sent(self, now: float) -> None:
        """Record that a Ping was sent because of `probe_due`."""
        self.due = now + self._timeout
        self.stage = PROBING

    def new_ping(self, now: float) -> int | None:
        """Return the async ID of a new Ping; None if 64 are unanswered or the local rate limit is
        reached.
        """
        if len(self.waiting) >= WAITING_PONGS or not self._pings.take(now):
            return None
        while self._next_id in self.waiting:
            self._next_id = self._next_id % 65_535 + 1
        async_id = self._next_id
        self._next_id = async_id % 65_535 + 1
        self.waiting[async_id] = now
        return async_id

    def pong(self, async_id: int, now: float) -> float | None:
        """Return the round-trip time of a Pong in seconds; None if it doesn't match a Ping."""
        sent = self.waiting.pop(async_id, None)
        return None if sent is None else now - sent
