"""Exponential backoff for retries, such as redialling a link or reconnecting to a store.

The caller provides the random fraction, so that tests can repeat the delays.
"""

from dataclasses import dataclass

from parley._node.errors import ConfigError
from parley._node.protocol.config_types import Seconds, check_types

# Further doublings change nothing and would eventually overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Retry delays that double from `first` up to `longest` seconds, with jitter.

    After a connection has lasted `steady` seconds, the delays start again at `first`.

    Example:

        from parley import Backoff

        pauses = Backoff(first=1.0, longest=60.0)
        assert 2.0 <= pauses.delay(failures=3, fraction=0.5) <= 4.0

    Raises:
        ConfigError: a number is not above 0, or `longest` is less than `first`.
    """

    first: Seconds = 0.5
    longest: Seconds = 30.0
    steady: Seconds = 10.0

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if self.longest < self.first:
            raise ConfigError(
                f"invalid longest {self.longest:g}: it must be at least first, {self.first:g}"
            )

    def delay(self, failures: int, fraction: float) -> float:
        """Return the seconds to wait after so many consecutive failures, at least 1.

        It is between half of the current bound and all of it, as `fraction` (0 to 1) specifies.
        """
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        bound = min(self.first * 2.0**doublings, self.longest)
        return bound * (1.0 + fraction) / 2.0
