"""The benchmarks' command line.

Names and settings are checked before anything runs, and each row is shown once it is known.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchmarks import paths, rounds
from benchmarks.machine import machine
from benchmarks.task import CASES
from parley.errors import ConfigError
from parley.settings import load_settings

PATHS = "paths"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([PATHS, *CASES]))
    options.add_argument("--json", action="store_true", help="print one JSON object per line")
    options.add_argument("--seconds", type=float, default=2.0, help="duration of each measurement")
    options.add_argument("--rounds", type=int, default=5, help="rounds of Parley and the baseline")
    options.add_argument("--backend", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    against = options.add_mutually_exclusive_group()
    against.add_argument("--ours-only", action="store_true", help="leave out the baseline")
    against.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="compare with Parley with this node setting (resume=0), not with the baseline",
    )
    options.add_argument(
        "--quiet", type=float, default=4.0, help="seconds to wait until the machine is idle"
    )
    return options


def main() -> None:
    """Run the cases that were asked for, or all."""
    options = parser()
    given = options.parse_args()
    known = [PATHS, *CASES]
    unknown = set(given.cases) - set(known)
    if unknown:
        options.error(f"unknown case: {', '.join(sorted(unknown))}")
    try:
        settings = _variables(given.beside)
    except ConfigError as error:
        options.error(str(error))
    name_of_other = " ".join(given.beside) or "baseline"
    _begin({**machine(), "backend": given.backend}, name_of_other, as_json=given.json)
    for name in given.cases or known:
        if name == PATHS:
            for row in paths.count_paths(beside=settings):
                print(json.dumps({"case": PATHS, **row}) if given.json else paths.line(row))
            continue
        case = CASES[name]
        task, other = case.lasting(given.seconds), case.reference
        against: rounds.Against | None = (other, task)
        if settings:
            other = case.side
            against = other, replace(task, settings=settings)
        elif given.ours_only:
            against = None
        how = given.rounds, given.backend
        done = rounds.rounds(task, *how, side=case.side, against=against, quiet=given.quiet)
        row = rounds.row(name, case, done, " ".join(given.beside) or other)
        print(json.dumps(row) if given.json else rounds.line(row), flush=True)


def _variables(settings: Iterable[str]) -> dict[str, str]:
    """Settings of a node as the variables that a task has; raises ConfigError."""
    found = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        found[f"PARLEY_NODE_{name.replace('.', '_').upper()}"] = value
    load_settings(None, found)
    return found


def _begin(found: dict[str, Any], name_of_other: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"machine": found}), flush=True)
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items()))
        print(rounds.headings(name_of_other), flush=True)


if __name__ == "__main__":
    main()
