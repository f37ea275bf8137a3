"""The command line: `python -m benchmarks.peers [CASE...] [--peers PEER...]`.

A ratio is our figure by the peer's of the same round: above 1 is in our favour only where more is
better, which a row states. A ratio of processor time is what the peer needs by what ours needs, so
above 1 is always in our favour.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.machine import core_is_compiled, machine
from benchmarks.peers.run import AIMS, OURS, PEER_CASES, PEERS, STREAMS, Aim, Effort, Findings, run
from benchmarks.rounds import number, processor_time, spread, summary

Row = dict[str, Any]

HEADINGS = (
    f"{'case':12} {'side':16} {'median':>12} {'':13} {'ours by it':>10} {'spread':>13}"
    f" {'cpu ratio':>9}   cpu us/op, client + server"
)


def rows(findings: Findings) -> list[Row]:
    """A row for each peer that was measured, for each case, and for each aim that was."""
    peers = {side: None for found in findings.rounds.values() for side in found if side != OURS}
    found: list[Row] = [
        {"peer": name, "title": PEERS[name].title, "versions": PEERS[name].versions()}
        for name in peers
    ]
    cases = [_case(name, findings) for name in findings.rounds]
    by_name = {row["case"]: row for row in cases}
    found += cases
    compiled = core_is_compiled()
    for aim in AIMS:
        if (row := by_name.get(aim.case)) and aim.beside in row["sides"]:
            found.append(_aim(aim, row["sides"][aim.beside], compiled=compiled))
    return found


def _case(name: str, findings: Findings) -> Row:
    case, found = PEER_CASES[name], findings.rounds[name]
    sides: dict[str, Row] = {}
    for side, measured in found.items():
        sides[side] = summary(measured)
        if side != OURS:
            pairs = list(zip(found[OURS], measured, strict=True))
            sides[side]["ratio"] = spread([ours.value / its.value for ours, its in pairs])
            sides[side]["cpu_ratio"] = spread([its.cpu_us / ours.cpu_us for ours, its in pairs])
    return {
        "case": name,
        "title": case.title,
        "unit": case.unit,
        "less_is_better": case.less_is_better,
        "best": _best(sides, case.less_is_better),
        "sides": sides,
        "others": round(max(one.others for side in found.values() for one in side), 2),
    }


def _best(sides: dict[str, Row], less_is_better: bool) -> str:
    """Return the best of the other systems, without hand-made streams; empty if none was
    measured.
    """
    values = {name: side["value"] for name, side in sides.items() if name not in (OURS, STREAMS)}
    best = min if less_is_better else max
    return best(values, key=values.__getitem__, default="")


def _aim(aim: Aim, side: Row, *, compiled: bool) -> Row:
    """Return the target: a minimum ratio to a peer, or a maximum figure compared with Parley's
    other settings.
    """
    wanted = aim.compiled if compiled else aim.least
    value = side["value"] if aim.beside == OURS else side["ratio"][0]
    return {
        "aim": aim.case,
        "beside": aim.beside,
        "found": value,
        "wanted": wanted,
        "compiled": compiled,
        "met": value <= wanted if aim.beside == OURS else value >= wanted,
    }


def lines(row: Row) -> list[str]:
    """A row as text."""
    if "peer" in row:
        return [f"{row['peer']}: {row['title']}" + (row["versions"] and f", {row['versions']}")]
    if "aim" in row:
        return [f"{row['aim']}: {aim_text(row)}: {'met' if row['met'] else 'MISSED'}"]
    return [_line(row, name, side) for name, side in row["sides"].items()]


def _line(row: Row, name: str, side: Row) -> str:
    text = f"{row['case']:12} {name:16} {number(side['value']):>12} {row['unit']:13} "
    if "ratio" in side:
        middle, least, most = side["ratio"]
        text += f"{middle:10.2f} {f'{least:.2f}-{most:.2f}':>13} {side['cpu_ratio'][0]:9.2f}   "
    else:
        text += f"{'':37}"
    text += processor_time(side)
    return text + (f"  lost {side['lost']:.2%}" if side["lost"] else "")


def aim_text(row: Row) -> str:
    """Yield the results and the targets."""
    if row["beside"] == OURS:
        return f"{number(row['found'])}, aim {number(row['wanted'])} at most"
    return f"{row['found']:.2f} of {PEERS[row['beside']].title}, aim {row['wanted']:g}"


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
    if not as_json:
        print(HEADINGS)
    for row in rows(findings):
        print(json.dumps(row) if as_json else "\n".join(lines(row)), flush=True)


def _in_order(all_of_them: Iterable[str], wanted: Iterable[str]) -> list[str]:
    wanted = set(wanted)
    return [name for name in all_of_them if name in wanted]


def _seen(name: str) -> None:
    """Print the measurement in progress."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
