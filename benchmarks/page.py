"""The figures of docs/performance.md: `python -m benchmarks.page [--measure [WHAT...]]`.

What stands between a `measured` mark and its end is made from the stored figures alone,
and nothing else of the page is touched.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import federation, growth, hop, isolation, paths, report, store, tables, tuning
from benchmarks.bus import __main__ as bus
from benchmarks.bus import run as bus_run
from benchmarks.bus import stored as bus_stored
from benchmarks.bus.cases import CASES as CASES_OF_BUS
from benchmarks.bus.cases import SIDES as SIDES_OF_BUS
from benchmarks.bus.tables import bus_machine, figures_table, stored_table, targets_table
from benchmarks.cases import CASES
from benchmarks.dialects.__main__ import show_cases, show_faults
from benchmarks.dialects.cases import DIALECT_CASES, FAULTS
from benchmarks.dialects.tables import (
    dialects_machine,
    faults_table,
    latency_table,
    throughput_table,
)
from benchmarks.peers import __main__ as peers
from benchmarks.peers.cases import PEER_CASES, PEERS
from benchmarks.peers.run import Effort as EffortOfPeers
from benchmarks.peers.tables import (
    peers_aims_table,
    peers_best_table,
    peers_cpu_table,
    peers_machine,
    peers_table,
)
from benchmarks.profile import lines, profile
from benchmarks.rounds import Against, rounds
from benchmarks.task import Backend

PAGE = store.DOCS / "performance.md"
LOOPS = {"uvloop": "cases", "asyncio": "cases-asyncio", "trio": "cases-trio"}
DIALECTS = ("dialects", "dialects-faults")
BUS = ("bus", "bus-always", "bus-stored")
# What resuming costs, by these cases.
RESUMED = (
    "calls",
    "calls-64",
    "notes-1",
    "notes-100",
    "bulk-64k",
    "bulk-1m",
    "handshakes",
    "idle-memory",
)
WITHOUT_RESUME = {"PARLEY_NODE_RESUME": "0"}

_PART = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(text: str, directory: Path = store.DIRECTORY) -> str:
    """A page with its measured parts made anew.

    Raises:
        KeyError: the page has a mark that nothing is known of.
    """
    loops = {name: store.load(file, directory) for name, file in LOOPS.items()}
    measured = store.load("profile", directory)
    dialects, faults = (store.load(name, directory) for name in DIALECTS)
    dialects_on = store.machine_of("dialects", directory)
    usual, always, stored = (store.load(name, directory) for name in BUS)
    resumed, with_or_without = store.load("resume", directory), ("`resume` 30", "`resume` 0")
    resumed_paths = store.load("resume-paths", directory)
    beside = store.load(peers.FILE, directory)
    parts = {
        "machine": tables.machine_text(store.machine_of("cases", directory), loops["uvloop"]),
        "cases": tables.cases_table(loops["uvloop"]),
        "compiled": tables.cases_table(store.load("cases-compiled", directory)),
        "loops": tables.loops_table(loops),
        "peers-machine": peers_machine(store.machine_of(peers.FILE, directory), beside),
        "peers": peers_table(beside),
        "peers-best": peers_best_table(beside),
        "peers-cpu": peers_cpu_table(beside),
        "peers-aims": peers_aims_table(beside),
        "call": tables.profile_table(measured, "call"),
        "note": tables.profile_table(measured, "note"),
        "paths": tables.paths_table(store.load("paths", directory)),
        "resume-machine": tables.machine_text(store.machine_of("resume", directory), resumed),
        "resume": tables.cases_table(resumed, with_or_without, digits=3),
        "resume-paths": tables.paths_beside_table(resumed_paths, with_or_without),
        "hop": tables.hop_table(store.load("hop", directory)),
        "isolation": tables.isolation_table(store.load("isolation", directory)),
        "tuning": tables.tuning_table(store.load("tuning", directory)),
        "federation": federation.federation_table(store.load("federation", directory)),
        "dialects-machine": dialects_machine(dialects_on, dialects, faults),
        "dialects": throughput_table(dialects),
        "dialects-latency": latency_table(dialects),
        "dialects-faults": faults_table(faults),
        "bus-machine": bus_machine(store.machine_of("bus", directory), usual),
        "bus": figures_table(usual),
        "bus-targets": targets_table(usual),
        "bus-always": figures_table(always),
        "bus-stored": stored_table(stored),
    }
    return _PART.sub(lambda part: f"{part[1]}\n{parts[part[2]]}\n\n{part[3]}", text)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often; `quiet` is how many seconds to wait for an idle machine."""

    seconds: float
    rounds: int
    quiet: float


def _cases(effort: Effort, backend: Backend = "uvloop") -> None:
    done = []
    for name, case in CASES.items():
        task = case.lasting(effort.seconds)
        against: Against | None = ("baseline", task) if backend == "uvloop" else None
        measured = rounds(task, effort.rounds, backend, against=against, quiet=effort.quiet)
        done.append(_shown(report.row(name, case, measured), report.line))
    store.save(LOOPS[backend], done)


def _asyncio(effort: Effort) -> None:
    _cases(effort, "asyncio")


def _trio(effort: Effort) -> None:
    _cases(effort, "trio")


