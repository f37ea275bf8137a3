"""Measures the bus: every side of every case in each round.

Sides of one case follow each other within a round, each with an empty store; what a side does
not do is left out, and so is Lightbus where it cannot run, with the reason.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from benchmarks.bus.cases import CASES, LIGHTBUS, SIDES, BusCase, BusSide
from benchmarks.bus.lightbus_side import NoLightbusError, running_lightbus
from benchmarks.bus.sides import Done, NoWorkError, Place, Side
from benchmarks.cpu import Meter, wait_until_quiet
from benchmarks.task import Backend
from tests.redis_server import RedisServer, redis_program

# What redis-server may do with its append-only file.
APPENDFSYNC: Final = ("everysec", "always", "no")
_MICRO: Final = 1e6


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to publish, how many events to consume, how many latencies to take (2 or more), how
    often; `quiet` is how many seconds to wait until the machine is idle."""

    seconds: float = 1.0
    events: int = 20_000
    latencies: int = 200
    rounds: int = 3
    quiet: float = 2.0
    backend: Backend = "uvloop"
    appendfsync: str = "everysec"
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One side in one round: events a second, or microseconds with their 99th percentile.
    `others` is how many cores all other processes used."""

    value: float
    others: float
    p99: float = 0.0


@dataclass
class Findings:
    """All rounds by case and side, and why something was left out."""

    rounds: dict[str, dict[str, list[Found]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def run(
    cases: list[str], sides: list[str], effort: Effort, seen: Callable[[str], None]
) -> Findings:
    """Measure them.

    Raises:
        ChildError: a process failed.
    """
    findings = Findings({case: {} for case in cases})
    with ExitStack() as stack:
        server = None
        if any(SIDES[name].on_redis for name in sides):
            if redis_program() is None:
                findings.left_out["redis"] = "there is no redis-server"
                sides = [name for name in sides if not SIDES[name].on_redis]
            else:
                server = stack.enter_context(RedisServer(appendfsync=effort.appendfsync))
        opened: dict[str, Side] = {}
        if server is not None and LIGHTBUS in sides:
            try:
                opened[LIGHTBUS] = stack.enter_context(running_lightbus(server.url, server.pid))
            except NoLightbusError as error:
                findings.left_out[LIGHTBUS] = str(error)
        sides = [name for name in sides if SIDES[name].opening or name in opened]
        for _ in range(effort.rounds):
            for case in cases:
                for name in sides:
                    if case in SIDES[name].cases:
                        seen(f"{case} {name}")
                        found = _measure(CASES[case], SIDES[name], opened.get(name), server, effort)
                        findings.rounds[case].setdefault(name, []).append(found)
    return findings


def _measure(
    case: BusCase, how: BusSide, opened: Side | None, server: RedisServer | None, effort: Effort
) -> Found:
    with TemporaryDirectory(prefix="parley-bus-", dir=effort.directory) as directory:
        if server is not None:
            server.command("FLUSHALL")
        place = Place(Path(directory), server)
        backend = "trio" if effort.backend == "trio" else "asyncio"
        options = {"use_uvloop": effort.backend == "uvloop"} if backend == "asyncio" else {}
        return anyio.run(
            _once, case, how, opened, place, effort, backend=backend, backend_options=options
        )


async def _once(
    case: BusCase, how: BusSide, opened: Side | None, place: Place, effort: Effort
) -> Found:
    async with _open(how, opened, place) as side:
        wait_until_quiet(*side.pids, limit=effort.quiet)
        meter = Meter(*side.pids)
        if case.work == "latency":
            taken = await side.latencies(effort.latencies)
            value, p99 = median(taken) * _MICRO, quantiles(taken, n=100)[98] * _MICRO
        else:
            done = await _work(side, case, effort, max(2, effort.events // how.fewer))
            value, p99 = done.count / done.seconds, 0.0
        _, others = meter.read()
    return Found(value, others, p99)


async def _work(side: Side, case: BusCase, effort: Effort, events: int) -> Done:
    match case.work:
        case "publish":
            return await side.publish(case.count, effort.seconds)
        case "batches":
            return await side.publish_batches(case.count, effort.seconds)
        case "consume":
            return await side.consume(case.count, events)
        case _:
            return await side.handle(case.count, events)


@asynccontextmanager
async def _open(how: BusSide, opened: Side | None, place: Place) -> AsyncIterator[Side]:
    if opened is not None:
        yield opened
    elif how.opening is not None:
        async with how.opening(place) as side:
            yield side
    else:
        raise NoWorkError
