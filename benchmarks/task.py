"""The definition of a measurement, and the order for a child process.

A task defines an action without its target; either side gets the same one. An order contains
everything that a process needs at its start, and is passed on its command line.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

Work = Literal["calls", "notes", "bulk", "handshakes", "idle", "streams"]

PAYLOAD_SIZE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`size` is the payload of each operation in bytes; `count` is how many calls are in
    flight, or subscribers, idle connections or streams there are; `topics` how many the server
    has, of which one is published on. `settings` are variables
    of docs/reference/settings.md, for our side. `how` is the directory of a peer's keys."""

    work: Work
    seconds: float
    size: int = PAYLOAD_SIZE
    count: int = 1
    connections: int = 1
    topics: int = 1
    batches: bool = False
    one_core: bool = False
    how: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The task for a child process."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: dict[str, Any]) -> Self:
        """What `to_json` gave."""
        return cls(**text)

    @property
    def payload(self) -> bytes:
        """As many bytes as each operation carries."""
        return (bytes(range(256)) * (self.size // 256 + 1))[: self.size]

    def __str__(self) -> str:
        return json.dumps(self.to_json())


Backend = Literal["uvloop", "asyncio", "trio"]
SideName = Literal[
    "ours",
    "tunnelled",
    "hop",
    "baseline",
    "pure",
    "zeromq",
    "zeromq-asyncio",
    "zenoh",
    "nats",
    "grpc",
    "websockets",
]


@dataclass(frozen=True, slots=True)
class Order:
    """Which side of which task; `info` is what the server said, for a client."""

    side: SideName
    backend: Backend
    task: Task
    info: dict[str, Any] | None = None

    def to_text(self) -> str:
        """For the command line."""
        return json.dumps([self.side, self.backend, self.task.to_json(), self.info])

    @classmethod
    def from_text(cls, text: str) -> "Order":
        """What `to_text` gave."""
        side, backend, task, info = json.loads(text)
        return cls(side, backend, Task.from_json(task), info)


IN_FLIGHT = 64
FANOUT = 100
IDLE = 500
KIB64, MIB1 = 1 << 16, 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A row of results: its label, its unit, whether less is better, and the sides compared."""

    title: str
    unit: str
    task: Task
    less_is_better: bool = False
    side: SideName = "ours"
    reference: SideName = "baseline"

    def lasting(self, seconds: float) -> Task:
        """The task, for so long."""
        return replace(self.task, seconds=seconds)


def _task(work: str, **how: object) -> Task:
    return Task.from_json({"work": work, "seconds": 2.0, **how})


CASES: dict[str, Case] = {
    "calls": Case(
        "calls one after another, both processes on one core",
        "calls/s",
        _task("calls", one_core=True),
    ),
    "calls-64": Case("calls, 64 in flight", "calls/s", _task("calls", count=IN_FLIGHT)),
    "notes-1": Case("notes to one subscriber", "notes/s", _task("notes")),
    "notes-1-batches": Case(
        "the same, read by `batches()`", "notes/s", _task("notes", batches=True)
    ),
    "notes-100": Case("notes to a hundred subscribers", "notes/s", _task("notes", count=FANOUT)),
    "notes-100-batches": Case(
        "the same, read by `batches()`", "notes/s", _task("notes", count=FANOUT, batches=True)
    ),
    "bulk-64k": Case("bytes in pieces of 64 KiB", "MB/s", _task("bulk", size=KIB64)),
    "bulk-1m": Case("bytes in pieces of 1 MiB", "MB/s", _task("bulk", size=MIB1)),
    "handshakes": Case(
        "dial, handshake, one call, close", "connections/s", _task("handshakes", size=1)
    ),
    "idle-memory": Case(
        "an idle connection, server, of 500",
        "bytes",
        _task("idle", size=1, count=IDLE),
        less_is_better=True,
    ),
    "hop-calls": Case(
        "calls through one hop, 64 in flight, compared with direct ones",
        "calls/s",
        _task("calls", count=IN_FLIGHT),
        side="tunnelled",
        reference="ours",
    ),
    "hop-bulk": Case(
        "bytes in pieces of 64 KiB through one hop, compared with direct ones",
        "MB/s",
        _task("bulk", size=KIB64),
        side="tunnelled",
        reference="ours",
    ),
}
