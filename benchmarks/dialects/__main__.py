"""The command line: `python -m benchmarks.dialects [CASE...] [--save]`.

Names are checked before anything runs; what has `--save` is stored for
docs/performance.md.
"""

import argparse
import json
import sys
from typing import Any

from benchmarks import store
from benchmarks.dialects import report
from benchmarks.dialects.cases import DIALECT_CASES, FAULTS
from benchmarks.dialects.run import run_cases, run_faults
from benchmarks.store import machine

FAULTS_NAME = "faults"


def main() -> None:
    """Run the cases and floods that were asked for, or all."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.dialects", description=__doc__)
    names = [*DIALECT_CASES, FAULTS_NAME, *FAULTS]
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--save", action="store_true", help="store it for the page")
    options.add_argument(
        "--quiet", type=float, default=4.0, help="seconds to wait until the machine is idle"
    )
    given = options.parse_args()
    if unknown := set(given.cases) - set(names):
        options.error(f"no such case: {', '.join(sorted(unknown))}")
    wanted = set(given.cases or names)
    cases = [name for name in DIALECT_CASES if name in wanted]
    faults = [name for name in FAULTS if FAULTS_NAME in wanted or name in wanted]
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    effort = (given.seconds, given.rounds, given.quiet)
    show_cases(cases, effort, as_json=given.json, save=given.save)
    show_faults(faults, effort, as_json=given.json, save=given.save)


def show_cases(
    names: list[str], effort: tuple[float, int, float], *, as_json: bool, save: bool
) -> None:
    """Measure cases, print their rows, and store them if asked to."""
    rows = report.case_rows(run_cases(names, *effort, seen=_seen))
    _seen("")
    if rows and not as_json:
        print(report.HEADINGS)
    _show([(row, report.case_line(row)) for row in rows], as_json=as_json)
    if save and rows:
        store.save("dialects", rows)


def show_faults(
    names: list[str], effort: tuple[float, int, float], *, as_json: bool, save: bool
) -> None:
    """Measure floods, as `show_cases`."""
    rows = report.fault_rows(run_faults(names, *effort, seen=_seen))
    _seen("")
    _show([(row, report.fault_line(row)) for row in rows], as_json=as_json)
    if save and rows:
        store.save("dialects-faults", rows)


def _show(rows: list[tuple[dict[str, Any], str]], *, as_json: bool) -> None:
    for row, text in rows:
        print(json.dumps(row) if as_json else text, flush=True)


def _seen(name: str) -> None:
    """Say what runs, to whoever watches."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
