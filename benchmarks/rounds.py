"""Measures a task: a server and a client for each round, alternating with a reference.

The reference is the baseline, or Parley with other settings. A ratio compares two consecutive
measurements in alternating order. A disturbed round (other processes used the processor) is
repeated once, and the quietest rounds count.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.process import NOISE, Child, Meter, resident, wait_until_quiet
from benchmarks.task import Backend, Case, Order, SideName, Task


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
        """Return the processor time of both processes for one operation."""
        return self.client_us + self.server_us


# A side, and its task.
Against = tuple[SideName, Task]


@dataclass(frozen=True, slots=True)
class Round:
    """Measure Parley, and its reference right before or after."""

    ours: Measurement
    baseline: Measurement | None = None

    @property
    def others(self) -> float:
        """Return the largest number of cores that other processes used."""
        return max(self.ours.others, self.baseline.others if self.baseline else 0.0)


def measure(
    side: SideName,
    task: Task,
    backend: Backend = "uvloop",
    quiet: float = 4.0,
    *,
    between: Sequence[int] = (),
    python: str = sys.executable,
) -> Measurement:
    """Start both processes by `python`, measure once, end them. `quiet` is how many seconds to
    wait at most until the machine is idle. Processes `between` count for the server.

    Raises:
        ChildError: a process failed.
    """
    if side == "baseline":
        backend = "uvloop"
    with Child(Order(side, backend, task), python) as server:
        info = server.hear()
        with Child(Order(side, backend, task, info), python) as client:
            client.hear()
            servers = [server.pid, *info.get("between", ()), *between]
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
    side: SideName = "ours",
    against: Against | None = None,
    quiet: float = 4.0,
) -> list[Round]:
    """`count` rounds, the quietest of at most one more; `against` is what else is measured."""
    sides: list[Against] = [(side, task), against] if against else [(side, task)]
    done: list[Round] = []
    while len(done) < count or (len(done) == count and _disturbed(done)):
        order = -1 if len(done) % 2 else 1
        found = [measure(*side, backend, quiet) for side in sides[::order]]
        done.append(Round(*found[::order]))
    kept = sorted(range(len(done)), key=lambda index: done[index].others)[:count]
    return [done[index] for index in sorted(kept)]


def _disturbed(done: list[Round]) -> bool:
    return any(each.others >= NOISE for each in done)


def headings(other: str) -> str:
    """The line above all rows; `other` is what ours is held against."""
    return (
        f"{'case':18} {'ours':>12} {other:>12} {'':13} {'ratio':>6} {'spread':>13}"
        f" {'cpu ratio':>9}   {'cpu us/op, client + server':34} others"
    )


def row(name: str, case: Case, done: list[Round], other: str = "baseline") -> dict[str, Any]:
    """A case's figures.

    `ratio` is Parley's value divided by the value of the `baseline`, which is the `other`;
    `cpu_ratio` is the other's processor time divided by Parley's: median, minimum and maximum of
    the rounds.
    """
    ours = [each.ours for each in done]
    found: dict[str, Any] = {
        "case": name,
        "title": case.title,
        "unit": case.unit,
        "less_is_better": case.less_is_better,
        "ours": summary(ours),
    }
    baseline = [each.baseline for each in done if each.baseline is not None]
    if baseline:
        found["beside"] = other
        ratios = [a.value / b.value for a, b in zip(ours, baseline, strict=True)]
        found["baseline"] = summary(baseline)
        found["ratio"] = spread(ratios)
        found["cpu_ratio"] = spread(
            [b.cpu_us / a.cpu_us for a, b in zip(ours, baseline, strict=True)]
        )
    found["others"] = round(max(each.others for each in done), 2)
    return found


def spread(ratios: list[float]) -> list[float]:
    """Return the median, minimum and maximum."""
    return [round(value, 3) for value in (median(ratios), min(ratios), max(ratios))]


def summary(measured: list[Measurement]) -> dict[str, Any]:
    """Return one side's results in all rounds: medians, the largest loss, and each round's
    value.
    """
    return {
        "value": round(median(one.value for one in measured), 1),
        "client_us": round(median(one.client_us for one in measured), 3),
        "server_us": round(median(one.server_us for one in measured), 3),
        "lost": round(max(one.lost for one in measured), 4),
        "all": [round(one.value, 1) for one in measured],
    }


def line(found: dict[str, Any]) -> str:
    """Format a row as text."""
    ours, baseline = found["ours"], found.get("baseline")
    text = f"{found['case']:18} {number(ours['value']):>12} "
    text += f"{number(baseline['value']) if baseline else '':>12} {found['unit']:13} "
    if baseline:
        middle, least, most = found["ratio"]
        text += f"{middle:6.3f} {f'{least:.3f}-{most:.3f}':>13} {found['cpu_ratio'][0]:9.3f}   "
    else:
        text += f"{'':33}"
    cpu = [processor_time(side) for side in (ours, baseline) if side]
    text += f"{' : '.join(cpu):34} {found['others']:.2f}"
    lost = [f"{side['lost']:.2%}" for side in (ours, baseline) if side]
    if any(side["lost"] > 0 for side in (ours, baseline) if side):
        text += f"  lost {' : '.join(lost)}"
    return text


def processor_time(side: dict[str, Any]) -> str:
    """Of one operation, in microseconds: the client's and the server's."""
    return f"{side['client_us']:.2f} + {side['server_us']:.2f}"


def number(value: float) -> str:
    """Digits in threes; one after the point below a hundred."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
