"""How a federation grows: `python -m benchmarks.federation [SERVERS...] [--save]`.

It simulates ever more servers that all start within ten seconds, without a fault after that, and
without a tunnel. What comes out is the same on each machine, but for the memory (which depends on
the Python) and the processor time of the simulation itself.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import store
from benchmarks.plots import Curve, draw
from benchmarks.tables import table
from node.apps.simulate.federation.plan import FederationPlan
from node.apps.simulate.federation.run import simulate_federation

SERVERS = (16, 32, 64, 128, 256, 512, 1024)
LINKS = 8
COLOURS = ("#1f6feb", "#9a6700")
PLOTS = {
    "federation-convergence": ("All servers have all cards", "seconds"),
    "federation-bytes": ("Sent by a server until then", "MB"),
    "federation-memory": ("State of a server", "MB"),
}


def grow(sizes: tuple[int, ...], links: int = LINKS) -> Iterator[dict[str, Any]]:
    """A row for each number of servers."""
    for servers in sizes:
        plan = FederationPlan(
            servers=servers, links=links, minutes=0, cuts=0, crashes=0, dials=0, seed=servers
        )
        began = time.process_time()
        report = simulate_federation(plan, lambda *_: None)
        if not report.held:
            raise SystemExit(f"what should hold did not: {report.breaches[0]}")
        fields = report.fields()
        yield {
            "servers": servers,
            "links": report.links,
            "settled": round(fields["settled"], 3),
            "spread_median": round(fields["spread_median"], 3),
            "spread_most": round(fields["spread_most"], 3),
            "cards": report.happened["cards made"],
            "passed_on": report.happened["cards passed on"],
            "sent": report.sent // servers,
            "memory": report.memory,
            "cpu_s": round(time.process_time() - began, 1),
        }


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    return (
        f"{row['servers']:>5} servers {row['links']:>5} links  settled {row['settled']:.2f} s, "
        f"a card {row['spread_median']:.2f} s ({row['spread_most']:.2f})  "
        f"{row['cards']:,} cards, {row['sent']:,} bytes sent and {row['memory']:,} bytes of "
        f"memory each  ({row['cpu_s']:,} s)"
    )


def federation_table(rows: list[dict[str, Any]]) -> str:
    """What the page shows."""
    heads = [
        "servers",
        "settled, s",
        "a card is with all, s (the slowest)",
        "cards made by each",
        "passes of a card over a link",
        "sent by each, MB",
        "memory of each, MB",
    ]
    return table(
        heads,
        [
            [
                f"{row['servers']:,}",
                f"{row['settled']:.1f}",
                f"{row['spread_median']:.2f} ({row['spread_most']:.2f})",
                f"{row['cards'] / row['servers']:.1f}",
                f"{row['passed_on'] / row['cards'] / row['links']:.2f}",
                f"{row['sent'] / 1e6:.2f}",
                f"{row['memory'] / 1e6:.2f}",
            ]
            for row in rows
        ],
    )


def plot_federation(rows: list[dict[str, Any]], directory: Path) -> list[Path]:
    """One file for each of `PLOTS`."""
    curves = {
        "federation-convergence": {
            "after the last link opened": "settled",
            "a card": "spread_most",
        },
        "federation-bytes": {"sent": "sent"},
        "federation-memory": {"memory": "memory"},
    }
    drawn = []
    for name, (title, beside) in PLOTS.items():
        scale = 1 if beside == "seconds" else 1e6
        shown = [
            Curve(label, colour, marker, [(row["servers"], row[key] / scale) for row in rows])
            for (label, key), colour, marker in zip(
                curves[name].items(), COLOURS, "os", strict=False
            )
        ]
        upward = "linear" if beside == "seconds" else "log"
        titles = (title, "servers", beside)
        drawn.append(draw(name, titles, shown, directory, base=2, upward=upward))
    return drawn


def save(rows: list[dict[str, Any]]) -> None:
    """Put rows in the place of older ones of as many servers, and draw the plots anew."""
    sizes = {row["servers"] for row in rows}
    kept = [row for row in store.load("federation") if row["servers"] not in sizes]
    rows = sorted(kept + rows, key=lambda row: int(row["servers"]))
    store.save("federation", rows)
    plot_federation(rows, store.DIRECTORY)


def main() -> None:
    """Simulate, and with `--save` store the figures and draw the plots."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.federation", description=__doc__)
    options.add_argument("servers", nargs="*", type=int, metavar="SERVERS")
    options.add_argument("--links", type=int, default=LINKS, help="of each server")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--save", action="store_true", help="write docs/performance")
    given = options.parse_args()
    for row in grow(tuple(given.servers) or SERVERS, given.links):
        print(json.dumps(row) if given.json else line(row), flush=True)
        if given.save:
            save([row])


if __name__ == "__main__":
    main()
