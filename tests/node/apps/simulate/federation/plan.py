"""What a simulated federation is asked for, and what follows from it: servers and their links.

All of it follows from the plan alone: keys too are drawn, so that the same seed gives the same
node ids, the same bytes and the same trace.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, combinations, pairwise
from typing import Final

from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._node.apps.simulate.plan import SeededRandom

# Seconds within which all servers start, one after another.
STARTING: Final = 10.0
# How much longer or shorter than usual it takes from a server to the next.
QUICKEST: Final = 0.5
SLOWEST: Final = 1.5
# Seconds until what was lost is sent again, and those behind it wait.
SENT_AGAIN: Final = 0.25
# Seconds until an end sees that its session is lost, at most; and until a dialler tries again.
NOTICED: Final = 3.0
REDIALLED: Final = 5.0


class Misbehaviour(StrEnum):
    """What one server does wrong, for the checks to find."""

    TWICE = "card-twice"  # it sends cards twice
    OLD = "old-card"  # it sends old cards again
    DEAF = "deaf"  # it hears no news
    LIE = "lie"  # its card has a link that is not there
    FORK = "dial-twice"  # it forwards a Dial to two servers
    BACK = "dial-back"  # it forwards a Dial to where that came from


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationPlan:
    """A federation and what befalls it.

    `links` is how many a server has; `minutes` how long faults go on. A link is cut `cuts` times an
    hour on average, a server dies `crashes` times. Each server makes `dials` tunnels a minute.
    `latency` is seconds one way, `loss` the part of what is sent that comes late because it
    was sent again. Clocks differ by at most `clocks` seconds. `carry` is the part of its
    neighbours whose tunnels a server passes on.
    """

    servers: int
    seed: int = 0
    links: int = 4
    minutes: float = 10.0
    cuts: float = 6.0
    crashes: float = 2.0
    dials: float = 2.0
    latency: float = 0.05
    loss: float = 0.01
    clocks: float = 240.0
    carry: float = 0.9
    misbehaviour: Misbehaviour | None = None

    @property
    def slowest(self) -> float:
        """Seconds that anything takes from a server to the next, at most."""
        return self.latency * SLOWEST + SENT_AGAIN

    def draws(self, *names: str | int) -> SeededRandom:
        """The source of chance of a part of this world."""
        return SeededRandom(self.seed, "federation", *names)

    def identity(self, server: int) -> Identity:
        """Who a server is."""
        private = self.draws("identity", server).randbytes(32)
        return Identity.from_keys([SIGNING["ed25519"].load(private)])

    def pairs(self) -> list[tuple[int, int]]:
        """Who is linked to whom, the lower number first: rings in random orders, one over the
        other, so that all are reached; then what is missing, where two lack a link."""
        draws = self.draws("links")
        found: set[tuple[int, int]] = set()
        wanted = min(self.links, self.servers - 1)
        for _ in range(max(1, wanted // 2)):
            order = draws.sample(range(self.servers), self.servers)
            found |= {_pair(one, other) for one, other in pairwise([*order, order[0]])}
        has = Counter(chain.from_iterable(found))
        lacking = [one for one in range(self.servers) if has[one] < wanted]
        draws.shuffle(lacking)
        for one, other in combinations(lacking, 2):
            if max(has[one], has[other]) < wanted and _pair(one, other) not in found:
                found.add(_pair(one, other))
                has.update((one, other))
        return sorted(found)

    def carries(self, server: int, neighbours: Iterable[int]) -> frozenset[int]:
        """Of a server's neighbours those whose tunnels go on through it."""
        draws = self.draws("carry", server)
        return frozenset(one for one in sorted(neighbours) if draws.random() < self.carry)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)
