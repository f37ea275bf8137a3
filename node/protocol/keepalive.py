"""Keep-alive: when to ping, when to give up, and which Pong answers what (section 9).

Any byte received counts as an answer. Sends nothing itself.
"""

from node.protocol.allowance import Allowance
from node.protocol.limits import OWN_PINGS, WAITING_PONGS

INFINITY = float("inf")


class KeepAlive:
    """The clock of a connection that may be dead. All times are seconds of `now`.

    `last_received` is for the session to set whenever bytes come.
    """

    __slots__ = (
        "_idle",
        "_next_id",
        "_pings",
        "_probe_sent",
        "_timeout",
        "_waiting",
        "last_received",
        "pongs_waiting",
    )

    def __init__(self, now: float, idle: float, timeout: float) -> None:
        self._idle = idle
        self._timeout = timeout
        self.last_received = now
        self._probe_sent = -INFINITY  # answered by whatever came later
        self._waiting: dict[int, float] = {}
        self._next_id = 1
        self._pings = Allowance(OWN_PINGS)
        self.pongs_waiting = 0

    def deadline(self) -> float:
        """When `probe_due` or `expired` may become true."""
        if self._probe_sent > self.last_received:
            return self._probe_sent + self._timeout
        return self.last_received + self._idle

    def probe_due(self, now: float) -> bool:
        """Whether to ping because nothing came for so long."""
        return now >= self.last_received + self._idle and not self._probe_sent > self.last_received

    def expired(self, now: float) -> bool:
        """Whether the ping was in vain."""
        return self._probe_sent > self.last_received and now >= self._probe_sent + self._timeout

    def probe_sent(self, now: float) -> None:
        """A ping of ours went out because of `probe_due`."""
        self._probe_sent = now

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
