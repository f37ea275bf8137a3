"""A token bucket: a burst, then a steady rate.

It stores a single number, the time at which the bucket is full again.
"""

from typing import Final, NamedTuple

# Rounding error of added times, in seconds.
_TOLERANCE: Final = 1e-6
_FULL: Final = float("-inf")


class Rate(NamedTuple):
    """A burst of `burst` (at least 1) tokens, and one more every `seconds`."""

    burst: float
    seconds: float


class TokenBucket:
    """A token bucket, initially full."""

    __slots__ = ("_full_at", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._full_at = _FULL

    def take(self, now: float) -> bool:
        """Take a token; return False if the bucket is empty."""
        burst, seconds = self._rate
        full_at = max(self._full_at, now)
        if full_at - now > (burst - 1) * seconds + _TOLERANCE:
            return False
        self._full_at = full_at + seconds
        return True

    def give_back(self) -> None:
        self._full_at -= self._rate.seconds

    def next_at(self) -> float:
        """Return the time of the next token."""
        return self._full_at - (self._rate.burst - 1) * self._rate.seconds

    def is_full(self, now: float) -> bool:
        return now >= self._full_at
