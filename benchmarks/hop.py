"""One hop beside direct: what a tunnel through a server costs: `python -m benchmarks hop`.

An origin, a server between and a target, each in a process of its own, over loopback TCP. Each work
is done in turn over a direct connection and through the tunnel, and compared in three ways. By the
clock, on the cores that there are. By the processor time of the busiest process: where the nodes
work at the same time, this is the best that the clock could say if each had a core, which are three
with a hop and two without. And by that of all, which is what a tunnel costs everybody.
"""

from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from benchmarks.cases import CASES
from benchmarks.cpu import Meter, wait_until_quiet
from benchmarks.process import Child
from benchmarks.task import Backend, Order

NAMES: Final = ("calls", "calls-64", "bulk-64k")


@dataclass(frozen=True, slots=True)
class _Found:
    """What was done in a second, and microseconds of processor time of each process for one
    operation: the origin's, the target's, and of the server between, if there is one."""

    value: float
    us: list[float]


def compare(
    name: str,
    seconds: float = 2.0,
    rounds: int = 5,
    backend: Backend = "uvloop",
    quiet: float = 4.0,
) -> dict[str, Any]:
    """A row: what a second of the clock does directly and through one hop, and processor time (us)
    of each process for an operation (medians); and the medians of the rounds' ratios: by the clock
    (`ratio`), by all processor time, and by that of the busiest process; None where the processes
    share one core and take turns.

    Raises:
        ChildError: a process failed.
    """
    case = CASES[name]
    task = case.lasting(seconds)
    pairs = []
    with Child(Order("target", backend, task)) as target:
        info = target.hear()
        with Child(Order("hop", backend, replace(task, how=info["address"]))) as server:
            via = server.hear()
            for _ in range(rounds):
                direct = _measured(Order("ours", backend, task, info), [target.pid], quiet)
                servers = [target.pid, server.pid]
                pairs.append((direct, _measured(Order("ours", backend, task, via), servers, quiet)))
    return {
        "hop": name,
        "what": case.title,
        "unit": case.unit,
        "direct": round(median(one.value for one, _ in pairs), 1),
        "tunnel": round(median(other.value for _, other in pairs), 1),
        "ratio": round(median(other.value / one.value for one, other in pairs), 3),
        "cpu_ratio": round(median(sum(one.us) / sum(other.us) for one, other in pairs), 3),
        "busiest_ratio": None
        if task.one_core
        else round(median(max(one.us) / max(other.us) for one, other in pairs), 3),
        "direct_us": _medians([one.us for one, _ in pairs]),
        "tunnel_us": _medians([other.us for _, other in pairs]),
    }


def _measured(order: Order, servers: list[int], quiet: float) -> _Found:
    with Child(order) as origin:
        origin.hear()
        wait_until_quiet(origin.pid, *servers, limit=quiet)
        meter = Meter(origin.pid, *servers)
        origin.say({"go": True})
        result = origin.hear()
        used, _ = meter.read()
    return _Found(result["value"], [spent / result["operations"] * 1e6 for spent in used])


def _medians(rows: list[list[float]]) -> list[float]:
    return [round(median(column), 1) for column in zip(*rows, strict=True)]


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    busiest = row["busiest_ratio"]
    ratios = [f"{row['ratio']:.3f} by the clock", f"{row['cpu_ratio']:.3f} by all processor time"]
    if busiest is not None:
        ratios.append(f"{busiest:.3f} by that of the busiest process")
    spent = ", ".join(f"{us:,.0f}" for us in row["tunnel_us"])
    direct = ", ".join(f"{us:,.0f}" for us in row["direct_us"])
    return (
        f"{row['hop']:12} {row['tunnel']:10,.1f} through one hop, {row['direct']:10,.1f} direct: "
        f"{', '.join(ratios)} (us of origin, target and hop: {spent}; direct: {direct})"
    )
