"""Keep-alive: when to ping, when to give up, and which Pong answers what (section 9).

Any byte received counts as an answer. Sends nothing itself.
"""

from node.protocol.allowance import Allowance
from node.protocol.limits import OWN_PINGS, WAITING_PONGS


class KeepAlive:
    """The clock of a connection that may be dead. All times are seconds of `now`.

    `due` is when `probe_due` or `expired` becomes true, `probing` says which. Whoever reads
    bytes puts `due` off by `idle` seconds, and ends the probing.
    """

    __slots__ = (
        "_next_id",
        "_pings",
        "_timeout",
        "_waiting",
        "due",
        "idle",
        "pongs_waiting",
        "probing",
    )

    def __init__(self, now: float, idle: float, timeout: float) -> None:
        self.idle = idle
        self.due = now + idle
        self.probing = False
        self._timeout = timeout
        self._waiting: dict[int, float] = {}
        self._next_id = 1
        self._pings = Allowance(OWN_PINGS)
        self.pongs_waiting = 0

    def silent_for(self, now: float) -> float:
        """How long nothing came, in seconds."""
        waited = self.idle + self._timeout if self.probing else self.idle
        return now - (self.due - waited)

    def begin_anew(self, now: float) -> None:
        """A new transport is there."""
        self.due, self.probing = now + self.idle, False

    def probe_due(self, now: float) -> bool:
        """Whether to ping because nothing came for so long."""
        return not self.probing and now >= self.due

    def expired(self, now: float) -> bool:
        """Whether the ping was in vain."""
        return self.probing and now >= self.due

    def probe_sent(self, now: float) -> None:
        """A ping of ours went out because of `probe_due`."""
        self.due = now + self._timeout
        self.probing = True

    def new_ping(self, now: float) -> int | None:
        """The async id for a Ping; None while 64 are unanswered, or beyond our own rate."""
        if len(self._waiting) >= WAITING_PONGS or not self._pings.take(now):
            return None
        while self._next_id in self._waiting:
            self._next_id = self._next_id % 65_535 + 1
        async_id = self._next_id
        self._next_id = async_id % 65_535 + 1
        self._waiting[async_id] = now
        return async_id

    def pong(self, async_id: int, now: float) -> float | None:
        """The round trip that a Pong ends, in seconds; None if nobody waits for it."""
        sent = self._waiting.pop(async_id, None)
        return None if sent is None else now - sent
