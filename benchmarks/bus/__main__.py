"""`python -m benchmarks.bus [CASE...]`: events per second that a bus publishes or delivers.

Each of one or ten publishers waits for one event before it publishes the next. One consumer
processes and acknowledges stored events, until all acknowledgements are recorded. The sides are the
bus on SQLite, the same bus at another process's node over one TCP connection, the bus on Redis, and
Lightbus on the same redis-server, which only publishes. All sides run in each round with an empty
store. A ratio compares two sides of one round: the bus over TCP with SQLite, the bus on Redis with
Lightbus and, for the consumer, the bus on Redis with SQLite.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, TypeAlias

import anyio

from benchmarks.machine import machine
from benchmarks.process import ChildError, LineProcess, wait_until_quiet
from parley import Identity, Node
from parley.bus import Bus, open_bus
from tests.redis_server import RedisServer, redis_program

PUBLISHERS: Final = {"publish-1": 1, "publish-10": 10}
CONSUME: Final = "consume"
CASES: Final = (*PUBLISHERS, CONSUME)
# The events that the consumer processes for each second of a measurement.
CONSUMED: Final = 10_000
# What each event carries: one field with this text.
TEXT: Final = "x" * 128
LIGHTBUS: Final = ("lightbus==1.1.2", "aioredis==1.3.1", "setuptools<80")

# The sides that a ratio compares, ours first.
RATIOS: Final = {
    "tcp by sqlite": ("tcp", "sqlite"),
    "redis by lightbus": ("redis", "lightbus"),
    "redis by sqlite": ("redis", "sqlite"),
}

# Runs a case for about so many seconds; returns events per second.
Side: TypeAlias = Callable[[str, float], float]


def main() -> None:
    """Run the named cases, or all."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.bus", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quiet", type=float, default=2.0, help="seconds to wait for an idle one")
    options.add_argument("--appendfsync", choices=["everysec", "always", "no"], default="everysec")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    given = options.parse_args()
    if unknown := set(given.cases) - set(CASES):
        options.error(f"no such case: {', '.join(sorted(unknown))}")
    if not given.json:
        print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    with ExitStack() as stack:
        sides, left_out = open_sides(stack, given.appendfsync)
        for name, why in left_out.items():
            row = {"left_out": name, "reason": why}
            print(json.dumps(row) if given.json else f"{name} is left out: {why}")
        for case in given.cases or CASES:
            row = measure(case, sides, given.seconds, given.rounds, given.quiet)
            print(json.dumps(row) if given.json else line(row), flush=True)


