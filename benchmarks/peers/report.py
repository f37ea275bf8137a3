"""Rounds of the peers as rows, and rows as lines of text.

A ratio is ours by the other side's of the same round; one above 1 is in our favour only where more
is better, and a row says which. That of processor time is always: how much of it the other side
needs for an operation, by what ours needs.
"""

from typing import Any

from benchmarks.machine import core_is_compiled
from benchmarks.peers.cases import AIMS, OURS, PEER_CASES, PEERS, STREAMS, Aim
from benchmarks.peers.run import Findings
from benchmarks.report import number, processor_time, spread, summary

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
    """The best of the systems beside ours, hand-made streams apart; empty if none was measured."""
    values = {name: side["value"] for name, side in sides.items() if name not in (OURS, STREAMS)}
    best = min if less_is_better else max
    return best(values, key=values.__getitem__, default="")


def _aim(aim: Aim, side: Row, *, compiled: bool) -> Row:
    """Beside a peer a ratio to reach, beside ourselves a figure not to exceed."""
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
    """What was found and what is aimed at."""
    if row["beside"] == OURS:
        return f"{number(row['found'])}, aim {number(row['wanted'])} at most"
    return f"{row['found']:.2f} of {PEERS[row['beside']].title}, aim {row['wanted']:g}"
