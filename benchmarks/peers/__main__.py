"""The command line: `python -m benchmarks.peers [CASE...] [--peers PEER...]`."""

import argparse
import json
import sys
from collections.abc import Iterable

from benchmarks.machine import machine
from benchmarks.peers import report
from benchmarks.peers.cases import PEER_CASES, PEERS
from benchmarks.peers.run import Effort, run


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(PEER_CASES))
    options.add_argument("--peers", nargs="+", default=list(PEERS), metavar="PEER")
    options.add_argument("--seconds", type=float, default=0.7, help="for each measurement")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quiet", type=float, default=1.0, help="seconds to wait for an idle one")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    return options


def main() -> None:
    """Run the cases that were asked for, or all."""
    options = parser()
    given = options.parse_args()
    if unknown := [*set(given.cases) - set(PEER_CASES), *set(given.peers) - set(PEERS)]:
        options.error(f"no such case or peer: {', '.join(sorted(unknown))}")
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    effort = Effort(given.seconds, given.rounds, given.quiet)
    show(given.cases or PEER_CASES, given.peers, effort, as_json=given.json)


def show(cases: Iterable[str], peers: Iterable[str], effort: Effort, *, as_json: bool) -> None:
    """Measure cases of these peers and print the rows."""
    findings = run(_in_order(PEER_CASES, cases), _in_order(PEERS, peers), effort, _seen)
    _seen("")
    for name, why in findings.left_out.items():
        row = {"left_out": name, "reason": why}
        print(json.dumps(row) if as_json else f"{name} is left out: {why}")
    rows = report.rows(findings)
    if not as_json:
        print(report.HEADINGS)
    for row in rows:
        print(json.dumps(row) if as_json else "\n".join(report.lines(row)), flush=True)


def _in_order(all_of_them: Iterable[str], wanted: Iterable[str]) -> list[str]:
    wanted = set(wanted)
    return [name for name in all_of_them if name in wanted]


def _seen(name: str) -> None:
    """Say what runs, to whoever watches."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
