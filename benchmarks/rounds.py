"""Measures a task: a server and a client for each round, ours in turn with what it is held against.

That is the baseline, or our own side with something else about it. A ratio is of two measurements
that followed each other, now the one first and now the other. A disturbed round (others used the
processor) is taken again, once; the quietest are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cpu import NOISE, Meter, wait_until_quiet
from benchmarks.process import Child, resident
from benchmarks.task import Backend, Order, SideName, Task


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of one side: `client_us` and `server_us` are microseconds of processor time
    for an operation, `others` the cores that all other processes used, `lost` a fraction."""

    value: float
    operations: int
    client_us: float
    server_us: float
    others: float
    lost: float = 0.0

    @property
    def cpu_us(self) -> float:
        """Processor time of both processes for an operation."""
        return self.client_us + self.server_us


# A side, and its task.
Against = tuple[SideName, Task]


@dataclass(frozen=True, slots=True)
class Round:
    """Ours, and right before or after it what it is held against."""

    ours: Measurement
    baseline: Measurement | None = None

    @property
    def others(self) -> float:
        """The cores that others used at worst."""
        return max(self.ours.others, self.baseline.others if self.baseline else 0.0)


def measure(
    side: SideName,
    task: Task,
    backend: Backend = "uvloop",
    quiet: float = 4.0,
    *,
    between: Sequence[int] = (),
) -> Measurement:
    """Start both processes, measure once, end them. `quiet` is how many seconds to wait at
    most until the machine is. Processes `between` count for the server.

    Raises:
        ChildError: a process failed.
    """
    if side == "baseline":
        backend = "uvloop"
    with Child(Order(side, backend, task)) as server:
        info = server.hear()
        with Child(Order(side, backend, task, info)) as client:
            client.hear()
            servers = [server.pid, *between]
            wait_until_quiet(client.pid, *servers, limit=quiet)
            memory = sum(map(resident, servers))
            meter = Meter(client.pid, *servers)
            client.say({"go": True})
            if task.work == "notes":
                server.say({"publish": task.seconds})
                client.say(server.hear())
            result = client.hear()
            used, others = meter.read()
            if task.work == "idle":
                result["value"] = (sum(map(resident, servers)) - memory) / task.count
    count = max(1, result["operations"])
    client_us, server_us = (seconds / count * 1e6 for seconds in (used[0], sum(used[1:])))
    return Measurement(
        value=result["value"],
        operations=result["operations"],
        client_us=client_us,
        server_us=server_us,
        others=others,
        lost=result.get("lost", 0.0),
    )


def rounds(
    task: Task,
    count: int,
    backend: Backend = "uvloop",
    *,
    against: Against | None = None,
    quiet: float = 4.0,
) -> list[Round]:
    """`count` rounds, the quietest of at most one more; `against` is what else is measured."""
    sides: list[Against] = [("ours", task), against] if against else [("ours", task)]
    done: list[Round] = []
    while len(done) < count or (len(done) == count and _disturbed(done)):
        order = -1 if len(done) % 2 else 1
        found = [measure(*side, backend, quiet) for side in sides[::order]]
        done.append(Round(*found[::order]))
    kept = sorted(range(len(done)), key=lambda index: done[index].others)[:count]
    return [done[index] for index in sorted(kept)]


def _disturbed(done: list[Round]) -> bool:
    return any(each.others >= NOISE for each in done)
