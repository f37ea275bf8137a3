"""Rows of the bus as Markdown tables.

Nothing is computed here that is not in the rows.
"""

from typing import Any

from benchmarks.bus.cases import CASES, SIDES
from benchmarks.bus.report import aim_text
from benchmarks.tables import number, table

Row = dict[str, Any]

WORKS = {"publish": "publish", "oldest": "consume the oldest", "newest": "consume the newest"}


def bus_machine(found: dict[str, str], rows: list[Row]) -> str:
    """What the figures belong to, and how much they can be trusted."""
    measured = [row for row in rows if "case" in row]
    if not found or not measured:
        return "Nothing was measured yet."
    rounds = min(row["rounds"] for row in measured)
    others = max(row["others"] for row in measured)
    return (
        f"Measured on {found['cpu']}, {found['cores']} cores, {found['os']};\n"
        f"{found['python']}, uvloop {found['uvloop']}.\n"
        f"Rounds: {rounds}. Other processes used up to {others:.2f} cores meanwhile."
    )


def figures_table(rows: list[Row]) -> str:
    """Sides as rows, cases as columns: events a second, or microseconds."""
    measured = {(row["side"], row["case"]): row for row in rows if "case" in row}
    cases = [name for name in CASES if any(case == name for _, case in measured)]
    body = []
    for side, how in SIDES.items():
        cells = [measured.get((side, case)) for case in cases]
        if any(cells):
            body.append([f"`{side}`: {how.title}", *map(_cell, cells)])
    return table(["events/s; latency us (p99)", *(f"`{case}`" for case in cases)], body)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return number(row["value"]) + (f" ({number(row['p99'])})" if "p99" in row else "")


def targets_table(rows: list[Row]) -> str:
    """The aims, and what became of them."""
    body = [
        [f"`{row['target']}`, `{row['side']}`", aim_text(row), "met" if row["met"] else "missed"]
        for row in rows
        if "target" in row
    ]
    return table(["case", "found, and aim", ""], body)


def stored_table(rows: list[Row]) -> str:
    """What many stored events cost."""
    body = [
        [
            f"`{row['side']}`, {row['stored']:,}",
            number(row["memory"]),
            number(row["disk"]),
            *(f"{row[f'{name}_us']:.1f} ({row[f'{name}_ratio']:.2f})" for name in WORKS),
        ]
        for row in rows
    ]
    head = ["stored", "memory, bytes each", "disk, bytes each"]
    return table([*head, *(f"{title}, us (ratio)" for title in WORKS.values())], body)
