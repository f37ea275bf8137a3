"""Measures the dialects: all cases in each round, one after another, and the floods.

Each measurement has fresh processes, and what is compared followed each other within a
round. A flood has three processes: the server on a core of its own, and whoever asks it
on another, where the hostile one only gets what the other leaves.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cpu import NOISE, Meter, wait_until_quiet
from benchmarks.dialects.cases import DIALECT_CASES, FAULTS, Fault
from benchmarks.process import Child
from benchmarks.rounds import Measurement, measure
from benchmarks.task import Order, Task

# Seconds that a flood begins before the measurement, and goes on after it.
MARGIN = 0.3


@dataclass(frozen=True, slots=True)
class Flooded:
    """One measurement under a flood, times in microseconds: `megabytes` (10^6) the hostile
    client wrote in a second, `connections` how often it came, `grown` by how many bytes
    the server had become larger at the end."""

    p50: float
    p99: float
    worst: float
    others: float
    megabytes: float
    connections: int
    grown: int


def run_cases(
    names: list[str], seconds: float, rounds: int, quiet: float, seen: Callable[[str], None]
) -> dict[str, list[Measurement]]:
    """Each case in each round; a disturbed one is measured again, once."""
    found: dict[str, list[Measurement]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            seen(name)
            case = DIALECT_CASES[name]
            task = case.lasting(seconds)
            first = measure(case.side, task, quiet=quiet)
            if quiet and first.others >= NOISE:
                first = min(first, measure(case.side, task, quiet=quiet), key=_others)
            found[name].append(first)
    return found


def _others(one: Measurement) -> float:
    return one.others


def run_faults(
    names: list[str], seconds: float, rounds: int, quiet: float, seen: Callable[[str], None]
) -> dict[str, list[Flooded]]:
    """Each flood in each round."""
    found: dict[str, list[Flooded]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            seen(name)
            found[name].append(flooded(FAULTS[name], seconds, quiet))
    return found


def flooded(fault: Fault, seconds: float, quiet: float) -> Flooded:
    """A well-behaved client's turns, while another floods.

    Raises:
        ChildError: a process failed.
    """
    side = fault.side
    turns = Task(work=fault.work, seconds=seconds, apart=True)
    with Child(Order(side, "uvloop", turns)) as server:
        info = server.hear()
        with Child(Order(side, "uvloop", turns, info)) as client:
            client.hear()
            if not fault.how:
                return _measure(server, client, None, quiet)
            flood = Task(work="flood", seconds=seconds + 2 * MARGIN, apart=True, how=fault.how)
            with Child(Order(side, "uvloop", flood, info)) as hostile:
                hostile.hear()
                return _measure(server, client, hostile, quiet)


def _measure(server: Child, client: Child, hostile: Child | None, quiet: float) -> Flooded:
    pids = [child.pid for child in (server, client, hostile) if child is not None]
    wait_until_quiet(*pids, limit=quiet)
    memory = server.memory
    wrote = {"value": 0.0, "connections": 0}
    if hostile is not None:
        hostile.say({"go": True})
        wait_until_quiet(*pids, limit=MARGIN)
    meter = Meter(*pids)
    client.say({"go": True})
    result = client.hear()
    _, others = meter.read()
    grown = server.memory - memory
    if hostile is not None:
        wrote = hostile.hear()
    return Flooded(
        p50=result["value"],
        p99=result["p99"],
        worst=result["worst"],
        others=others,
        megabytes=wrote["value"],
        connections=int(wrote["connections"]),
        grown=grown,
    )
