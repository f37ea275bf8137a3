"""Rounds of the dialects as rows, and rows as lines of text.

A ratio is of one round, its median and spread are of all; one above 1 is in the row's
favour only where more is better, and a row says which. That of processor time is always:
how much of it native needs, by what the row needs.
"""

from statistics import median
from typing import Any

from benchmarks.dialects.cases import DIALECT_CASES, FAULTS
from benchmarks.dialects.run import Flooded
from benchmarks.rounds import Measurement

Row = dict[str, Any]

HEADINGS = (
    f"{'case':30} {'median':>12} {'':13} {'least to most':>20} {'p99':>9} {'ratio to':>24}"
    f" {'cpu ratio':>9}"
)


def case_rows(found: dict[str, list[Measurement]]) -> list[Row]:
    """A row for each case; `ratio` is there if what it is beside was measured too."""
    rows = []
    for name, measured in found.items():
        case = DIALECT_CASES[name]
        values = [one.value for one in measured]
        row: Row = {
            "case": name,
            "title": case.title,
            "unit": case.unit,
            "less_is_better": case.less_is_better,
            "value": round(median(values), 1),
            "least": round(min(values), 1),
            "most": round(max(values), 1),
            "client_us": round(median(one.client_us for one in measured), 3),
            "server_us": round(median(one.server_us for one in measured), 3),
            "lost": round(max(one.lost for one in measured), 4),
            "others": round(max(one.others for one in measured), 2),
            "all": [round(value, 1) for value in values],
        }
        if case.less_is_better:
            row["p99"] = round(median(one.p99 for one in measured), 1)
        beside = found.get(case.beside)
        if beside is not None:
            ratios = [a.value / b.value for a, b in zip(measured, beside, strict=True)]
            row["beside"] = case.beside
            row["ratio"] = [round(value, 3) for value in spread(ratios)]
            less = [b.cpu_us / a.cpu_us for a, b in zip(measured, beside, strict=True)]
            row["cpu_ratio"] = [round(value, 3) for value in spread(less)]
        rows.append(row)
    return rows


def fault_rows(found: dict[str, list[Flooded]]) -> list[Row]:
    """A row for each flood, beside the same server without one; times in microseconds."""
    rows = []
    for name, measured in found.items():
        fault = FAULTS[name]
        row: Row = {
            "fault": name,
            "server": fault.side,
            "title": fault.title,
            "p50": round(median(one.p50 for one in measured), 1),
            "p99": round(median(one.p99 for one in measured), 1),
            "p99_least": round(min(one.p99 for one in measured), 1),
            "p99_most": round(max(one.p99 for one in measured), 1),
            "worst": round(max(one.worst for one in measured), 1),
            "megabytes": round(median(one.megabytes for one in measured), 1),
            "connections": round(median(one.connections for one in measured)),
            "grown": max(one.grown for one in measured),
            "others": round(max(one.others for one in measured), 2),
        }
        calm = found.get(f"{fault.side}-calm")
        if calm is not None and fault.how:
            ratios = [a.p99 / b.p99 for a, b in zip(measured, calm, strict=True)]
            row["ratio"] = [round(value, 3) for value in spread(ratios)]
        rows.append(row)
    return rows


def spread(ratios: list[float]) -> tuple[float, float, float]:
    """Median, least and most."""
    return median(ratios), min(ratios), max(ratios)


def case_line(row: Row) -> str:
    """A case's row as text."""
    between = f"{row['least']:,.0f}-{row['most']:,.0f}"
    text = f"{row['case']:30} {row['value']:>12,.1f} {row['unit']:13} {between:>20} "
    text += f"{row['p99']:9,.1f} " if "p99" in row else f"{'':10}"
    if "ratio" in row:
        middle, least, most = row["ratio"]
        text += f"{middle:5.2f} ({least:.2f}-{most:.2f}) {row['beside']:9}"
        text += f"{row['cpu_ratio'][0]:6.2f} "
    else:
        text += f"{'':34}"
    text += (
        f" {row['client_us']:.2f} + {row['server_us']:.2f} us of cpu, others {row['others']:.2f}"
    )
    return text + (f", lost {row['lost']:.2%}" if row["lost"] else "")


def fault_line(row: Row) -> str:
    """A flood's row as text."""
    between = f"{row['p99_least']:,.0f}-{row['p99_most']:,.0f}"
    text = f"{row['fault']:20} p50 {row['p50']:9,.1f} us, p99 {row['p99']:9,.1f} us ({between})"
    if "ratio" in row:
        text += f", {row['ratio'][0]:.1f} times calm"
    text += f"; worst {row['worst']:,.0f}; {row['megabytes']:,.1f} MB/s in"
    text += f" {row['connections']} connections, server grew by {row['grown'] / 1e6:,.1f} MB"
    return f"{text}; others {row['others']:.2f}"
