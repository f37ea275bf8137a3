"""Measured rows as Markdown tables.

Nothing is computed here that is not in the rows.
"""

from typing import Any

Row = dict[str, Any]


def machine_text(found: dict[str, str], rows: list[Row]) -> str:
    """What the figures belong to, and how much they can be trusted."""
    if not found:
        return "Nothing was measured yet."
    names = ("uvloop", "anyio", "trio", "cryptography", "pynacl", "blake3")
    packages = ", ".join(f"{name} {found[name]}" for name in names if name in found)
    count = min(len(row["ours"]["all"]) for row in rows)
    others = max(row["others"] for row in rows)
    return (
        f"Measured on {found['cpu']}, {found['cores']} cores, {found['os']};\n"
        f"{found['python']}, {packages}, {found['openssl']}.\n"
        f"Rounds: {count}. Other processes used up to {others:.2f} cores meanwhile."
    )


def cases_table(
    rows: list[Row], sides: tuple[str, str] = ("Parley", "TLS streams"), digits: int = 2
) -> str:
    """Ours beside what it is held against; ratios with so many digits."""
    head = ["case", *sides, "ratio", "spread", "ratio of CPU time"]
    body = []
    for row in rows:
        if "baseline" not in row:
            continue
        ratio, least, most = row["ratio"]
        body.append(
            [
                f"`{row['case']}`, {row['unit']}" + (" (less is better)" * row["less_is_better"]),
                _value(row["ours"]),
                _value(row["baseline"]),
                f"{ratio:.{digits}f}",
                f"{least:.{digits}f} to {most:.{digits}f}",
                f"{row['cpu_ratio'][0]:.{digits}f}",
            ]
        )
    return table(head, body)


def _value(side: Row) -> str:
    """A figure, and the part of the notes that never arrived if there is one."""
    lost = f" ({side['lost']:.2%} lost)" if side["lost"] else ""
    return number(side["value"]) + lost


def loops_table(rows: dict[str, list[Row]]) -> str:
    """Our side on each loop."""
    found = {
        loop: {row["case"]: row for row in measured if "ours" in row}
        for loop, measured in rows.items()
    }
    body = []
    for case, row in found["uvloop"].items():
        values = [each.get(case) for each in found.values()]
        texts = [_value(one["ours"]) if one else "" for one in values]
        body.append([f"`{case}`, {row['unit']}", *texts])
    return table(["case", *found], body)


def profile_table(rows: list[Row], name: str) -> str:
    """Microseconds by layer: the client, the server, both."""
    sides = {row["process"]: row for row in rows if row["profile"] == name}
    if not sides:
        return "Nothing was measured yet."
    client, server = sides["client"]["layers"], sides["server"]["layers"]
    both = {
        layer: client.get(layer, 0.0) + server.get(layer, 0.0) for layer in {**client, **server}
    }
    whole = sum(both.values()) or 1.0
    ordered = sorted(both, key=lambda layer: -both[layer])
    body = [
        [
            layer,
            f"{client.get(layer, 0.0):.2f}",
            f"{server.get(layer, 0.0):.2f}",
            f"{both[layer]:.2f}",
            f"{both[layer] / whole:.0%}",
        ]
        for layer in ordered
    ]
    total = [sides["client"]["us"], sides["server"]["us"]]
    body.append(["all", *(f"{us:.2f}" for us in [*total, sum(total)]), "100%"])
    kinds = {"call": ("caller", "handler's side"), "note": ("subscriber", "publisher")}
    return table(["layer", *kinds.get(name, ("client", "server")), "both", "share"], body)


def paths_table(rows: list[Row]) -> str:
    """Function calls for one operation, by package."""
    packages = list(rows[0]["packages"]) if rows else []
    body = [
        [row["what"], *(f"{row['packages'][name]:.1f}" for name in packages), f"{row['calls']:.1f}"]
        for row in rows
    ]
    return table(["one", *(f"`{name}`" for name in packages), "all"], body)


def paths_beside_table(rows: list[Row], sides: tuple[str, str]) -> str:
    """Function calls for one operation, and with other settings."""
    body = [[row["what"], f"{row['calls']:.1f}", f"{row['beside']:.1f}"] for row in rows]
    return table(["one", *sides], body)


def hop_table(rows: list[Row]) -> str:
    """What is done through a tunnel beside what is done directly."""
    body = [
        [
            f"{row['what']} ({row['unit']})",
            f"{row['tunnel']:,.0f}",
            f"{row['direct']:,.0f}",
            f"{row['ratio']:.2f}",
            "" if row["busiest_ratio"] is None else f"{row['busiest_ratio']:.2f}",
            f"{row['cpu_ratio']:.2f}",
        ]
        for row in rows
    ]
    head = ["", "one hop", "direct", "by the clock", "by the busiest process", "by all"]
    return table(head, body)


def isolation_table(rows: list[Row]) -> str:
    """A good tunnel beside stalled ones, and what these cost."""
    body = [
        [row["what"], f"{row['stalled']:,.1f}", f"{row['calm']:,.1f}", f"{row['ratio']:.2f}"]
        for row in rows
    ]
    return table(["", "255 stalled tunnels", "without, or windows", "ratio"], body)


def tuning_table(rows: list[Row]) -> str:
    """The effect of one change at a time, by processor time."""
    usual = {row["case"]: row["cpu_us"] for row in rows if row["trial"] == "default"}
    changed: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["trial"] != "default":
            changed.setdefault(row["trial"], {})[row["case"]] = row
    head = ["change", *(f"`{case}` ({us:,.1f} us)" for case, us in usual.items())]
    body = [
        [trial, *(f"{of[case]['cpu_ratio']:.2f}" if case in of else "" for case in usual)]
        for trial, of in changed.items()
    ]
    return table(head, body)


def table(head: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    if not body:
        return "Nothing was measured yet."
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *body])


def number(value: float) -> str:
    """Digits in threes; one after the point below a hundred."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