def measure(
    case: str, sides: dict[str, Side], seconds: float, rounds: int, quiet: float
) -> dict[str, Any]:
    """Return the median of each side, and the ratios by rounds: median, least and most."""
    names = [name for name in sides if name != "lightbus" or case in PUBLISHERS]
    found: dict[str, list[float]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names[:: -1 if index % 2 else 1]:
            wait_until_quiet(limit=quiet)
            found[name].append(sides[name](case, seconds))
    row: dict[str, Any] = {"case": case, "unit": "events/s"}
    row |= {name: round(median(values), 1) for name, values in found.items()}
    row["ratios"] = {}
    for name, (ours, other) in RATIOS.items():
        # Publishing on Redis is compared with Lightbus, which uses the same server.
        if ours in found and other in found and (name != "redis by sqlite" or case == CONSUME):
            ratios = [a / b for a, b in zip(found[ours], found[other], strict=True)]
            row["ratios"][name] = [round(of(ratios), 2) for of in (median, min, max)]
    return row


def line(row: dict[str, Any]) -> str:
    """Return a row as text."""
    values = [f"{name} {value:,.0f}" for name, value in row.items() if isinstance(value, float)]
    text = f"{row['case']:12} {', '.join(values)} {row['unit']}"
    for name, (middle, least, most) in row["ratios"].items():
        text += f"; {name} {middle:.2f} ({least:.2f} to {most:.2f})"
    return text


def open_sides(stack: ExitStack, appendfsync: str) -> tuple[dict[str, Side], dict[str, str]]:
    """Return the sides that can run on this machine, and why the others cannot."""
    sides: dict[str, Side] = {"sqlite": _run_on_sqlite, "tcp": _run_over_tcp}
    if redis_program() is None:
        return sides, dict.fromkeys(("redis", "lightbus"), "there is no redis-server")
    server = stack.enter_context(RedisServer(appendfsync=appendfsync))

    def run_on_redis(case: str, seconds: float) -> float:
        server.command("FLUSHALL")
        return _run(server.url, case, seconds)

    sides["redis"] = run_on_redis
    try:
        child = stack.enter_context(_lightbus(server.url))
    except ChildError as error:
        return sides, {"lightbus": str(error)}

    def run_on_lightbus(case: str, seconds: float) -> float:
        server.command("FLUSHALL")
        child.say({"publishers": PUBLISHERS[case], "seconds": seconds, "text": TEXT})
        return float(child.hear()["value"])

    sides["lightbus"] = run_on_lightbus
    return sides, {}


def _run_on_sqlite(case: str, seconds: float) -> float:
    with TemporaryDirectory(prefix="parley-bus-") as directory:
        return _run(f"sqlite:///{directory}/bus.db", case, seconds)


def _run(url: str, case: str, seconds: float) -> float:
    async def work() -> float:
        async with open_bus(url) as bus:
            return await _count(bus, case, seconds)

    return anyio.run(work, backend_options={"use_uvloop": True})


def _run_over_tcp(case: str, seconds: float) -> float:
    async def work(address: str) -> float:
        async with Node(Identity.create()) as node:
            peer = await node.connect(address)
            return await _count(peer.bus(), case, seconds)

    with TemporaryDirectory(prefix="parley-bus-") as directory:
        command = [sys.executable, "-m", "benchmarks.bus.node_child", f"{directory}/bus.db"]
        with LineProcess(command) as child:
            address = child.hear()["address"]
            return anyio.run(work, address, backend_options={"use_uvloop": True})


async def _count(bus: Bus, case: str, seconds: float) -> float:
    """Return how many events per second are published or consumed."""
    if case == CONSUME:
        return await _consume(bus, max(1, int(CONSUMED * seconds)))
    return await _publish(bus, PUBLISHERS[case], seconds)


async def _consume(bus: Bus, events: int) -> float:
    data = [{"text": TEXT}] * 1_000
    for start in range(0, events, len(data)):
        await bus.publish_many("bench.measured", data[: events - start], durable=False)
    count = 0
    began = perf_counter()
    async with bus.consume("bench.measured", group="consumers") as consumption:
        async for _ in consumption:
            count += 1
            if count == events:
                break
    return count / (perf_counter() - began)


async def _publish(bus: Bus, publishers: int, seconds: float) -> float:
    count = 0

    async def repeat(end: float) -> None:
        nonlocal count
        while perf_counter() < end:
            await bus.publish("bench.measured", {"text": TEXT})
            count += 1

    await bus.publish("bench.measured", {"text": TEXT})
    began = perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(publishers):
            group.start_soon(repeat, began + seconds)
    return count / (perf_counter() - began)


@contextmanager
def _lightbus(url: str) -> Iterator[LineProcess]:
    """Start Lightbus on the redis-server at `url`.

    Raises:
        ChildError: uv is missing, or Python 3.9 with Lightbus cannot be started.
    """
    if shutil.which("uv") is None:
        raise ChildError("uv is not installed")
    packages = [word for package in LIGHTBUS for word in ("--with", package)]
    python = find_python()
    command = ["uv", "run", "--quiet", "--no-project", "--python", python, *packages, "python"]
    with LineProcess([*command, str(Path(__file__).with_name("lightbus_child.py")), url]) as child:
        try:
            child.hear()
        except ChildError as error:
            raise ChildError(f"Python {python} does not run {LIGHTBUS[0]}") from error
        yield child


def find_python() -> str:
    """Return a Python 3.9 that runs, on the PATH or of pyenv; else the version, for uv to fetch.

    A shim of pyenv on the PATH doesn't run unless the version is selected.
    """
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    paths = [shutil.which("python3.9"), *map(str, root.glob("versions/3.9*/bin/python"))]
    return next((path for path in paths if path is not None and _runs(path)), "3.9")


def _runs(path: str) -> bool:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    main()
