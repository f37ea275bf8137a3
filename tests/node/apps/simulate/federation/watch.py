"""Checks during a simulated federation: each card on its link, each Dial on its path.

They inspect the traffic, not the servers. A violation is a `Breach`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import decode

MOST_FORWARDS: Final = 7
# The number of breaches stored of each kind; all are counted.
KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Breach:
    """A violated claim; `at` is in seconds."""

    at: float
    claim: str
    text: str


class Breaches:
    """The breaches found."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.counts: Counter[str] = Counter()
        self.kept: list[Breach] = []

    def add(self, claim: str, text: str) -> None:
        """Record a breach."""
        self.counts[claim] += 1
        if self.counts[claim] <= KEPT:
            self.kept.append(Breach(self._now(), claim, text))


class CardReader:
    """Returns the origin and number of cards; each is decoded once."""

    def __init__(self) -> None:
        self._read: dict[bytes, tuple[bytes, int]] = {}

    def read(self, envelope: bytes) -> tuple[bytes, int]:
        """Return the origin and number of a card."""
        found = self._read.get(envelope)
        if found is None:
            outer: Any = decode(envelope)
            content: Any = decode(outer[keys.CONTENT])
            found = self._read[envelope] = (content[keys.ORIGIN], content[keys.NUMBER])
        return found


class SessionWatch:
    """The cards on one session of a link, in both directions.

    Each card must be newer than all cards of its origin that its sender has sent or received on
    this session. So each crosses at most once in each direction.
    """

    __slots__ = ("_breaches", "_highest", "name")

    def __init__(self, name: str, breaches: Breaches) -> None:
        self.name = name
        self._breaches = breaches
        self._highest: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})

    def sent(self, end: int, origin: bytes, number: int) -> None:
        """Check a card sent by one end (0 or 1)."""
        highest = self._highest[end]
        known = highest.get(origin, 0)
        if number <= known:
            what = "that passed before" if number == known else "older than one that passed"
            self._breaches.add("cards", f"{self.name}: end {end} sent a card {what}")
        highest[origin] = max(number, known)

    def received(self, end: int, origin: bytes, number: int) -> None:
        """Record a card received by one end."""
        highest = self._highest[end]
        highest[origin] = max(number, highest.get(origin, 0))


class DialWatch:
    """The path of each Dial, by its trace."""

    def __init__(self, breaches: Breaches) -> None:
        self._breaches = breaches
        self._visited: dict[bytes, list[int]] = {}
        self._forwards: Counter[bytes] = Counter()
        self._forwarded: set[tuple[bytes, int]] = set()

    def __len__(self) -> int:
        return len(self._visited)

    def began(self, trace: bytes, server: int) -> None:
        """Record a Dial made by a server."""
        self._visited[trace] = [server]

    def forwarded(self, trace: bytes, server: int) -> None:
        """Check a Dial sent to the next server, by the origin or another server."""
        self._forwards[trace] += 1
        if self._forwards[trace] > MOST_FORWARDS:
            self._breaches.add("dials", f"{trace.hex()}: forwarded {self._forwards[trace]} times")
        if (trace, server) in self._forwarded:
            self._breaches.add("dials", f"{trace.hex()}: forwarded twice by server {server}")
        self._forwarded.add((trace, server))

    def arrived(self, trace: bytes, server: int) -> None:
        """Check a Dial received by a server."""
        visited = self._visited[trace]
        if server in visited:
            self._breaches.add("dials", f"{trace.hex()}: server {server} is visited twice")
        visited.append(server)
