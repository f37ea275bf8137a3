"""The command line: `python -m benchmarks.bus [CASE...] [--sides SIDE...] [--save]`.

One rule: names are checked before anything runs; what has `--save` is stored for
docs/performance.md.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import store
from benchmarks.bus import report
from benchmarks.bus.cases import CASES, SIDES
from benchmarks.bus.run import APPENDFSYNC, Effort, run
from benchmarks.machine import machine


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
    cases = [name for name in CASES if name in (given.cases or CASES)]
    sides = [name for name in SIDES if name in given.sides]
    findings = run(cases, sides, effort, _seen)
    _seen("")
    for name, why in findings.left_out.items():
        row = {"left_out": name, "reason": why}
        print(json.dumps(row) if given.json else f"{name} is left out: {why}")
    rows = report.rows(findings)
    if not given.json:
        print(report.HEADINGS)
    for row in rows:
        print(json.dumps(row) if given.json else report.line(row), flush=True)
    if given.save:
        store.save("bus" if given.appendfsync == "everysec" else f"bus-{given.appendfsync}", rows)


def _seen(name: str) -> None:
    """Say what runs, to who watches."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
