"""The plan of a simulated federation, and the servers and links that follow from it.

Everything depends only on the plan. Even keys are generated from the seed, so that the same seed
gives the same node IDs, the same bytes and the same trace.
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

# Seconds in which all servers start, one after another.
STARTING: Final = 10.0
# The factor by which latencies between servers vary.
QUICKEST: Final = 0.5
SLOWEST: Final = 1.5
# Seconds until lost data is resent, while later data waits.
SENT_AGAIN: Final = 0.25
# Maximum seconds until an end notices a lost session, and until a redial.
NOTICED: Final = 3.0
REDIALLED: Final = 5.0


class Misbehaviour(StrEnum):
    """The fault of one server, which the checks must find."""

    TWICE = "card-twice"  # sends cards twice
    OLD = "old-card"  # resends old cards
    DEAF = "deaf"  # ignores new cards
    LIE = "lie"  # lists a missing link in its card
    FORK = "dial-twice"  # forwards a Dial to two servers
    BACK = "dial-back"  # returns a Dial to its sender


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationPlan:
    """A federation and its faults.

    Attributes: links: number of links per server. minutes: duration of the faults. cuts, crashes:
    average number per hour, of each link and of each server. dials: tunnels per minute of each
    server. latency: seconds in one direction. loss: fraction of the data that is late because it
    was resent. clocks: maximum difference of clocks in seconds. carry: fraction of the neighbours
    for which a server relays tunnels.
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
        """The maximum seconds for a message from one server to the next."""
        return self.latency * SLOWEST + SENT_AGAIN

    def draws(self, *names: str | int) -> SeededRandom:
        """Return the random numbers of one part of the world."""
        return SeededRandom(self.seed, "federation", *names)

    def identity(self, server: int) -> Identity:
        """Return the identity of a server."""
        private = self.draws("identity", server).randbytes(32)
        return Identity.from_keys([SIGNING["ed25519"].load(private)])

    def pairs(self) -> list[tuple[int, int]]:
        """Return the linked pairs, the lower number first.

        They form rings in random orders, so that all servers are connected. Servers that still lack
        links are then paired.
        """
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
        """Return the neighbours for which a server relays tunnels."""
        draws = self.draws("carry", server)
        return frozenset(one for one in sorted(neighbours) if draws.random() < self.carry)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)
