"""The command line: `python -m benchmarks.bus [CASE...] [--sides SIDE...] [--save]`.

Names are checked before anything runs; what has `--save` is stored for
docs/performance.md.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks import store
from benchmarks.bus import report
from benchmarks.bus.cases import CASES, SIDES
from benchmarks.bus.run import APPENDFSYNC, Effort, run
from benchmarks.store import machine


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.bus", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options.add_argument("--sides", nargs="+", default=list(SIDES), metavar="SIDE")
    options.add_argument("--seconds", type=float, default=1.0, help="to publish for")
    options.add_argument("--events", type=int, default=20_000, help="to consume")
    options.add_argument("--latencies", type=int, default=200, help="to take")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quiet", type=float, default=2.0, help="seconds to wait for an idle one")
    options.add_argument("--backend", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options.add_argument("--appendfsync", choices=APPENDFSYNC, default=APPENDFSYNC[0])
    options.add_argument("--directory", type=Path, help="where SQLite's files are; temporary ones")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--save", action="store_true", help="store it for the page")
    return options


def main() -> None:
    """Run the cases that were asked for, or all."""
    options = parser()
    given = options.parse_args()
    if unknown := [*set(given.cases) - set(CASES), *set(given.sides) - set(SIDES)]:
        options.error(f"no such case or side: {', '.join(sorted(unknown))}")
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()))
        print(f"appendfsync {given.appendfsync}, {given.backend}", flush=True)
    effort = Effort(
        seconds=given.seconds,
        events=given.events,
        latencies=given.latencies,
        rounds=given.rounds,
        quiet=given.quiet,
        backend=given.backend,
        appendfsync=given.appendfsync,
        directory=given.directory,
    )
    show(given.cases or CASES, given.sides, effort, as_json=given.json, save=given.save)


def show(
    cases: Iterable[str], sides: Iterable[str], effort: Effort, *, as_json: bool, save: bool
) -> None:
    """Measure cases of sides, print what was found, and store it if asked to."""
    findings = run(_in_order(CASES, cases), _in_order(SIDES, sides), effort, _seen)
    _seen("")
    for name, why in findings.left_out.items():
        row = {"left_out": name, "reason": why}
        print(json.dumps(row) if as_json else f"{name} is left out: {why}")
    rows = report.rows(findings)
    if not as_json:
        print(report.HEADINGS)
    for row in rows:
        print(json.dumps(row) if as_json else report.line(row), flush=True)
    if save:
        keep("bus" if effort.appendfsync == APPENDFSYNC[0] else f"bus-{effort.appendfsync}", rows)


def _in_order(all_of_them: Iterable[str], wanted: Iterable[str]) -> list[str]:
    wanted = set(wanted)
    return [name for name in all_of_them if name in wanted]


def keep(name: str, rows: list[report.Row]) -> None:
    """Put rows in the place of older ones of the same cases, in the order of the cases."""
    measured = {_case_of(row) for row in rows}
    kept = [row for row in store.load(name) if _case_of(row) not in measured]
    order = list(CASES)
    rows = sorted(kept + rows, key=lambda row: ("target" in row, order.index(_case_of(row))))
    store.save(name, rows)


def _case_of(row: report.Row) -> str:
    return str(row.get("case", row.get("target")))


def _seen(name: str) -> None:
    """Say what runs, to whoever watches."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
