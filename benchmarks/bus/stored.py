"""What many stored events cost: `python -m benchmarks.bus.stored [SIDE...] [--sizes N...]`.

Memory and disk for each event, and what one more costs to publish, and to consume from the oldest
and near the newest, when ten thousand, a hundred thousand and a million are there. A cost is
processor time of all that works (this process, the redis-server), and its ratio is to that at the
first size; events a second stand beside it.
"""

import argparse
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import psutil

from benchmarks import store
from benchmarks.bus.run import APPENDFSYNC
from benchmarks.bus.sides import TEXT, Arrivals, Done, repeat_for
from benchmarks.cpu import process_seconds, wait_until_quiet
from benchmarks.store import machine
from parley.bus import Bus, open_bus
from tests.redis_server import RedisServer

Row = dict[str, Any]
NAME: Final = "bench.measured"
SIDES: Final = ("sqlite", "redis")
SIZES: Final = (10_000, 100_000, 1_000_000)
PUBLISHERS: Final = 10
WORKS: Final = ("publish", "oldest", "newest")
_FILL: Final = 1_000
_MICRO: Final = 1e6
# Without it a bus keeps a hundred thousand.
_UNBOUND: Final = "max_length=none"


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds to publish for, events to consume, seconds to wait for an idle machine."""

    seconds: float = 1.0
    events: int = 10_000
    quiet: float = 2.0
    appendfsync: str = "everysec"
    directory: Path | None = None


class Kept:
    """A bus that is filled, its directory, and the redis-server that keeps it, if one does."""

    def __init__(self, bus: Bus, directory: Path, server: RedisServer | None, last: int) -> None:
        self.bus = bus
        self.stored = 0
        self._directory = directory
        self._pids = [server.pid] if server else []
        # The ids of the last ones, for a group to begin at.
        self.last: deque[str] = deque(maxlen=last)
        self._memory, self._disk = self._resident(), self._files()

    async def fill(self, size: int) -> None:
        """Publish until so many are stored."""
        while self.stored < size:
            count = min(_FILL, size - self.stored)
            self.last.extend(await self.bus.publish_many(NAME, [{"text": TEXT}] * count))
            self.stored += count

    @property
    def memory(self) -> float:
        """Bytes for each stored event by which whoever keeps them has grown."""
        return (self._resident() - self._memory) / self.stored

    @property
    def disk(self) -> float:
        """Bytes of files for each stored event."""
        return (self._files() - self._disk) / self.stored

    async def cost(self, work: Awaitable[Done], quiet: float) -> tuple[float, float, int]:
        """Microseconds of processor time for an event, events a second, and how many."""
        wait_until_quiet(*self._pids, limit=quiet)
        before = self._cpu()
        done = await work
        used = self._cpu() - before
        return used / max(1, done.count) * _MICRO, done.count / done.seconds, done.count

    def _cpu(self) -> float:
        return time.process_time() + sum(map(process_seconds, self._pids))

    def _resident(self) -> int:
        pid = self._pids[0] if self._pids else None
        return int(psutil.Process(pid).memory_info().rss)

    def _files(self) -> int:
        return sum(path.stat().st_size for path in self._directory.rglob("*") if path.is_file())


async def measure(side: str, sizes: list[int], effort: Effort, *, as_json: bool) -> list[Row]:
    """A row for each size, each shown when it is known."""
    rows: list[Row] = []
    async with _open(side, effort) as kept:
        for size in sizes:
            began = time.perf_counter()
            await kept.fill(size)
            row: Row = {
                "side": side,
                "stored": size,
                "filled_in": round(time.perf_counter() - began, 1),
                "memory": round(kept.memory, 1),
                "disk": round(kept.disk, 1),
            }
            count = min(effort.events, len(kept.last))
            works: dict[str, Awaitable[Done]] = {
                "publish": _publish(kept.bus, effort.seconds),
                "oldest": _consume(kept.bus, f"oldest-{size}", count, "first"),
                "newest": _consume(kept.bus, f"newest-{size}", count, kept.last[-count]),
            }
            for name, work in works.items():
                cpu, speed, done = await kept.cost(work, effort.quiet)
                first = rows[0] if rows else {f"{name}_us": round(cpu, 2)}
                row[f"{name}_us"], row[f"{name}_speed"] = round(cpu, 2), round(speed)
                row[f"{name}_ratio"] = round(cpu / first[f"{name}_us"], 2)
                kept.stored += done if name == "publish" else 0
            rows.append(row)
            print(json.dumps(row) if as_json else line(row), flush=True)
    return rows


async def _publish(bus: Bus, seconds: float) -> Done:
    async def publish() -> int:
        await bus.publish(NAME, {"text": TEXT})
        return 1

    return await repeat_for(seconds, PUBLISHERS, publish)


async def _consume(bus: Bus, group: str, count: int, start: str) -> Done:
    arrivals = Arrivals(count)
    async with bus.consume(NAME, group, start=start) as events:
        async for _ in events:
            if arrivals.one():
                break
    return arrivals.done()


@asynccontextmanager
async def _open(side: str, effort: Effort) -> AsyncIterator[Kept]:
    """A bus of a kind, with nothing in it."""
    if side == "sqlite":
        with TemporaryDirectory(prefix="parley-bus-", dir=effort.directory) as directory:
            async with open_bus(f"sqlite:///{directory}/bus.db?{_UNBOUND}") as bus:
                yield Kept(bus, Path(directory), None, effort.events)
        return
    with RedisServer(appendfsync=effort.appendfsync) as server:
        async with open_bus(f"{server.url}?{_UNBOUND}") as bus:
            yield Kept(bus, server.directory, server, effort.events)


def line(row: Row) -> str:
    """A row as text."""
    text = f"{row['side']:7} {row['stored']:>11,} stored (filled in {row['filled_in']:.1f} s): "
    text += f"{row['memory']:,.0f} B memory, {row['disk']:,.0f} B disk for each"
    for name in WORKS:
        text += f"; {name} {row[f'{name}_us']:.1f} us ({row[f'{name}_ratio']:.2f})"
        text += f" {row[f'{name}_speed']:,}/s"
    return text


def main() -> None:
    """Measure what was asked for."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.bus.stored", description=__doc__)
    options.add_argument("sides", nargs="*", metavar="SIDE", help=", ".join(SIDES))
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    options.add_argument("--seconds", type=float, default=1.0, help="to publish for")
    options.add_argument("--events", type=int, default=10_000, help="to consume")
    options.add_argument("--quiet", type=float, default=2.0, help="seconds to wait for an idle one")
    options.add_argument("--appendfsync", choices=APPENDFSYNC, default=APPENDFSYNC[0])
    options.add_argument("--directory", type=Path, help="where SQLite's file is; a temporary one")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_argument("--save", action="store_true", help="store it for the page")
    given = options.parse_args()
    if unknown := set(given.sides) - set(SIDES):
        options.error(f"no such side: {', '.join(sorted(unknown))}")
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    effort = Effort(given.seconds, given.events, given.quiet, given.appendfsync, given.directory)
    show(given.sides or SIDES, sorted(given.sizes), effort, as_json=given.json, save=given.save)


def show(
    sides: Iterable[str], sizes: list[int], effort: Effort, *, as_json: bool, save: bool
) -> None:
    """Measure sides, print what was found, and store it if asked to."""
    rows = []
    for side in sides:
        work = partial(measure, side, sizes, effort, as_json=as_json)
        rows += anyio.run(work, backend_options={"use_uvloop": True})
    if save:
        names = {row["side"] for row in rows}
        kept = [row for row in store.load("bus-stored") if row["side"] not in names]
        store.save("bus-stored", kept + rows)


if __name__ == "__main__":
    main()
