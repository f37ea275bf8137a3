"""The plan of a simulation, and the nodes, links and settings that follow from it.

Everything depends only on the plan, including its seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random  # noqa: TID251  # a simulation, unlike the core, is to be repeatable
from typing import Any, Final

from parley._node.config import NodeConfig
from parley._node.protocol.limits import Limits

# Payload sizes if the plan doesn't fix one: most are small, few are long.
_USUAL = 5.0  # the natural logarithm of 150 bytes
_SPREAD = 1.0
_LONGEST = 24 * 1024


class SeededRandom(Random):
    """The random numbers of one actor, derived from the seed and its `names`."""

    def __new__(cls, *_: Any) -> "SeededRandom":
        # Random.__new__ accepts only a seed.
        return super().__new__(cls)

    def __init__(self, seed: int, *names: str | int) -> None:
        super().__init__("/".join(map(str, (seed, *names))))

    def pause(self, rate: float) -> float:
        """Return the random seconds until the next event of a process with `rate` events per
        second.
        """
        return self.expovariate(rate)

    def payload(self, size: int | None) -> bytes:
        """Return random bytes: `size` of them, or a typical number."""
        if size is None:
            size = min(_LONGEST, 1 + int(self.lognormvariate(_USUAL, _SPREAD)))
        return self.randbytes(size)

    def once_in(self, count: float) -> bool:
        """Return True once in `count` times on average."""
        return self.random() * count < 1


ROLES: Final = ("server", "peer", "client")
# The signing keys of a node, if the nodes use different algorithms.
EVERY_KEY: Final = ("ed25519", "ecdsa-p256", "ml-dsa-65")
ONE_KEY: Final = ("ed25519",)


class Traffic(StrEnum):
    """The kinds of traffic between nodes."""

    CALLS = "calls"
    TOPICS = "topics"
    FILES = "files"
    EVENTS = "events"
    KEYS = "keys"
    FAULTS = "faults"


# The preferences of successive nodes. The responder's decide; all other algorithms follow them.
_SUITES: Final[tuple[Mapping[str, tuple[str, ...]], ...]] = (
    {},
    {"signing": ("ecdsa-p256",), "hash": ("sha512",)},
    {"cipher": ("chacha20-poly1305",), "hash": ("blake2b-256",), "kex": ("x25519",)},
    {"sealing": ("each",), "cipher": ("xchacha20-poly1305",)},
    {"signing": ("ml-dsa-65",)},
)
_ALL: Final[Mapping[str, tuple[str, ...]]] = {
    "kex": ("x25519-mlkem768", "x25519"),
    "signing": EVERY_KEY,
    "hash": ("sha256", "blake2b-256", "sha512"),
    "cipher": ("aes-256-gcm", "chacha20-poly1305", "xchacha20-poly1305"),
    "sealing": ("chain", "each"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a simulation.

    Attributes: minutes: simulated minutes. rate: factor for the usual amount of traffic. payload:
    bytes of data in each call and note; None for varying sizes. burst: number of notes published
    together; None for varying numbers. latency: seconds in one direction.
    """

    nodes: int
    minutes: float
    seed: int = 0
    rate: float = 1.0
    payload: int | None = None
    burst: int | None = None
    latency: float = 0.005
    traffic: frozenset[Traffic] = frozenset(Traffic)
    mixed: bool = True

    @property
    def seconds(self) -> float:
        """The duration in simulated seconds."""
        return self.minutes * 60

    def draws(self, *names: str | int) -> SeededRandom:
        """Return the random numbers of an actor."""
        return SeededRandom(self.seed, *names)

    def links(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that connect: a ring, and further links for half of the
        nodes.
        """
        found = {(node, (node + 1) % self.nodes) for node in range(self.nodes)}
        if self.nodes == 2:
            found = {(0, 1)}
        draws = self.draws("links")
        for _ in range(self.nodes // 2):
            first, second = draws.sample(range(self.nodes), 2)
            if (second, first) not in found:
                found.add((first, second))
        return sorted(found)

    def keys(self) -> tuple[str, ...]:
        """Return the algorithms of each node's signing keys."""
        return EVERY_KEY if self.mixed else ONE_KEY

    def config(self, node: int) -> NodeConfig:
        """Return the settings of a node."""
        preferred = _SUITES[node % len(_SUITES)] if self.mixed else {}
        algorithms = {
            name: (*names, *(other for other in _ALL[name] if other not in names))
            for name, names in preferred.items()
        }
        role = ROLES[node % len(ROLES)]
        # Small windows, so that bulk data causes flow control.
        limits = Limits(stream_window=128 << 10)
        return NodeConfig(role=role, algorithms=algorithms, limits=limits, drain_timeout=0.5)
