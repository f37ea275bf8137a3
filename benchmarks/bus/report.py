"""What was found as rows and lines, with the aims and whether they are met.

Medians over the rounds; a ratio is of two sides in the same round.
"""

from statistics import median
from typing import Any

from benchmarks.bus.cases import CASES, TARGETS, Target
from benchmarks.bus.run import Findings, Found

Row = dict[str, Any]
HEADINGS = f"{'case':12} {'side':12} {'median':>12} {'':9} {'least to most':>23}  others"


def rows(findings: Findings) -> list[Row]:
    """One for each case and side, then one for each target that was measured."""
    found = [
        _row(case, side, rounds)
        for case, sides in findings.rounds.items()
        for side, rounds in sides.items()
    ]
    return found + [row for target in TARGETS for row in _judged(target, findings)]


def _row(case: str, side: str, rounds: list[Found]) -> Row:
    values = [one.value for one in rounds]
    row = {
        "case": case,
        "side": side,
        "value": round(median(values), 1),
        "unit": CASES[case].unit,
        "least": round(min(values), 1),
        "most": round(max(values), 1),
        "others": round(max(one.others for one in rounds), 2),
        "rounds": len(rounds),
    }
    if CASES[case].work == "latency":
        row["p99"] = round(median(one.p99 for one in rounds), 1)
    return row


def _judged(target: Target, findings: Findings) -> list[Row]:
    ours = findings.rounds.get(target.case, {}).get(target.side)
    if not ours:
        return []
    value = median(one.value for one in ours)
    row: Row = {"target": target.case, "side": target.side, "value": round(value, 1)}
    met = False
    if target.value is not None:
        row["at_least"] = target.value
        met = value >= target.value
    theirs = findings.rounds.get(target.beside_case, {}).get(target.beside)
    if theirs:
        pairs = zip(ours, theirs, strict=True)
        row["ratio"] = round(median(one.value / other.value for one, other in pairs), 2)
        row["times"], row["beside"] = target.times, f"{target.beside} {target.beside_case}"
        met = met or row["ratio"] >= target.times
    elif target.value is None:
        return []
    return [{**row, "met": met}]


def line(row: Row) -> str:
    """A row as text."""
    if "target" in row:
        return _target_line(row)
    between = f"{row['least']:,.0f} to {row['most']:,.0f}"
    text = f"{row['case']:12} {row['side']:12} {row['value']:>12,.0f} {row['unit']:9} {between:>23}"
    text += f"  {row['others']:.2f}"
    return text + (f"  p99 {row['p99']:,.0f} us" if "p99" in row else "")


def _target_line(row: Row) -> str:
    verdict = "met" if row["met"] else "MISSED"
    return f"target {row['target']:12} {row['side']:8} {aim_text(row)}: {verdict}"


def aim_text(row: Row) -> str:
    """What a target found, and what it is."""
    aims = []
    if "at_least" in row:
        aims.append(f"{row['value']:,.0f} events/s, aim {row['at_least']:,.0f}")
    if "ratio" in row:
        aims.append(f"{row['ratio']:.2f} of {row['beside']}, aim {row['times']:g}")
    return "; or ".join(aims)
