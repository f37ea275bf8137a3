"""Keep-alive: when to rest, when to ping, when to give up, and which Pong answers what (section 9).

Any byte received counts as an answer. Sends nothing itself.
"""

from typing import Final

from parley._node.protocol.limits import OWN_PINGS, WAITING_PONGS
from parley._node.protocol.rate_limit import TokenBucket

# Seconds without a byte after which a connection rests.
REST: Final = 1.0
AWAKE: Final = 0
RESTING: Final = 1
PROBING: Final = 2


class KeepAlive:
    """The clock of a connection that is idle, or may be dead. All times are seconds of `now`.

    `due` is when `rest_due`, `probe_due` or `expired` becomes true; `stage` says which. Whoever
    reads bytes puts `due` off by `awake` seconds, and the stage is `AWAKE` again.
    """

    __slots__ = (
        "_next_id",
        "_pings",
        "_timeout",
        "awake",
        "due",
        "idle",
        "pongs_waiting",
        "stage",
        "waiting",
    )

    def __init__(self, now: float, idle: float, timeout: float) -> None:
        self.idle = idle
        self.awake = min(REST, idle)
        self.begin_anew(now)
        self._timeout = timeout
        self.waiting: dict[int, float] = {}
        self._next_id = 1
        self._pings = TokenBucket(OWN_PINGS)
        self.pongs_waiting = 0

    def silent_for(self, now: float) -> float:
        """How long nothing came, in seconds."""
        waited = (self.awake, self.idle, self.idle + self._timeout)[self.stage]
        return now - (self.due - waited)

    def begin_anew(self, now: float) -> None:
        """A new transport is there."""
        self.due, self.stage = now + self.awake, AWAKE

    def rest_due(self, now: float) -> bool:
        """Whether to let go what is soon made anew, because nothing came for a second."""
        return self.stage == AWAKE and now >= self.due

    def rests(self) -> None:
        """That was done because of `rest_due`."""
        self.due += self.idle - self.awake
        self.stage = RESTING

    def probe_due(self, now: float) -> bool:
        """Whether to ping because nothing came for so long."""
        return self.stage == RESTING and now >= self.due

    def expired(self, now: float) -> bool:
        """Whether the ping was in vain."""
        return self.stage == PROBING and now >= self.due

    def probe_sent(self, now: float) -> None:
        """A ping of ours went out because of `probe_due`."""
        self.due = now + self._timeout
        self.stage = PROBING

    def new_ping(self, now: float) -> int | None:
        """The async id for a Ping; None while 64 are unanswered, or beyond our own rate."""
        if len(self.waiting) >= WAITING_PONGS or not self._pings.take(now):
            return None
        while self._next_id in self.waiting:
            self._next_id = self._next_id % 65_535 + 1
        async_id = self._next_id
        self._next_id = async_id % 65_535 + 1
        self.waiting[async_id] = now
        return async_id

    def pong(self, async_id: int, now: float) -> float | None:
        """The round trip that a Pong ends, in seconds; None if nobody waits for it."""
        sent = self.waiting.pop(async_id, None)
        return None if sent is None else now - sent
