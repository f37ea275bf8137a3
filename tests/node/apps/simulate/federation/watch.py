"""What is watched while a simulated federation runs: each card on its link, each Dial on its way.

It reads what passes on the wires, and asks no server. What is not as it should be is a `Breach`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import decode

MOST_FORWARDS: Final = 7
# Breaches that are kept of each kind; all are counted.
KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that did not hold: `at` in seconds, `claim` the one that is broken."""

    at: float
    claim: str
    text: str


class Breaches:
    """Those that were found."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.counts: Counter[str] = Counter()
        self.kept: list[Breach] = []

    def add(self, claim: str, text: str) -> None:
        """Note one."""
        self.counts[claim] += 1
        if self.counts[claim] <= KEPT:
            self.kept.append(Breach(self._now(), claim, text))


class CardReader:
    """Says whose card an envelope holds, and its number; each is decoded once."""

    def __init__(self) -> None:
        self._read: dict[bytes, tuple[bytes, int]] = {}

    def read(self, envelope: bytes) -> tuple[bytes, int]:
        """Its origin and number."""
        found = self._read.get(envelope)
        if found is None:
            outer: Any = decode(envelope)
            content: Any = decode(outer[keys.CONTENT])
            found = self._read[envelope] = (content[keys.ORIGIN], content[keys.NUMBER])
        return found


class SessionWatch:
    """The cards of one session of a link, both ways: of an origin each is newer than all that
    its sender sent or got on this session before. So each crosses at most once in each direction.
    """

    __slots__ = ("_breaches", "_highest", "name")

    def __init__(self, name: str, breaches: Breaches) -> None:
        self.name = name
        self._breaches = breaches
        self._highest: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})

    def sent(self, end: int, origin: bytes, number: int) -> None:
        """One end (0 or 1) has sent a card."""
        highest = self._highest[end]
        known = highest.get(origin, 0)
        if number <= known:
            what = "that passed before" if number == known else "older than one that passed"
            self._breaches.add("cards", f"{self.name}: end {end} sent a card {what}")
        highest[origin] = max(number, known)

    def received(self, end: int, origin: bytes, number: int) -> None:
        """One end has got a card."""
        highest = self._highest[end]
        highest[origin] = max(number, highest.get(origin, 0))


class DialWatch:
    """The way of each Dial, by its trace."""

    def __init__(self, breaches: Breaches) -> None:
        self._breaches = breaches
        self._visited: dict[bytes, list[int]] = {}
        self._forwards: Counter[bytes] = Counter()
        self._forwarded: set[tuple[bytes, int]] = set()

    def __len__(self) -> int:
        return len(self._visited)

    def began(self, trace: bytes, server: int) -> None:
        """A server made a Dial."""
        self._visited[trace] = [server]

    def forwarded(self, trace: bytes, server: int) -> None:
        """A server, the origin among them, sent it on to the next."""
        self._forwards[trace] += 1
        if self._forwards[trace] > MOST_FORWARDS:
            self._breaches.add("dials", f"{trace.hex()}: forwarded {self._forwards[trace]} times")
        if (trace, server) in self._forwarded:
            self._breaches.add("dials", f"{trace.hex()}: forwarded twice by server {server}")
        self._forwarded.add((trace, server))

    def arrived(self, trace: bytes, server: int) -> None:
        """A server got it."""
        visited = self._visited[trace]
        if server in visited:
            self._breaches.add("dials", f"{trace.hex()}: server {server} is visited twice")
        visited.append(server)
