"""The command line: `python -m benchmarks.peers [CASE...] [--peers PEER...]`.

A ratio is our figure by the peer's of the same round: above 1 is in our favour only where more is
better, which a row states. A ratio of processor time is what the peer needs by what ours needs, so
above 1 is always in our favour.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any, Literal

from benchmarks.machine import machine
from benchmarks.peers.run import OURS, PEER_CASES, PEERS, PURE, STREAMS, Effort, Findings, run
from benchmarks.rounds import number, processor_time, spread, summary

Row = dict[str, Any]
Form = Literal["json", "markdown", "text"]

HEADINGS = (
    f"{'case':12} {'side':16} {'median':>12} {'':13} {'ours by it':>10} {'spread':>13}"
    f" {'cpu ratio':>9}   cpu us/op, client + server"
)


def rows(findings: Findings) -> list[Row]:
    """A row for each peer that was measured, and for each case."""
    peers = {side: None for found in findings.rounds.values() for side in found if side != OURS}
    found: list[Row] = [
        {"peer": name, "title": PEERS[name].title, "versions": PEERS[name].versions()}
        for name in peers
    ]
    return found + [_case(name, findings) for name in findings.rounds]


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
    values = {
        name: side["value"] for name, side in sides.items() if name not in (OURS, PURE, STREAMS)
    }
    best = min if less_is_better else max
    return best(values, key=values.__getitem__, default="")


def lines(row: Row) -> list[str]:
    """A row as text."""
    if "peer" in row:
        return [f"{row['peer']}: {row['title']}" + (row["versions"] and f", {row['versions']}")]
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


def tables(found: list[Row]) -> list[str]:
    """Return two Markdown tables: each side's figure, and its processor time, with ratios.

    In brackets is Parley's figure divided by the side's, and the side's time divided by Parley's.
    """
    cases = [row for row in found if "case" in row]
    titles = {OURS: "Parley", **{row["peer"]: row["title"] for row in found if "peer" in row}}
    figures, times = [], []
    for row in cases:
        more = f"{row['unit']}, less is better" if row["less_is_better"] else row["unit"]
        figures.append([f"`{row['case']}`, {more}"])
        times.append([f"`{row['case']}`, us"])
        for name in titles:
            side = row["sides"][name]
            micros = side["client_us"] + side["server_us"]
            figure = number(side["value"]) + (f" ({side['lost']:.1%} lost)" if side["lost"] else "")
            time = number(micros)
            if name != OURS:
                figure += f" ({side['ratio'][0]:.2f})"
                time += f" ({side['cpu_ratio'][0]:.2f})"
            figures[-1].append(figure)
            times[-1].append(time)
    headings = ["case", *titles.values()]
    rule = ["---", *["---:"] * len(titles)]
    return [
        *("| " + " | ".join(cells) + " |" for cells in [headings, rule, *figures]),
        "",
        *("| " + " | ".join(cells) + " |" for cells in [headings, rule, *times]),
    ]


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(PEER_CASES))
    options.add_argument("--peers", nargs="+", default=list(PEERS), metavar="PEER")
    options.add_argument("--seconds", type=float, default=0.7, help="for each measurement")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quiet", type=float, default=1.0, help="seconds to wait for an idle one")
    options.add_argument("--pure", default="", metavar="PYTHON", help="of an uncompiled Parley")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument("--markdown", action="store_true", help="tables, once all is measured")
    return options


def main() -> None:
    """Run the cases that were asked for, or all."""
    options = parser()
    given = options.parse_args()
    if unknown := [*set(given.cases) - set(PEER_CASES), *set(given.peers) - set(PEERS)]:
        options.error(f"no such case or peer: {', '.join(sorted(unknown))}")
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    effort = Effort(given.seconds, given.rounds, given.quiet, given.pure)
    form: Form = "json" if given.json else "markdown" if given.markdown else "text"
    show(given.cases or PEER_CASES, given.peers, effort, form)


def show(
    cases: Iterable[str],
    peers: Iterable[str],
    effort: Effort,
    form: Form,
) -> None:
    """Measure cases of these peers and print the rows."""
    findings = run(_in_order(PEER_CASES, cases), _in_order(PEERS, peers), effort, _seen)
    _seen("")
    for name, why in findings.left_out.items():
        row = {"left_out": name, "reason": why}
        print(json.dumps(row) if form == "json" else f"{name} is left out: {why}")
    found = rows(findings)
    if form == "markdown":
        print("\n".join(tables(found)))
        return
    if form == "text":
        print(HEADINGS)
    for row in found:
        print(json.dumps(row) if form == "json" else "\n".join(lines(row)), flush=True)


def _in_order(all_of_them: Iterable[str], wanted: Iterable[str]) -> list[str]:
    wanted = set(wanted)
    return [name for name in all_of_them if name in wanted]


def _seen(name: str) -> None:
    """Print the measurement in progress."""
    if sys.stderr.isatty():
        print(f"\r{name:40}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
