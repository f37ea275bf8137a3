"""What is measured under which name, on which side, and what the aims are.

A case, a side and a target are each a row of a table here.
"""

from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.bus.bare import open_commits, open_fsync
from benchmarks.bus.parley import open_peer, open_redis, open_sqlite
from benchmarks.bus.raw_redis import open_many, open_one
from benchmarks.bus.sides import Opening

Work = Literal["publish", "batches", "consume", "handle", "latency"]
LIGHTBUS: Final = "lightbus"


@dataclass(frozen=True, slots=True)
class BusCase:
    """A kind of work, and how many tasks, consumers or events at a time that is."""

    title: str
    work: Work
    count: int

    @property
    def unit(self) -> str:
        """Of its value."""
        return "us" if self.work == "latency" else "events/s"


@dataclass(frozen=True, slots=True)
class BusSide:
    """A way of keeping events, and the cases that it has. `fewer` divides how many events
    it is given to consume, so that a slow side takes no longer than the others. `opening` is None
    for a side that is opened once for all rounds."""

    title: str
    opening: Opening | None
    cases: tuple[str, ...]
    on_redis: bool = False
    fewer: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """What a side is to reach in a case: a value, or else a multiple of another side's."""

    case: str
    side: str
    value: float | None = None
    times: float = 0.0
    beside: str = ""
    beside_case: str = ""


CASES: Final[dict[str, BusCase]] = {
    "publish-1": BusCase("one publisher", "publish", 1),
    "publish-10": BusCase("ten publishers", "publish", 10),
    "batches-100": BusCase("one publisher, 100 at a time", "batches", 100),
    "consume-1": BusCase("one consumer", "consume", 1),
    "consume-2": BusCase("two consumers of a group", "consume", 2),
    "handler-1": BusCase("a handler", "handle", 1),
    "handler-8": BusCase("a handler, eight at a time", "handle", 8),
    "latency": BusCase("from publish to being handed out", "latency", 1),
}

_PUBLISHING: Final = ("publish-1", "publish-10")
_CONSUMING: Final = ("consume-1", "consume-2")
_BARE: Final = (*_PUBLISHING, *_CONSUMING, "latency")

SIDES: Final[dict[str, BusSide]] = {
    "fsync": BusSide("a loop of fsync", open_fsync, ("publish-1",)),
    "sqlite3": BusSide("a loop of commits of sqlite3", open_commits, ("publish-1",)),
    "sqlite": BusSide("the bus on SQLite", open_sqlite, tuple(CASES)),
    "peer": BusSide("the bus of another node, over TCP", open_peer, tuple(CASES), fewer=2),
    "redis-one": BusSide("Redis Streams, a command at a time", open_one, _BARE, True, 5),
    "redis-many": BusSide(
        "Redis Streams, 100 events a trip", open_many, ("batches-100", *_CONSUMING), True
    ),
    "redis": BusSide("the bus on Redis", open_redis, tuple(CASES), True),
    LIGHTBUS: BusSide("Lightbus 1.1.2", None, _BARE, True, 20),
}

TARGETS: Final = (
    Target("publish-10", "sqlite", 20_000, 0.4, "sqlite3", "publish-1"),
    Target("consume-1", "sqlite", 50_000),
    Target("publish-10", "peer", None, 0.6, "sqlite", "publish-10"),
    # One that waits for each answer shares no trip with others.
    Target("publish-1", "redis", None, 6, LIGHTBUS, "publish-1"),
    *(Target(case, "redis", None, 10, LIGHTBUS, case) for case in ("publish-10", *_CONSUMING)),
    # Lightbus has no batches: its ten publishers are the most that it publishes.
    Target("batches-100", "redis", None, 10, LIGHTBUS, "publish-10"),
)
