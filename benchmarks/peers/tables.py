"""Rows of the peers as Markdown tables.

Nothing is computed here that is not in the rows.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.peers.cases import OURS, STREAMS
from benchmarks.peers.report import aim_text
from benchmarks.tables import number, table

Row = dict[str, Any]


def peers_machine(found: dict[str, str], rows: list[Row]) -> str:
    """What the figures belong to, which peers they are, and how much they can be trusted."""
    cases = [row for row in rows if "case" in row]
    if not found or not cases:
        return "Nothing was measured yet."
    rounds = min(len(side["all"]) for row in cases for side in row["sides"].values())
    others = max(row["others"] for row in cases)
    versions = dict.fromkeys(row["versions"] for row in rows if row.get("versions"))
    return (
        f"Measured on {found['cpu']}, {found['cores']} cores, {found['os']};\n"
        f"{found['python']}, uvloop {found['uvloop']}, our core {found['core']};\n"
        f"{', '.join(versions)}.\n"
        f"Rounds: {rounds}. Other processes used up to {others:.2f} cores meanwhile."
    )


def peers_table(rows: list[Row]) -> str:
    """What each side does, and ours by it in brackets."""

    def cell(side: Row) -> str:
        lost = f", {side['lost']:.2%} lost" if side["lost"] else ""
        return f"{number(side['value'])}{_ratio(side, 'ratio')}{lost}"

    return _by_side(rows, cell)


def peers_best_table(rows: list[Row]) -> str:
    """Ours by hand-made streams, and by the best of the others; by the clock and by CPU time."""
    titles = {row["peer"]: row["title"] for row in rows if "peer" in row}
    body = []
    for row in rows:
        if "case" in row:
            what = f"`{row['case']}`" + " (less is better)" * row["less_is_better"]
            sides = [row["sides"].get(name, {}) for name in (STREAMS, row["best"])]
            ratios = [_median(side, kind) for side in sides for kind in ("ratio", "cpu_ratio")]
            body.append([what, *ratios[:2], titles.get(row["best"], ""), *ratios[2:]])
    head = ["case", "by TLS streams", "of CPU time", "best of the others", "by it", "of CPU time"]
    return table(head, body)


def _median(side: Row, kind: str) -> str:
    return f"{side[kind][0]:.2f}" if kind in side else ""


def peers_cpu_table(rows: list[Row]) -> str:
    """Microseconds of processor time for one, and how many times ours that is in brackets."""

    def cell(side: Row) -> str:
        return f"{number(side['client_us'] + side['server_us'])}{_ratio(side, 'cpu_ratio')}"

    return _by_side([row for row in rows if row.get("unit") != "bytes"], cell, "us")


def _ratio(side: Row, kind: str) -> str:
    return f" ({side[kind][0]:.2f})" if kind in side else ""


def _by_side(rows: list[Row], cell: Callable[[Row], str], unit: str = "") -> str:
    titles = {OURS: "Parley", **{row["peer"]: row["title"] for row in rows if "peer" in row}}
    body = []
    for row in rows:
        if "case" in row:
            what = f"`{row['case']}`, {unit or row['unit']}"
            what += " (less is better)" * row["less_is_better"]
            sides = [row["sides"].get(name) for name in titles]
            body.append([what, *(cell(side) if side else "" for side in sides)])
    return table(["case", *titles.values()], body)


def peers_aims_table(rows: list[Row]) -> str:
    """What was aimed at, and whether it was met."""
    body = [
        [f"`{row['aim']}`", aim_text(row), "met" if row["met"] else "missed"]
        for row in rows
        if "aim" in row
    ]
    return table(["case", "found, and aim", ""], body)
