"""What a simulation is asked for, and what follows from it: which nodes meet, and how.

All of it follows from the plan alone, the seed included.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random  # noqa: TID251  # a simulation, unlike the core, is to be repeatable
from typing import Any, Final

from parley._node.config import NodeConfig
from parley._node.protocol.limits import Limits

# Sizes of payloads where the plan fixes none: most are small, a few are long.
_USUAL = 5.0  # the natural logarithm of 150 bytes
_SPREAD = 1.0
_LONGEST = 24 * 1024


class SeededRandom(Random):
    """A source of chance for one actor, which `names` names."""

    def __new__(cls, *_: Any) -> "SeededRandom":
        # Random's own takes no more than a seed.
        return super().__new__(cls)

    def __init__(self, seed: int, *names: str | int) -> None:
        super().__init__("/".join(map(str, (seed, *names))))

    def pause(self, rate: float) -> float:
        """Seconds until the next of what happens `rate` times a second on average."""
        return self.expovariate(rate)

    def payload(self, size: int | None) -> bytes:
        """Bytes to say: `size`, or as many as people's programs usually do."""
        if size is None:
            size = min(_LONGEST, 1 + int(self.lognormvariate(_USUAL, _SPREAD)))
        return self.randbytes(size)

    def once_in(self, count: float) -> bool:
        """True once in `count` times."""
        return self.random() * count < 1


ROLES: Final = ("server", "peer", "client")
# The signing keys of a node that takes part in a mixed negotiation.
EVERY_KEY: Final = ("ed25519", "ecdsa-p256", "ml-dsa-65")
ONE_KEY: Final = ("ed25519",)


class Traffic(StrEnum):
    """What goes on between nodes."""

    CALLS = "calls"
    TOPICS = "topics"
    FILES = "files"
    EVENTS = "events"
    KEYS = "keys"
    FAULTS = "faults"


# Preferences of the nodes in turn; a responder's decide, all others are offered after them.
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
    """A simulation. `minutes` are simulated ones; `rate` is times the usual traffic;
    `payload` is bytes of each call's and note's data, None for many sizes; `burst` is how
    many notes are published at once, None likewise; `latency` is seconds one way."""

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
        """How long it takes, in simulated time."""
        return self.minutes * 60

    def draws(self, *names: str | int) -> SeededRandom:
        """The source of chance of an actor."""
        return SeededRandom(self.seed, *names)

    def links(self) -> list[tuple[int, int]]:
        """Who dials whom: a ring, and as many others as half of the nodes."""
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
        """The algorithms of each node's signing keys."""
        return EVERY_KEY if self.mixed else ONE_KEY

    def config(self, node: int) -> NodeConfig:
        """The settings of a node."""
        preferred = _SUITES[node % len(_SUITES)] if self.mixed else {}
        algorithms = {
            name: (*names, *(other for other in _ALL[name] if other not in names))
            for name, names in preferred.items()
        }
        role = ROLES[node % len(ROLES)]
        # Windows that bulk data fills, so that there is flow control to be seen.
        limits = Limits(stream_window=128 << 10)
        return NodeConfig(role=role, algorithms=algorithms, limits=limits, drain_timeout=0.5)
