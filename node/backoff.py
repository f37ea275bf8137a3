"""How long to wait before something that failed is tried again, such as dialling a link or asking
a store: longer each time, within bounds, and not at the same moment as everybody else that lost
the same node. Nothing is random here: the caller draws the fraction.
"""

from dataclasses import dataclass

from parley._node.errors import ConfigError
from parley._node.protocol.config_types import Seconds, check_types

# More doublings than this change nothing, and would overflow at last.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses of at most `first` seconds, then twice that, and so on up to `longest`.

    A link that held for `steady` seconds was a good one: after it they begin anew.

    Raises:
        ConfigError: a number is not above 0, or `longest` is less than `first`.
    """

    first: Seconds = 0.5
    longest: Seconds = 30.0
    steady: Seconds = 10.0

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if self.longest < self.first:
            raise ConfigError(f"longest is {self.longest:g}; it must be {self.first:g} or more")

    def delay(self, failures: int, fraction: float) -> float:
        """Seconds to wait after so many failures in a row, 1 or more: from half of the
        bound to all of it, as `fraction` (0 to 1) says."""
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        bound = min(self.first * 2.0**doublings, self.longest)
        return bound * (1.0 + fraction) / 2.0
