"""How cost grows with payload size, connections, streams, topics and subscribers.

Cost is processor time of both processes per operation, which is stable on a busy machine;
throughput alone would not show which side is slow. The cost of an idle connection is the server's
resident memory divided by their number.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.process import most_connections
from benchmarks.rounds import measure
from benchmarks.task import IN_FLIGHT, SideName, Task

# The largest payload is 1 MiB, with what a call and its answer add.
SIZES = (16, 128, 1 << 10, 1 << 13, 1 << 16, 1 << 18, (1 << 20) - (1 << 10))
# A subscriber's buffer of 1 MiB holds such notes and takes the next.
NOTE_SIZES = (16, 128, 1 << 10, 1 << 13, 1 << 16, 1 << 18)
COUNTS = (1, 10, 100, 1_000, 10_000)
# A connection has 1,024 streams.
STREAMS = (1, 10, 100, 1_000)
TOPICS = (1, 10, 100, 1_000, 10_000, 100_000)
# Calls of 1 MiB that wait for their answers stay within `peer_memory`.
LARGE_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Sweep:
    """A row of tasks that differ in one number, `along`."""

    title: str
    along: str
    unit: str
    work: str
    values: tuple[int, ...]
    sides: tuple[SideName, ...] = ("ours", "baseline")
    count: int = 1
    memory: str = ""  # the title of the rows of memory, where that is measured

    def task(self, value: int, seconds: float) -> Task:
        """The task at one of the values."""
        how = {"work": self.work, "seconds": seconds, "count": self.count, self.along: value}
        return Task.from_json(how)


SWEEPS: dict[str, Sweep] = {
    "call-size": Sweep(
        "Calls: size of payload", "size", "bytes", "calls", SIZES, count=LARGE_IN_FLIGHT
    ),
    "note-size": Sweep("Notes: size of payload", "size", "bytes", "notes", NOTE_SIZES),
    "connections": Sweep(
        "Calls: connections", "connections", "connections", "calls", COUNTS, count=IN_FLIGHT
    ),
    "streams": Sweep(
        "Requests: streams of one connection",
        "connections",
        "streams",
        "streams",
        STREAMS,
        ("ours",),
        IN_FLIGHT,
    ),
    "subscribers": Sweep("Notes: subscribers", "count", "subscribers", "notes", COUNTS),
    "topics": Sweep("Notes: topics of a node", "topics", "topics", "notes", TOPICS, ("ours",)),
    "accepting": Sweep(
        "Idle connections: to make one, and a call",
        "count",
        "connections",
        "idle",
        COUNTS,
        memory="Idle connections: memory of each at the server",
    ),
}


def grow(name: str, seconds: float, quiet: float = 1.0) -> Iterator[dict[str, Any]]:
    """A row for each value and side of a sweep, and of what each holds; values for which the
    process may not open enough descriptors are left out."""
    sweep = SWEEPS[name]
    values = sweep.values
    if sweep.unit in ("connections", "subscribers"):
        values = tuple(value for value in values if value <= most_connections())
    for value in values:
        for side in sweep.sides:
            found = measure(side, sweep.task(value, seconds), quiet=quiet)
            place = {"unit": sweep.unit, "at": value, "side": side}
            yield {
                "growth": name,
                "title": sweep.title,
                **place,
                "cpu_us": round(found.cpu_us, 3),
                "value": round(found.value, 1) if not sweep.memory else None,
                "lost": round(found.lost, 4),
                "others": round(found.others, 2),
            }
            if sweep.memory and value > 1:  # one alone is lost in what the allocator has at hand
                size = round(found.value)
                yield {"growth": "memory", "title": sweep.memory, **place, "bytes": size}


def main() -> None:
    """Measure and print the named sweeps, or all."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    options.add_argument("sweeps", nargs="*", metavar="SWEEP", help=", ".join(SWEEPS))
    options.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    given = options.parse_args()
    unknown = set(given.sweeps) - set(SWEEPS)
    if unknown:
        options.error(f"no such sweep: {', '.join(sorted(unknown))}")
    if most_connections() < COUNTS[-1] and not given.json:
        print(f"ulimit -n allows {most_connections():,} connections; more are left out")
    for name in given.sweeps or SWEEPS:
        for row in grow(name, given.seconds):
            print(json.dumps(row) if given.json else line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    text = f"{row['growth']:12} {row['at']:>9,} {row['unit']:12} {row['side']:9}"
    if "bytes" in row:
        return f"{text}{row['bytes']:>12,} bytes"
    rate = "" if row["value"] is None else f" {row['value']:>12,.0f}/s"
    text += f"{row['cpu_us']:>12,.2f} us{rate}  others {row['others']:.2f}"
    return text + (f"  lost {row['lost']:.1%}" if row["lost"] > 0 else "")


if __name__ == "__main__":
    main()
