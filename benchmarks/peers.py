"""Two processes over loopback TCP: calls, bulk data, handshakes, through the public API."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from lbm.codec import Value
from node import Call, Identity, Node, Peer, Stream

PAYLOAD = bytes(range(128))
IN_FLIGHT = 64


async def serve() -> None:
    """The server process: echoes calls, swallows streams, ends with its standard input."""
    async with Node(Identity.create()) as node:

        @node.on_call("echo")
        async def echo(call: Call) -> Value:
            return call.data

        @node.on_stream("sink")
        async def sink(stream: Stream) -> None:
            size = 0
            async for piece in stream:
                size += len(piece)
            await stream.send(str(size).encode())

        print(json.dumps({"address": await node.listen("tcp://127.0.0.1:0")}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


@asynccontextmanager
async def server(*options: str) -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "--serve", *options]
    async with await anyio.open_process(command, stderr=None) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the server has no pipes")
        ready = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 4096)
        yield str(json.loads(ready)["address"])
        await process.stdin.aclose()
        await process.wait()


async def sequential_calls(address: str, seconds: float) -> float:
    """Calls a second, one after another."""

    async def measure(peer: Peer) -> float:
        count, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            await peer.call("echo", PAYLOAD, timeout=5)
            count += 1
        return count / (perf_counter() - start)

    return await _with_peer(address, measure)


async def parallel_calls(address: str, seconds: float) -> float:
    """Calls a second with 64 in flight."""

    async def measure(peer: Peer) -> float:
        count, start = 0, perf_counter()

        async def worker() -> None:
            nonlocal count
            while perf_counter() - start < seconds:
                await peer.call("echo", PAYLOAD, timeout=5)
                count += 1

        async with anyio.create_task_group() as workers:
            for _ in range(IN_FLIGHT):
                workers.start_soon(worker)
        return count / (perf_counter() - start)

    return await _with_peer(address, measure)


async def bulk(address: str, seconds: float, size: int) -> float:
    """Megabytes (10^6) a second over one byte stream, in pieces of `size` bytes."""
    piece = bytes(size)

    async def measure(peer: Peer) -> float:
        sent, start = 0, perf_counter()
        async with peer.open_stream("sink") as stream:
            while perf_counter() - start < seconds:
                await stream.send(piece)
                sent += size
            await stream.send_eof()
            received = int(b"".join([answer async for answer in stream]))
        assert received == sent
        return sent / (perf_counter() - start) / 1e6

    return await _with_peer(address, measure)


async def handshakes(address: str, seconds: float) -> float:
    """Connections a second: dial, handshake, one call, close."""
    async with Node(Identity.create()) as node:
        count, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            peer = await node.connect(address)
            await peer.call("echo", b"x", timeout=5)
            await peer.close()
            count += 1
        return count / (perf_counter() - start)


async def _with_peer(address: str, measure: Callable[[Peer], Awaitable[float]]) -> float:
    async with Node(Identity.create()) as node:
        peer = await node.connect(address)
        await peer.call("echo", PAYLOAD)
        result = await measure(peer)
        await peer.close()
        return result
