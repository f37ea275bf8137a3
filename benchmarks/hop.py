"""One hop beside direct: what a tunnel through a server costs: `python -m benchmarks hop`.

Three nodes in one process over loopback TCP: an origin, a server and a target. Each work is done in
turn over a direct connection and through a tunnel, and counted by the processor time of all that
take part, which is steady on a machine that is shared. Elapsed time would flatter the tunnel: each
of its nodes may have a core of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final

import uvloop

from node.federation.exports import Exports
from node.tunnels.dialling import dial_tunnel
from node.tunnels.outlet import TunnelOutlet
from node.tunnels.switch import IncomingDial
from parley import Call, Identity, Node, Peer, Stream
from parley.protocol import Value

SMALL: Final = bytes(128)
LARGE: Final = bytes(64 * 1024)

# Does something for so many seconds; returns how much of its unit for a second of processor time.
Work = Callable[[Peer, float], Awaitable[float]]


class Passing:
    """The switch of a server that leads to one target, and that of the target."""

    def __init__(self, node: Node, onward: Peer | None) -> None:
        self._node = node
        self._onward = onward

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelOutlet | None]:
        if self._onward is None or self._onward.node_id is None:
            yield None
        else:
            path = self._node.node_id, self._onward.node_id
            yield await dial_tunnel(self._onward, path=path, trace=dial.trace, timeout=5.0)


def _calls(in_flight: int) -> Work:
    async def work(peer: Peer, seconds: float) -> float:
        done = 0
        began, end = time.process_time(), time.perf_counter() + seconds

        async def one() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await peer.call("echo", SMALL)
                done += 1

        await asyncio.gather(*(one() for _ in range(in_flight)))
        return done / (time.process_time() - began)

    return work


async def _bulk(peer: Peer, seconds: float) -> float:
    began, end = time.process_time(), time.perf_counter() + seconds
    async with peer.open_stream("sink") as stream:
        while time.perf_counter() < end:
            await stream.send(LARGE)
        await stream.send_eof()
        size = int(b"".join([piece async for piece in stream]))
    return size / 1e6 / (time.process_time() - began)


WORKS: Final[dict[str, tuple[str, Work]]] = {
    "calls": ("calls, one after another", _calls(1)),
    "calls-64": ("calls, 64 in flight", _calls(64)),
    "bulk-64k": ("MB in pieces of 64 KiB", _bulk),
}


def compare(seconds: float = 1.0, rounds: int = 5) -> list[dict[str, Any]]:
    """A row for each work: how much of it a second of processor time does over a direct connection
    and through one hop (medians), and the median of the rounds' ratios."""
    return uvloop.run(_compare(seconds, rounds))


async def _compare(seconds: float, rounds: int) -> list[dict[str, Any]]:
    rows = []
    async with AsyncExitStack() as stack:
        direct, tunnel = await _connections(stack)
        for name, (what, work) in WORKS.items():
            for peer in (direct, tunnel):
                await work(peer, seconds / 10)
            pairs = [
                [await work(peer, seconds) for peer in (direct, tunnel)] for _ in range(rounds)
            ]
            rows.append(
                {
                    "hop": name,
                    "what": what,
                    "direct": round(median(one for one, _ in pairs), 1),
                    "tunnel": round(median(other for _, other in pairs), 1),
                    "ratio": round(median(other / one for one, other in pairs), 3),
                }
            )
        await tunnel.close()
    return rows


async def _connections(stack: AsyncExitStack) -> tuple[Peer, Peer]:
    origin, server, target = [
        await stack.enter_async_context(Node(Identity.create())) for _ in range(3)
    ]

    @target.on_call("echo")
    async def echo(call: Call) -> Value:
        return call.data

    @target.on_stream("sink")
    async def sink(stream: Stream) -> None:
        size = 0
        async for piece in stream:
            size += len(piece)
        await stream.send(str(size).encode())

    target.handlers.exports.add(Exports(["echo", "sink"]))
    address = await target.listen("tcp://127.0.0.1:0")
    first = (await server.listen("tcp://127.0.0.1:0")).partition("#")[0].partition("://")[2]
    server.serve_tunnels(Passing(server, await server.connect(address)))
    target.serve_tunnels(Passing(target, None))
    via = f"via://{first}/{server.node_id}#{target.node_id}"
    return await origin.connect(address), await origin.connect(via)


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    return (
        f"{row['hop']:18} {row['tunnel']:10,.1f} through one hop, {row['direct']:10,.1f} direct, "
        f"for a second of processor time: {row['ratio']:.3f} ({row['what']})"
    )
