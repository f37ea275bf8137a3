"""What metrics cost a server under load: `python -m benchmarks.metered`.

Two servers, each a process of its own over loopback TCP: one counts, the other one counts nothing.
This process has 200 connections to each, and makes 5,000 calls a second, five at once on a
connection and then on the next one: to one server for a moment, then to the other, in turns.
Compared is the processor time of the servers for the calls of two turns next to each other, which
is steadier than time on a machine that others use too; turns are short and many, so that what
others do meets both. Then the counting server, which still has its connections, is asked for its
metrics again and again, and the time of one answer is added as often as a Prometheus asks.
`--beside DIRECTORY` takes the uncounting server from another checkout, such as one from before
there were metrics.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from benchmarks.cpu import process_seconds
from parley import Identity, Node, Peer

CONNECTIONS: Final = 200
RATE: Final = 5_000  # calls in a second
TOGETHER: Final = 5  # on one connection
TICK: Final = 0.01  # seconds
SCRAPES: Final = 50  # of which the middle one counts
SCRAPED: Final = (1.0, 15.0)  # seconds between two of a Prometheus that is keen, or usual
SMALL: Final = bytes(128)
_SERVER: Final = Path(__file__).with_name("metered_server.py")


@dataclass(frozen=True, slots=True)
class Served:
    """One of the two servers: its process, the connections to it, where its metrics are."""

    pid: int
    peers: list[Peer]
    url: str


@asynccontextmanager
async def server(
    kind: str, connections: int, checkout: Path | None = None
) -> AsyncIterator[Served]:
    """Start one, `counted` or `uncounted`, and connect to it so many times."""
    environ = dict(os.environ)
    if checkout is not None:
        environ["PYTHONPATH"] = str(checkout)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_SERVER),
        kind,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = json.loads(await process.stdout.readline())
        async with Node(Identity.create()) as node:
            peers = [await node.connect(said["address"]) for _ in range(connections)]
            yield Served(process.pid, peers, said.get("url", ""))
    finally:
        process.stdin.close()
        await process.wait()


async def turn(served: Served, seconds: float, rate: int, together: int) -> float:
    """Call it for so long; returns microseconds of its processor time for a call."""
    peers, peer, count, each = cycle(served.peers), served.peers[0], 0, round(rate * TICK)
    calls: set[asyncio.Task[Any]] = set()
    began, start = process_seconds(served.pid), time.perf_counter()
    for tick in range(1, round(seconds / TICK) + 1):
        for number in range(each):
            peer = peer if number % together else next(peers)
            task = asyncio.create_task(peer.call("echo", SMALL))
            calls.add(task)
            task.add_done_callback(calls.discard)
        count += each
        await asyncio.sleep(max(0.0, start + tick * TICK - time.perf_counter()))
    await asyncio.gather(*calls)
    return (process_seconds(served.pid) - began) / count * 1e6


async def scrape(url: str) -> bytes:
    """Ask for metrics as Prometheus does; returns the text."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    text = await reader.read()
    writer.close()
    return text


async def scrape_time(served: Served, times: int = SCRAPES) -> float:
    """Ask so often for the metrics; returns microseconds of its processor time for one answer."""
    spent = []
    for _ in range(times):
        began = process_seconds(served.pid)
        await scrape(served.url)
        spent.append(process_seconds(served.pid) - began)
    return median(spent) * 1e6


async def compare(
    seconds: float,
    rounds: int,
    *,
    connections: int = CONNECTIONS,
    rate: int = RATE,
    together: int = TOGETHER,
    beside: Path | None = None,
) -> dict[str, Any]:
    """A row: microseconds of processor time for a call with metrics and without (medians), and for
    a scrape; the median of the rounds' ratios with the bounds between which it lies in 19 of 20
    measurements; and that ratio with scrapes, by the seconds between two of them."""
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(server("counted", connections))
        off = await stack.enter_async_context(server("uncounted", connections, beside))
        for served in (on, off):
            await turn(served, min(1.0, seconds), rate, together)
        pairs = []
        for number in range(rounds):
            first, second = (on, off) if number % 2 else (off, on)
            found = {first.pid: await turn(first, seconds, rate, together)}
            found[second.pid] = await turn(second, seconds, rate, together)
            pairs.append((found[on.pid], found[off.pid]))
        scrape_us = await scrape_time(on)
    ratios = sorted(counted / uncounted for counted, uncounted in pairs)
    # Order statistics: so many ranks about the middle hold the true median (two deviations).
    about = round(sqrt(rounds))
    low, high = ratios[max(0, rounds // 2 - about)], ratios[min(rounds - 1, rounds // 2 + about)]
    off_us, ratio = median(other for _, other in pairs), median(ratios)
    return {
        "connections": connections,
        "rate": rate,
        "on_us": round(median(one for one, _ in pairs), 2),
        "off_us": round(off_us, 2),
        "scrape_us": round(scrape_us),
        "ratio": round(ratio, 4),
        "bounds": [round(low, 4), round(high, 4)],
        "with_scrapes": {
            every: round(ratio + scrape_us / every / (off_us * rate), 4) for every in SCRAPED
        },
    }


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    low, high = row["bounds"]
    scraped = " and ".join(
        f"{ratio:.3f} with one in {every:g} s" for every, ratio in row["with_scrapes"].items()
    )
    return (
        f"{row['connections']} connections, {row['rate']:,} calls/s: {row['on_us']:.1f} us of "
        f"processor time a call with metrics, {row['off_us']:.1f} without: {row['ratio']:.3f} "
        f"({low:.3f} to {high:.3f}); a scrape takes {row['scrape_us']:,} us: {scraped}"
    )


def main() -> None:
    """Measure, and show the row."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.metered", description=__doc__)
    options.add_argument("--json", action="store_true", help="a JSON object")
    options.add_argument("--together", type=int, default=TOGETHER, help="calls on a connection")
    options.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    options.add_argument("--rounds", type=int, default=300, help="pairs of turns")
    options.add_argument("--beside", type=Path, help="another checkout, for the one without")
    given = options.parse_args()
    row = uvloop.run(
        compare(given.seconds, given.rounds, together=given.together, beside=given.beside)
    )
    print(json.dumps(row) if given.json else line(row))


if __name__ == "__main__":
    main()
