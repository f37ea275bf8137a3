"""Rate limits of a peer (section 14), as the receiver counts them.

An allowance refills at a number per second, up to its burst.
"""

from collections.abc import Callable
from time import perf_counter

from tests.reference.wire import TYPES, Event, Violation

# By name: how many at once, and how many a second.
RATES = {
    "updates": (64, 1.0),
    "seals": (64, 1.0),
    "idle": (64, 1.0),
    "pings": (16_384, 1_024.0),
    "told": (64, 1.0),
}
UPDATES_BETWEEN_REKEYS = 16_384
TELL_BYTES = 262_144


class Allowances:
    """The remaining allowances; `reasons` justify Windows and Resets, and Pings that wait for their
    Pong.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._left = {name: (float(burst), 0.0) for name, (burst, _) in RATES.items()}
        self._updates = 0
        self.reasons = 0
        self.pings: set[int] = set()

    def sent(self, event: Event) -> None:
        """An event of one's own."""
        if event.stream:
            reasons = 2 if event.type == TYPES["Open"] else 1 + len(event.payload) // 512
            self.reasons += reasons
        elif event.type == TYPES["Ping"]:
            self.pings.add(event.async_id)

    def received(self, event: Event, sealed: int, rekeyed: bool) -> None:
        """An event of the other side; its seal vouched for `sealed` events before it, and
        `rekeyed` is said of the KeyUpdate of a rekey."""
        kind = event.type
        if kind == TYPES["Open"]:
            self.reasons += 2
        elif kind in (TYPES["Window"], TYPES["Reset"]):
            if self.reasons:
                self.reasons -= 1
            else:
                self._use("idle")
        elif kind == TYPES["KeyUpdate"]:
            self._updates = 0 if rekeyed else self._updates + 1
            if self._updates > UPDATES_BETWEEN_REKEYS:
                raise Violation("overloaded", "too many updates without a rekey")
            if not rekeyed:
                self._use("updates")
        elif kind == TYPES["Seal"] and not sealed:
            self._use("seals")
        elif kind == TYPES["Ping"]:
            self._use("pings")
        elif kind == TYPES["Pong"]:
            if event.async_id in self.pings:
                self.pings.remove(event.async_id)
            else:
                self._use("idle")

    def told(self, progress: int) -> None:
        """Count a Received that acknowledges this many more bytes than the previous one."""
        if progress < TELL_BYTES:
            self._use("told")

    def _use(self, name: str) -> None:
        burst, per_second = RATES[name]
        left, since = self._left[name]
        now = self._clock()
        left = min(burst, left + (now - since) * per_second)
        if left < 1:
            raise Violation("overloaded", name)
        self._left[name] = left - 1, now
