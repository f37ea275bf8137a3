"""Measures a task: a server and a client for each round, ours and the baseline in turn.

A ratio is of two measurements that followed each other. A disturbed round (others used the
processor) is taken again, once; the quietest are kept.
"""

from dataclasses import dataclass, field

from benchmarks.cpu import NOISE, Meter, wait_until_quiet
from benchmarks.process import Child
from benchmarks.sampler import Samples
from benchmarks.task import Backend, Order, SideName, Task


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of one side: `client_us` and `server_us` are microseconds of processor time
    for an operation, `others` the cores that all other processes used, `lost` a fraction,
    `p99` the 99th percentile where the value is a median of times; samples are there if
    the task asks for a profile."""

    value: float
    operations: int
    client_us: float
    server_us: float
    others: float
    lost: float = 0.0
    p99: float = 0.0
    client_samples: Samples = field(default_factory=dict)
    server_samples: Samples = field(default_factory=dict)

    @property
    def cpu_us(self) -> float:
        """Processor time of both processes for an operation."""
        return self.client_us + self.server_us


@dataclass(frozen=True, slots=True)
class Round:
    """Ours, and the baseline right after it."""

    ours: Measurement
    baseline: Measurement | None

    @property
    def others(self) -> float:
        """The cores that others used at worst."""
        return max(self.ours.others, self.baseline.others if self.baseline else 0.0)


def measure(
    side: SideName, task: Task, backend: Backend = "uvloop", quiet: float = 4.0
) -> Measurement:
    """Start both processes, measure once, end them. `quiet` is how many seconds to wait at
    most until the machine is.

    Raises:
        ChildError: a process failed.
    """
    if side == "baseline":
        backend = "uvloop"
    with Child(Order(side, backend, task)) as server:
        info = server.hear()
        with Child(Order(side, backend, task, info)) as client:
            client.hear()
            wait_until_quiet(server.pid, client.pid, limit=quiet)
            memory = server.memory
            meter = Meter(client.pid, server.pid)
            client.say({"go": True})
            if task.work == "notes":
                server.say({"publish": task.seconds})
                client.say(server.hear())
            result = client.hear()
            used, others = meter.read()
            if task.work == "idle":
                result["value"] = (server.memory - memory) / task.count
            if task.profile:
                server.say({"samples": True})
                samples = server.hear()["samples"]
            else:
                samples = {}
    count = max(1, result["operations"])
    client_us, server_us = (seconds / count * 1e6 for seconds in used)
    return Measurement(
        value=result["value"],
        operations=result["operations"],
        client_us=client_us,
        server_us=server_us,
        others=others,
        lost=result.get("lost", 0.0),
        p99=result.get("p99", 0.0),
        client_samples=result["samples"],
        server_samples=samples,
    )


def rounds(
    task: Task,
    count: int,
    backend: Backend = "uvloop",
    *,
    with_baseline: bool = True,
    quiet: float = 4.0,
) -> list[Round]:
    """`count` rounds, the quietest of at most one more."""
    done: list[Round] = []
    while len(done) < count or (len(done) == count and _disturbed(done)):
        ours = measure("ours", task, backend, quiet)
        baseline = measure("baseline", task, backend, quiet) if with_baseline else None
        done.append(Round(ours, baseline))
    kept = sorted(range(len(done)), key=lambda index: done[index].others)[:count]
    return [done[index] for index in sorted(kept)]


def _disturbed(done: list[Round]) -> bool:
    return any(each.others >= NOISE for each in done)