def _compiled(effort: Effort) -> None:
    """The cases on a compiled core, in an environment of their own; without a compiler, none."""
    with TemporaryDirectory() as made:
        script = store.DOCS.parent / ".ci" / "compiled_environment.sh"
        subprocess.run(["bash", script, made], check=True)
        clone = Path(made, "clone")
        if not clone.exists():
            return
        cases = ["-m", "benchmarks.page", "--measure", "cases"]
        how = [f"--{name}={value}" for name, value in asdict(effort).items()]
        subprocess.run([Path(made, "venv/bin/python"), *cases, *how], cwd=clone, check=True)
        shutil.copy(clone / "docs/performance/cases.json", store.DIRECTORY / "cases-compiled.json")


def _growth(effort: Effort) -> None:
    for name in growth.SWEEPS:
        rows = growth.grow(name, effort.seconds / 2, effort.quiet)
        growth.save([_shown(row, growth.line) for row in rows])


def _federation(_: Effort) -> None:
    for row in federation.grow(federation.SERVERS):
        federation.save([_shown(row, federation.line)])


def _tuning(effort: Effort) -> None:
    rows = tuning.tune(tuning.TUNED, effort.seconds / 2, effort.rounds, effort.quiet)
    store.save("tuning", [_shown(row, tuning.line) for row in rows])


def _profile(effort: Effort) -> None:
    rows = [
        _shown(row, lambda row: "\n".join(lines(row, 0)))
        for name in ("call", "note")
        for row in profile(name, effort.seconds * 5, quiet=effort.quiet)
    ]
    store.save("profile", rows)


def _paths(_: Effort) -> None:
    store.save("paths", [_shown(row, paths.line) for row in paths.count_paths()])


def _hop(effort: Effort) -> None:
    how = effort.seconds, effort.rounds
    rows = (hop.compare(name, *how, quiet=effort.quiet) for name in hop.NAMES)
    store.save("hop", [_shown(row, hop.line) for row in rows])


def _isolation(effort: Effort) -> None:
    rows = isolation.compare(effort.seconds, effort.rounds)
    store.save("isolation", [_shown(row, isolation.line) for row in rows])


def _resume(effort: Effort) -> None:
    """In many short rounds: the ratios are near 1."""
    done = []
    for name in RESUMED:
        task = CASES[name].lasting(effort.seconds / 4)
        against: Against = ("ours", replace(task, settings=WITHOUT_RESUME))
        measured = rounds(task, 3 * effort.rounds, against=against, quiet=effort.quiet)
        row = report.row(name, CASES[name], measured, "resume=0")
        done.append(_shown(row, report.line))
    store.save("resume", done)
    counted = paths.count_paths(beside=WITHOUT_RESUME)
    store.save("resume-paths", [_shown(row, paths.line) for row in counted])


def _dialects(effort: Effort) -> None:
    """In less time for each measurement: there are many, and 3 of 5 rounds will do."""
    rounds = max(1, effort.rounds * 3 // 5)
    how = (effort.seconds * 0.35, rounds, effort.quiet)
    show_cases(list(DIALECT_CASES), how, as_json=False, save=True)
    show_faults(list(FAULTS), how, as_json=False, save=True)


def _peers(effort: Effort) -> None:
    """In less time for each measurement: there are eight sides of eight cases."""
    rounds = max(1, effort.rounds * 3 // 5)
    how = EffortOfPeers(effort.seconds * 0.4, rounds, min(1.0, effort.quiet))
    peers.show(PEER_CASES, PEERS, how, as_json=False, save=True)


def _bus(effort: Effort) -> None:
    """With Redis as it comes, and with each event on its disk; then with many stored events."""
    how = bus_run.Effort(seconds=effort.seconds / 2, rounds=effort.rounds, quiet=effort.quiet)
    bus.show(CASES_OF_BUS, SIDES_OF_BUS, how, as_json=False, save=True)
    on_redis = [name for name, side in SIDES_OF_BUS.items() if side.on_redis]
    bus.show(CASES_OF_BUS, on_redis, replace(how, appendfsync="always"), as_json=False, save=True)
    kept = bus_stored.Effort(effort.seconds / 2, quiet=effort.quiet)
    bus_stored.show(bus_stored.SIDES, list(bus_stored.SIZES), kept, as_json=False, save=True)


def _shown(row: dict[str, Any], line: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    print(line(row), flush=True)
    return row


MEASURES: dict[str, Callable[[Effort], None]] = {
    "cases": _cases,
    "compiled": _compiled,
    "peers": _peers,
    "asyncio": _asyncio,
    "trio": _trio,
    "profile": _profile,
    "paths": _paths,
    "hop": _hop,
    "isolation": _isolation,
    "resume": _resume,
    "growth": _growth,
    "federation": _federation,
    "tuning": _tuning,
    "dialects": _dialects,
    "bus": _bus,
}


def main() -> None:
    """Measure if asked to, then write the page."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    options.add_argument(
        "--measure", nargs="*", metavar="WHAT", help=f"all, or some of {', '.join(MEASURES)}"
    )
    options.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--quiet", type=float, default=4.0, help="seconds to wait until the machine is idle"
    )
    given = options.parse_args()
    if unknown := set(given.measure or ()) - set(MEASURES):
        options.error(f"cannot measure: {', '.join(sorted(unknown))}")
    names = () if given.measure is None else given.measure or list(MEASURES)
    absent = [why for peer in PEERS.values() if "peers" in names and (why := peer.missing())]
    if absent:  # their figures would go with those of the others
        options.error(f"cannot measure peers: {'; '.join(absent)}")
    for name in names:
        MEASURES[name](Effort(given.seconds, given.rounds, given.quiet))
    PAGE.write_text(render(PAGE.read_text()))


if __name__ == "__main__":
    main()
