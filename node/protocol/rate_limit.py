"""A rate limit: a burst, then a steady rate.

A bucket stores one number, the time at which it is full again.
"""

from typing import Final, NamedTuple

# What times that were added up may be off by, in seconds.
_TOLERANCE: Final = 1e-6


class Rate(NamedTuple):
    """A `burst` of at least 1, and one more each `seconds`."""

    burst: float
    seconds: float


class TokenBucket:
    """A token bucket, full at first."""

    __slots__ = ("_full_at", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._full_at = float("-inf")

    def take(self, now: float) -> bool:
        """Take a token; return False if there is none."""
        burst, seconds = self._rate
        full_at = max(self._full_at, now)
        if full_at - now > (burst - 1) * seconds + _TOLERANCE:
            return False
        self._full_at = full_at + seconds
        return True

    def give_back(self) -> None:
        self._full_at -= self._rate.seconds

    def next_at(self) -> float:
        """Return when there is a token."""
        return self._full_at - (self._rate.burst - 1) * self._rate.seconds

    def is_full(self, now: float) -> bool:
        return now >= self._full_at
