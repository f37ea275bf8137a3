"""How often something may be done: so many times at once, and from then on at a steady rate.

All that is remembered is from when on the whole of it would be there again, so
that an allowance costs next to nothing. The time comes in as `now`: seconds of any clock
that never goes back. Counts nothing, and decides nothing about what is too much.
"""

from typing import Final, NamedTuple

# What times that were added up may be off by, in seconds.
_TOLERANCE: Final = 1e-6


class Rate(NamedTuple):
    """`burst` times at once, at least 1, and one more each `seconds`."""

    burst: float
    seconds: float


class TokenBucket:
    """What is left under a rate; at first all of it."""

    __slots__ = ("_full_at", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._full_at = float("-inf")

    def take(self, now: float) -> bool:
        """Use it once, if anything is left; returns whether there was."""
        burst, seconds = self._rate
        full_at = max(self._full_at, now)
        if full_at - now > (burst - 1) * seconds + _TOLERANCE:
            return False
        self._full_at = full_at + seconds
        return True

    def give_back(self) -> None:
        """The last use was none."""
        self._full_at -= self._rate.seconds

    def next_at(self) -> float:
        """From when on there is something left."""
        return self._full_at - (self._rate.burst - 1) * self._rate.seconds

    def is_full(self, now: float) -> bool:
        """Whether nothing of it is used up."""
        return now >= self._full_at
