"""`RoundTrip`: the estimated round-trip time of one connection, as in RFC 6298."""

from typing import Final

# Seconds between two measurements, and the largest estimate: a peer that delays its Pongs must not
# be able to use up the time of everything that waits for it.
MEASURE_INTERVAL: Final = 10.0
LARGEST_ROUND_TRIP: Final = 2.0


class RoundTrip:
    """An upper estimate of the round-trip time, and `latest`, the last one measured: in seconds, 0
    until the first measurement."""

    __slots__ = ("_awaited", "_measured", "_sent_at", "_smoothed", "_variation", "latest")

    def __init__(self) -> None:
        self.latest = 0.0
        self._smoothed = 0.0
        self._variation = 0.0
        self._measured = False
        self._sent_at: float | None = None
        self._awaited: int | None = None  # the async id of the Ping that measures it

    @property
    def estimate(self) -> float:
        """The smoothed round-trip time plus four times its variation, at most 2 s."""
        return min(self._smoothed + 4 * self._variation, LARGEST_ROUND_TRIP)

    def is_due(self, now: float) -> bool:
        """Whether to send a Ping: none is unanswered, and the last one was sent 10 s ago."""
        if self._awaited is not None:
            return False
        return self._sent_at is None or now - self._sent_at >= MEASURE_INTERVAL

    def sent(self, async_id: int, now: float) -> None:
        """A Ping was sent to measure it."""
        self._awaited, self._sent_at = async_id, now

    def answered(self, async_id: int, seconds: float) -> None:
        """Take the round-trip time of a Pong, whatever its Ping was sent for."""
        if async_id == self._awaited:
            self._awaited = None
        self.latest = seconds
        if not self._measured:
            self._measured = True
            self._smoothed, self._variation = seconds, seconds / 2
            return
        self._variation += (abs(self._smoothed - seconds) - self._variation) / 4
        self._smoothed += (seconds - self._smoothed) / 8
