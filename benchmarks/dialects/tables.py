"""Rows of the dialects as Markdown tables.

Nothing is computed here that is not in the rows.
"""

from typing import Any

from benchmarks.tables import number, table

Row = dict[str, Any]

MICROSECONDS = "us"


def dialects_machine(found: dict[str, str], rows: list[Row], faults: list[Row]) -> str:
    """What the figures belong to, and how much they can be trusted."""
    if not found or not rows:
        return "Nothing was measured yet."
    rounds = min(len(row["all"]) for row in rows)
    others = max(row["others"] for row in [*rows, *faults])
    return (
        f"Measured on {found['cpu']}, {found['cores']} cores, {found['os']};\n"
        f"{found['python']}, uvloop {found['uvloop']}.\n"
        f"Rounds: {rounds}. Other processes used up to {others:.2f} cores meanwhile."
    )


def throughput_table(rows: list[Row]) -> str:
    """What went through in a second, beside native."""
    body = [
        [
            f"`{row['case']}`: {row['title']}",
            f"{number(row['value'])} {row['unit']}" + _lost(row),
            f"{number(row['least'])} to {number(row['most'])}",
            _ratio(row),
            f"{row['cpu_ratio'][0]:.2f}" if "ratio" in row else "",
            f"{row['client_us']:.2f} + {row['server_us']:.2f}",
        ]
        for row in rows
        if row["unit"] != MICROSECONDS
    ]
    head = ["case", "median", "spread", "by native", "of CPU time", "us of it, client + server"]
    return table(head, body)


def latency_table(rows: list[Row]) -> str:
    """Microseconds through the relay."""
    body = [
        [f"`{row['case']}`: {row['title']}", number(row["value"]), number(row["p99"])]
        for row in rows
        if row["unit"] == MICROSECONDS
    ]
    return table(["case", "median, us", "p99, us"], body)


def faults_table(rows: list[Row]) -> str:
    """A well-behaved client's turns while another floods."""
    body = [
        [
            f"`{row['server']}`: {row['title']}",
            number(row["p50"]),
            number(row["p99"]),
            f"{number(row['p99_least'])} to {number(row['p99_most'])}",
            f"{row['ratio'][0]:.1f}" if "ratio" in row else "",
            f"{number(row['megabytes'])} in {row['connections']}" if row["connections"] else "",
            f"{number(row['grown'] / 1e6)}",
        ]
        for row in rows
    ]
    head = [
        "server, and what the hostile client does",
        "median, us",
        "p99, us",
        "spread of p99",
        "p99 by calm",
        "MB/s written, connections",
        "server grew by, MB",
    ]
    return table(head, body)


def _ratio(row: Row) -> str:
    if "ratio" not in row:
        return ""
    middle, least, most = row["ratio"]
    return f"{middle:.2f} ({least:.2f} to {most:.2f}) of `{row['beside']}`"


def _lost(row: Row) -> str:
    return f" ({row['lost']:.2%} lost)" if row["lost"] else ""
