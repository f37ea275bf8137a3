"""The benchmarks' command line."""

import argparse
import json
import platform
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from benchmarks import core, peers

Case = Callable[[str, float], Awaitable[float]]

CASES: dict[str, tuple[str, Case]] = {
    "calls": ("calls/s, one after another", peers.sequential_calls),
    "calls-64": ("calls/s, 64 in flight", peers.parallel_calls),
    "bulk-64k": ("MB/s", lambda address, seconds: peers.bulk(address, seconds, 1 << 16)),
    "bulk-1m": ("MB/s", lambda address, seconds: peers.bulk(address, seconds, 1 << 20)),
    "handshakes": ("connections/s", peers.handshakes),
}


async def _run(names: list[str], seconds: float, as_json: bool, options: list[str]) -> None:
    async with peers.server(*options) as address:
        for name in names:
            unit, case = CASES[name]
            value = await case(address, seconds)
            _show(as_json, {"case": name, "value": round(value, 1), "unit": unit})


def _show(as_json: bool, row: dict[str, Any]) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
    else:
        print(f"{row['case']:12} {row['value']:>12,} {row['unit']}", flush=True)


def main() -> None:
    """Run the cases that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"event, {', '.join(CASES)}")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--backend", choices=["asyncio", "uvloop", "trio"], default="uvloop")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    backend = "trio" if given.backend == "trio" else "asyncio"
    loop = {"use_uvloop": given.backend == "uvloop"} if backend == "asyncio" else {}
    if given.serve:
        anyio.run(peers.serve, backend=backend, backend_options=loop)
        return
    names = given.cases or ["event", *CASES]
    unknown = set(names) - {"event", *CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if not given.json:
        print(f"Python {platform.python_version()}, {platform.machine()}, {given.backend}")
    if "event" in names:
        for side, cost in core.event_cost(given.seconds).items():
            _show(given.json, {"case": "event", "value": round(cost, 2), "unit": side})
    rest = [name for name in names if name != "event"]
    if rest:
        options = ["--backend", given.backend]
        anyio.run(
            _run, rest, given.seconds, given.json, options, backend=backend, backend_options=loop
        )


main()
