"""How many function calls of our own packages each way takes: `python -m benchmarks paths`.

Counts are steady where times are not. Two nodes in one process speak over loopback TCP, on plain
asyncio, and `sys.setprofile` counts what both of them do for one operation; a coroutine that
resumes after a wait counts once more. The count doesn't depend on the speed of the machine: seals
are due by the number of events alone (`seal_delay_ms` is as long as it can be), and the result is
the median of several blocks, so that a block in which another timer ran doesn't count.
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
WARM_UP: Final = 128
IN_FLIGHT: Final = 64
# Operations of a block: as many as one seal covers.
BLOCK: Final = 64
BLOCKS: Final = 9
WITHOUT_CLOCK: Final = {"PARLEY_NODE_LIMITS_SEAL_DELAY_MS": "60000"}
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


# The counted operations, with their units.
PATHS: Final = {
    "call": ("call, alone", _call),
    "call-64": ("call, of 64 in flight", _calls),
    "note": ("note, alone, to one subscriber", _note),
    "bus-publish": ("publish on the other node's bus", _bus),
    "bulk": ("event of 64 KiB of a stream", _bulk),
    "handshake": ("dial, handshake, one call, close", _handshake),
}


def count_paths(
    blocks: int = BLOCKS, beside: Mapping[str, str] | None = None, names: Iterable[str] = PATHS
) -> list[dict[str, Any]]:
    """Return a row for each path: function calls for one operation, both sides together, in all
    and by package, as the median of so many blocks of operations. With `beside`, the row also has
    the count with these settings (variables)."""
    rows = []
    for name in names:
        row = asyncio.run(_counted(name, blocks, {}))
        if beside:
            row["beside"] = asyncio.run(_counted(name, blocks, beside))["calls"]
        rows.append(row)
    return rows


async def _counted(name: str, blocks: int, settings: Mapping[str, str]) -> dict[str, Any]:
    what, path = PATHS[name]
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called[frame.f_globals["__name__"].removeprefix("parley._").partition(".")[0]] += 1

    config = load_settings(None, {**WITHOUT_CLOCK, **settings}).node
    found: list[Counter[str]] = []
    async with (
        Node(Identity.create(), config=config) as client,
        Node(Identity.create(), config=config) as server,
    ):
        peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
        async with path(peer, server) as run:
            await run(WARM_UP)
            for _ in range(blocks):
                called.clear()
                sys.setprofile(note)
                try:
                    await run(BLOCK)
                finally:
                    sys.setprofile(None)
                found.append(Counter({package: called[package] for package in PACKAGES}))
    middle = sorted(found, key=lambda counts: counts.total())[len(found) // 2]
    return {
        "path": name,
        "what": what,
        "calls": round(middle.total() / BLOCK, 1),
        "packages": {package: round(middle[package] / BLOCK, 1) for package in sorted(PACKAGES)},
    }


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    parts = ", ".join(f"{package} {calls}" for package, calls in row["packages"].items() if calls)
    beside = f" beside {row['beside']:.1f}" if "beside" in row else ""
    return f"{row['path']:18} {row['calls']:6.1f} function calls{beside}: {row['what']} ({parts})"
