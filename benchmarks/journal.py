"""What a journal costs: `python -m benchmarks.journal`, with one and without in turn.

A ratio is of two measurements that followed each other; both processes keep a journal or
none does. Processor time for an operation is the writer's thread's too.
"""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.cases import CASES
from benchmarks.ours import Ours
from benchmarks.rounds import rounds
from benchmarks.store import machine
from benchmarks.task import Backend, Task
from node.journal.options import Fsync
from parley import Identity, Node
from parley.journal import AuditorPrivateKey, Journal
from parley.settings import load_settings

POLICIES: Final[dict[str, Fsync]] = {
    "": "interval",
    "always": "always",
    "interval": "interval",
    "never": "never",
}
NAMES: Final = ("calls-64", "notes-1-batches", "notes-1", "notes-100", "bulk-64k")


class Journaled(Ours):
    """Parley with a journal; the task's `how` is its fsync policy."""

    @asynccontextmanager
    async def node(self, task: Task) -> AsyncIterator[Node]:
        """A node of either process; its journal is thrown away."""
        auditor = AuditorPrivateKey.create().public
        with TemporaryDirectory(prefix="parley-journal-") as directory:
            journal = Journal.open(directory, auditor, fsync=POLICIES[task.how])
            config = load_settings(None, task.settings).node
            async with Node(Identity.create(), config=config, journal=journal) as node:
                yield node


def cost(task: Task, count: int, backend: Backend, quiet: float) -> dict[str, Any]:
    """Medians of `count` rounds; a ratio above 1 never, but for noise."""
    done = rounds(task, count, backend, against=("journaled", task), quiet=quiet)
    pairs = [(each.ours, each.baseline) for each in done if each.baseline is not None]
    return {
        "without": median(without.value for without, _ in pairs),
        "with": median(journaled.value for _, journaled in pairs),
        "ratio": median(journaled.value / without.value for without, journaled in pairs),
        "cpu_ratio": median(without.cpu_us / journaled.cpu_us for without, journaled in pairs),
        "cpu_us": median(without.cpu_us for without, _ in pairs),
        "more_us": median(journaled.cpu_us - without.cpu_us for without, journaled in pairs),
        "others": max(each.others for each in done),
    }


def main() -> None:
    """Run the cases that were asked for, or those that a journal costs most."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(NAMES))
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=5, help="with a journal and without")
    options.add_argument("--backend", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options.add_argument("--fsync", choices=[*POLICIES][1:], default="interval")
    options.add_argument("--quiet", type=float, default=4.0, help="seconds to wait for idleness")
    given = options.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        options.error(f"no such case: {', '.join(sorted(unknown))}")
    found = {**machine(), "backend": given.backend, "fsync": given.fsync}
    print(json.dumps({"machine": found}) if given.json else found, flush=True)
    for name in given.cases or NAMES[:3]:
        task = replace(CASES[name].lasting(given.seconds), how=given.fsync)
        row = cost(task, given.rounds, given.backend, given.quiet)
        print(json.dumps({"case": name, **row}) if given.json else _line(name, row), flush=True)


def _line(name: str, row: dict[str, Any]) -> str:
    return (
        f"{name:18} {row['without']:>12,.0f} {row['with']:>12,.0f} {CASES[name].unit:14}"
        f" ratio {row['ratio']:.3f}, by processor time {row['cpu_ratio']:.3f}"
        f" ({row['cpu_us']:.2f} us + {row['more_us']:.2f}), others {row['others']:.2f}"
    )


if __name__ == "__main__":
    main()
