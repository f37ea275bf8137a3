"""What stalled tunnels do to a good one over the same links: `python -m benchmarks isolation`.

An origin and a target in this process, and between them a server in a process of its own, over
loopback TCP. A session through a tunnel makes one call after another: in turn while nothing else
goes on, and beside 255 more tunnels, all that a link may have, which both ends fill until nothing
goes on and neither reads. What the server then holds for them is measured by its memory.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median, quantiles
from typing import Any, Final

import uvloop

from benchmarks.child import hear, say
from benchmarks.hop import SMALL, Passing
from benchmarks.process import LineProcess
from crypto.randomness import random_bytes
from lbm import keys
from lbm.codec import encode
from node.federation.exports import Exports
from node.federation.limits import TUNNELS_OF_LINK
from node.handlers.registry import Entry
from node.protocol.codes import TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL
from node.protocol.federation_types import TRACE_SIZE
from node.protocol.window import TUNNEL_WINDOW
from node.streams.tunnel_stream import TunnelStream
from node.tunnels.dialling import dial_tunnel
from node.tunnels.outlet import TunnelOutlet
from parley import Call, Identity, Node, Peer, Stream
from parley.protocol import Value

STALLED: Final = TUNNELS_OF_LINK - 1
# More than the windows of both links, so that it is held at all of them.
FILL: Final = bytes(3 * TUNNEL_WINDOW)
SETTLED: Final = 0.05  # seconds between two looks at a memory that is to come to rest


class _Ends:
    """The tunnels that are stalled, as the origin and the target have them."""

    def __init__(self, origin: Peer, target: Node) -> None:
        self._origin = origin
        self._target = target
        self._open: list[TunnelOutlet] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the target take tunnels, and read none of them."""
        reserved = self._target.handlers.reserved
        before, reserved[TUNNEL_LABEL] = reserved[TUNNEL_LABEL], Entry(TUNNEL_LABEL, self._take)
        try:
            yield
        finally:
            reserved[TUNNEL_LABEL] = before

    async def _take(self, stream: Stream) -> None:
        assert isinstance(stream, TunnelStream)
        dial = await stream.receive_event()
        await dial.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode({keys.CODE: 0}))
        end, over = TunnelOutlet(stream, ()), asyncio.Event()
        end.on_closed = over.set
        self._fill(end)
        await over.wait()

    def _fill(self, end: TunnelOutlet) -> None:
        """Without a driver, it keeps what comes, and gives no credit back."""
        self._open.append(end)
        end.stream.pass_to(end)
        end.write(FILL)

    async def open(self, count: int) -> None:
        """Open and fill so many."""
        to, trace = [self._target.node_id], random_bytes(TRACE_SIZE)
        with self.taken():
            for _ in range(count):
                self._fill(await dial_tunnel(self._origin, to=to, trace=trace, timeout=10.0))

    def close(self) -> None:
        """End them all."""
        ends, self._open = self._open, []
        for end in ends:
            end.close()


async def _latencies(peer: Peer, seconds: float) -> list[float]:
    """What calls took, in microseconds."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(found) < 2:
        await peer.call("echo", SMALL)
        found.append((time.perf_counter() - began) * 1e6)
    return found


async def _at_rest(between: LineProcess) -> int:
    """The memory of the server, once it grows no more."""
    memory, before = between.memory, 0
    while memory != before:
        await asyncio.sleep(SETTLED)
        memory, before = between.memory, memory
    return memory


def compare(
    seconds: float = 1.0, rounds: int = 5, *, stalled: int = STALLED
) -> list[dict[str, Any]]:
    """A row for the median and the 99th percentile of calls, beside stalled tunnels and without
    (medians of the rounds, and that of their ratios), and one for the memory that the server takes
    for the stalled ones, beside the sum of their windows."""
    return uvloop.run(_compare(seconds, rounds, stalled))


async def _compare(seconds: float, rounds: int, stalled: int) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        target, origin = [
            await stack.enter_async_context(Node(Identity.create())) for _ in range(2)
        ]

        @target.on_call("echo")
        async def echo(call: Call) -> Value:
            return call.data

        target.handlers.exports.add(Exports(["echo"]))
        target.serve_tunnels(Passing(target, None))
        address = await target.listen("tcp://127.0.0.1:0")
        command = sys.executable, "-m", "benchmarks.isolation", address
        between = stack.enter_context(LineProcess(command))
        place = str((await asyncio.to_thread(between.hear))["address"])
        server, node_id = place.removeprefix("tcp://").split("#")
        link = await origin.connect(place)
        good = await origin.connect(f"via://{server}/{node_id}#{target.node_id}")
        ends = _Ends(link, target)
        await _latencies(good, seconds / 2)
        before, grown = await _at_rest(between), 0
        calm, beside = [], []
        for number in range(rounds):
            calm.append(_summary(await _latencies(good, seconds)))
            await ends.open(stalled)
            memory = await _at_rest(between)
            if not number:  # later ones are given what these leave behind
                grown = memory - before
            beside.append(_summary(await _latencies(good, seconds)))
            ends.close()
            await _at_rest(between)
        for peer in (good, link, *target.peers):
            await peer.close()
    windows = stalled * 2 * TUNNEL_WINDOW
    return [
        *(
            {
                "isolation": name,
                "what": f"{name} of a call, us",
                "calm": round(median(one[place] for one in calm), 1),
                "stalled": round(median(one[place] for one in beside), 1),
                "ratio": round(
                    median(b[place] / a[place] for a, b in zip(calm, beside, strict=True)), 3
                ),
            }
            for place, name in enumerate(("median", "p99"))
        ),
        {
            "isolation": "memory",
            "what": "memory of the server between, MB, beside the windows of the tunnels",
            "calm": round(windows / 1e6, 1),
            "stalled": round(grown / 1e6, 1),
            "ratio": round(grown / windows, 3),
        },
    ]


def _summary(found: list[float]) -> tuple[float, float]:
    return median(found), quantiles(found, n=100, method="inclusive")[98]


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    return (
        f"{row['isolation']:18} {row['stalled']:10,.1f} beside stalled tunnels, "
        f"{row['calm']:10,.1f}: {row['ratio']:.3f} ({row['what']})"
    )


async def _between(target: str) -> None:
    """Be the server between, until standard input ends."""
    async with Node(Identity.create()) as node:
        node.serve_tunnels(Passing(node, await node.connect(target)))
        say({"address": await node.listen("tcp://127.0.0.1:0")})
        await hear()


if __name__ == "__main__":
    uvloop.run(_between(sys.argv[1]))
