"""The cases: what is measured under which name.

A case is a row of this table; how it is done is said by its kind of work.
"""

from dataclasses import dataclass, replace

from benchmarks.task import Task

IN_FLIGHT = 64
FANOUT = 100
IDLE = 500
KIB64, MIB1 = 1 << 16, 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A row: what it says, its unit, and whether less is better."""

    title: str
    unit: str
    task: Task
    less_is_better: bool = False

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
}
