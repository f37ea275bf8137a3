"""The benchmarks' command line.

Names are checked before anything runs, and each row is shown once it is known.
"""

import argparse
import json
from typing import Any

from benchmarks import paths, report
from benchmarks.cases import CASES
from benchmarks.event import event_cost
from benchmarks.rounds import rounds
from benchmarks.store import machine

EVENT, PATHS = "event", "paths"


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([EVENT, PATHS, *CASES]))
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=5, help="of ours and the baseline")
    options.add_argument("--backend", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options.add_argument("--ours-only", action="store_true", help="without the baseline")
    options.add_argument(
        "--quiet", type=float, default=4.0, help="seconds to wait until the machine is idle"
    )
    return options


def main() -> None:
    """Run the cases that were asked for, or all."""
    options = parser()
    given = options.parse_args()
    names = given.cases or [EVENT, PATHS, *CASES]
    unknown = set(names) - {EVENT, PATHS, *CASES}
    if unknown:
        options.error(f"no such case: {', '.join(sorted(unknown))}")
    _begin({**machine(), "backend": given.backend}, as_json=given.json)
    for name in names:
        if name == EVENT:
            cost = {side: round(us, 2) for side, us in event_cost(given.seconds).items()}
            text = ", ".join(f"{side} {us}" for side, us in cost.items())
            print(json.dumps({"case": EVENT, **cost}) if given.json else f"{EVENT:18} {text}")
            continue
        if name == PATHS:
            for row in paths.count_paths():
                print(json.dumps({"case": PATHS, **row}) if given.json else paths.line(row))
            continue
        done = rounds(
            CASES[name].lasting(given.seconds),
            given.rounds,
            given.backend,
            with_baseline=not given.ours_only,
            quiet=given.quiet,
        )
        row = report.row(name, CASES[name], done)
        print(json.dumps(row) if given.json else report.line(row), flush=True)


def _begin(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"machine": found}), flush=True)
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items()))
        print(report.HEADINGS, flush=True)


if __name__ == "__main__":
    main()
