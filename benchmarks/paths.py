"""How many function calls of our own packages each way takes: `python -m benchmarks paths`.

Counts are steady where times are not. Two nodes in one process speak over loopback TCP, on plain
asyncio, and `sys.setprofile` counts what both of them do for one operation; a coroutine that goes
on after a wait counts once more. What is due by the clock (seals, timers) is counted as well, so
that a slow machine counts a few more where operations come one at a time.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Final

from parley import Identity, Node, Peer
from parley.settings import load_settings

PACKAGES: Final = frozenset({"lbm", "crypto", "node", "parley"})
WARM_UP: Final = 100
COUNT: Final = 640
IN_FLIGHT: Final = 64
SMALL: Final = bytes(128)
# Data of one event of a stream.
LARGE: Final = bytes(64 * 1024)

# Does an operation so many times.
Run = Callable[[int], Awaitable[None]]


async def _echo(call: Any) -> Any:
    return call.data


@asynccontextmanager
async def _call(peer: Peer, server: Node) -> AsyncIterator[Run]:
    server.on_call("echo")(_echo)

    async def run(count: int) -> None:
        for _ in range(count):
            await peer.call("echo", SMALL)

    yield run


@asynccontextmanager
async def _calls(peer: Peer, server: Node) -> AsyncIterator[Run]:
    async with _call(peer, server) as one_by_one:

        async def run(count: int) -> None:
            share = max(1, count // IN_FLIGHT)
            await asyncio.gather(*(one_by_one(share) for _ in range(IN_FLIGHT)))

        yield run


@asynccontextmanager
async def _note(peer: Peer, server: Node) -> AsyncIterator[Run]:
    topic = server.topic("notes")
    async with peer.subscribe("notes") as notes:

        async def run(count: int) -> None:
            for _ in range(count):
                await topic.publish(SMALL)
                await anext(notes)

        yield run


@asynccontextmanager
async def _bus(peer: Peer, server: Node) -> AsyncIterator[Run]:
    with tempfile.TemporaryDirectory() as directory:
        offered = server.bus(f"sqlite:///{directory}/bus.db", allow=lambda request: True)
        bus = peer.bus()

        async def run(count: int) -> None:
            for _ in range(count):
                await bus.publish("bench.paths", {"value": "x" * len(SMALL)})

        yield run
        await bus.aclose()
        await offered.aclose()


@asynccontextmanager
async def _bulk(peer: Peer, server: Node) -> AsyncIterator[Run]:
    @server.on_stream("sink")
    async def sink(stream: Any) -> None:
        async for _ in stream:
            pass

    async with peer.open_stream("sink") as stream:

        async def run(count: int) -> None:
            for _ in range(count):
                await stream.send(LARGE)

        yield run


@asynccontextmanager
async def _handshake(peer: Peer, server: Node) -> AsyncIterator[Run]:
    async with _call(peer, server), Node(Identity.create(), config=server.config) as client:
        (address,) = server.addresses

        async def run(count: int) -> None:
            for _ in range(count):
                dialled = await client.connect(address)
                await dialled.call("echo", SMALL)
                await dialled.close()

        yield run


# What is counted, with its unit.
PATHS: Final = {
    "call": ("call, alone", _call),
    "call-64": ("call, of 64 in flight", _calls),
    "note": ("note, alone, to one subscriber", _note),
    "bus-publish": ("publish on the other node's bus", _bus),
    "bulk": ("event of 64 KiB of a stream", _bulk),
    "handshake": ("dial, handshake, one call, close", _handshake),
}


def count_paths(
    count: int = COUNT, beside: Mapping[str, str] | None = None, names: Iterable[str] = PATHS
) -> list[dict[str, Any]]:
    """A row for each of these paths: function calls for one operation, both sides together, over
    `count` operations; those by package; and with other settings, if there are any (variables)."""
    rows = []
    for name in names:
        row = asyncio.run(_counted(name, count, {}))
        if beside:
            row["beside"] = asyncio.run(_counted(name, count, beside))["calls"]
        rows.append(row)
    return rows


async def _counted(name: str, count: int, settings: Mapping[str, str]) -> dict[str, Any]:
    what, path = PATHS[name]
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called[frame.f_globals["__name__"].partition(".")[0]] += 1

    config = load_settings(None, settings).node
    async with (
        Node(Identity.create(), config=config) as client,
        Node(Identity.create(), config=config) as server,
    ):
        peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
        async with path(peer, server) as run:
            await run(WARM_UP)
            sys.setprofile(note)
            try:
                await run(count)
            finally:
                sys.setprofile(None)
    by_package = {package: round(called[package] / count, 1) for package in sorted(PACKAGES)}
    each = sum(called[package] for package in PACKAGES) / count
    return {"path": name, "what": what, "calls": round(each, 1), "packages": by_package}


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    parts = ", ".join(f"{package} {calls}" for package, calls in row["packages"].items() if calls)
    beside = f" beside {row['beside']:.1f}" if "beside" in row else ""
    return f"{row['path']:18} {row['calls']:6.1f} function calls{beside}: {row['what']} ({parts})"
