"""The program of the server and the client process: `python -m benchmarks.child ORDER`.

It writes JSON lines to standard output, reads commands as JSON lines from standard input, and exits
when its input ends.
"""

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from time import perf_counter
from typing import Any, Final, TypeAlias

import anyio

from benchmarks.sides import Client, Connection, Pipelined, Side, StreamConnection
from benchmarks.task import Order, SideName, Task, Work
from parley._node.transport.backend import keep_freed_memory

WARM_UP = 20
IDLE_BEFORE = 150
# Seconds that the last notes may take, and without any note until the rest is lost.
LAST_NOTES = 12.0
SILENCE = 1.0

Line: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Measure: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]


async def calls(client: Client, task: Task, line: Line) -> Measure:
    """`count` calls in flight over all connections."""
    opened = [await client.open() for _ in range(task.connections)]
    return await _calls(opened, task)


async def streams(client: Client, task: Task, line: Line) -> Measure:
    """64 events in flight that ask for one each, over `count` streams of one connection."""
    connection = await client.open()
    if not isinstance(connection, StreamConnection):
        raise TypeError("this side has no streams")
    return await _calls(connection.open_streams(task.connections), task)


async def _calls(opened: list[Connection], task: Task) -> Measure:
    payload = task.payload
    for connection in opened if len(opened) > 1 else opened * WARM_UP:
        if await connection.call(payload) != payload:
            raise ValueError("an answer that is not what was sent")

    async def measure() -> dict[str, Any]:
        done = 0
        start = perf_counter()
        end = start + task.seconds

        async def worker(mine: list[Connection]) -> None:
            nonlocal done
            while perf_counter() < end:
                for connection in mine:
                    await connection.call(payload)
                    done += 1

        if task.count == 1 and len(opened) == 1:
            call = opened[0].call
            while perf_counter() < end:
                await call(payload)
                done += 1
        elif isinstance(opened[0], Pipelined):
            done = await opened[0].pipeline(payload, task.count, end)
        else:
            async with anyio.create_task_group() as workers:
                for index in range(task.count):
                    mine = opened[index :: task.count] or [opened[index % len(opened)]]
                    workers.start_soon(worker, mine)
        return {"operations": done, "value": done / (perf_counter() - start)}

    return measure


async def notes(client: Client, task: Task, line: Line) -> Measure:
    """Count deliveries from the first to the last while the server publishes."""
    count = 0
    first = last = 0.0

    def received(more: int) -> None:
        nonlocal count, first, last
        last = perf_counter()
        if not count:
            first = last
        count += more

    await client.subscribe(task.count, received)
    await anyio.sleep(min(1.5, task.seconds))  # a connection rests after a second

    async def measure() -> dict[str, Any]:
        published = (await line())["sent"]
        wanted = published * task.count
        stop = perf_counter() + LAST_NOTES
        seen, since = -1, perf_counter()
        while count < wanted and perf_counter() < stop:
            await anyio.sleep(0.05)
            if count != seen:
                seen, since = count, perf_counter()
            elif perf_counter() - since > SILENCE:
                break
        lost = 1 - count / wanted if wanted else 0.0
        return {"operations": count, "value": count / (last - first or 1.0), "lost": lost}

    return measure


async def bulk(client: Client, task: Task, line: Line) -> Measure:
    """Megabytes (10^6) a second in pieces of `size` bytes, until the other side has them."""
    connection = await client.open()
    chunk = task.payload

    async def measure() -> dict[str, Any]:
        pieces = 0
        start = perf_counter()
        end = start + task.seconds
        while perf_counter() < end:
            await connection.send(chunk)
            pieces += 1
        got = await connection.sent()
        if got != pieces * task.size:
            raise RuntimeError(f"sent {pieces * task.size} bytes, {got} arrived")
        return {"operations": pieces, "value": got / (perf_counter() - start) / 1e6}

    return measure


async def handshakes(client: Client, task: Task, line: Line) -> Measure:
    """Dial, handshake, one call, close: one after another."""

    async def handshake() -> None:
        connection = await client.open()
        await connection.call(b"x")
        await connection.aclose()

    await handshake()

    async def measure() -> dict[str, Any]:
        done = 0
        start = perf_counter()
        end = start + task.seconds
        while perf_counter() < end:
            await handshake()
            done += 1
        return {"operations": done, "value": done / (perf_counter() - start)}

    return measure


async def idle(client: Client, task: Task, line: Line) -> Measure:
    """`count` connections that made one call each; the server's memory is looked at then.

    Others are open before, so that what a server allocates once isn't part of the result.
    """
    kept: list[Connection] = []

    async def more(count: int) -> None:
        for _ in range(count):
            connection = await client.open()
            await connection.call(b"x")
            kept.append(connection)
        await anyio.sleep(min(1.5, task.seconds))  # a connection rests after a second

    await more(IDLE_BEFORE)

    async def measure() -> dict[str, Any]:
        await more(task.count)
        return {"operations": task.count}

    return measure


WORKS: dict[Work, Callable[[Client, Task, Line], Awaitable[Measure]]] = {
    "calls": calls,
    "notes": notes,
    "bulk": bulk,
    "handshakes": handshakes,
    "idle": idle,
    "streams": streams,
}


SIDES: Final[dict[SideName, tuple[str, str]]] = {
    "ours": ("benchmarks.ours", "Ours"),
    "tunnelled": ("benchmarks.hop", "Tunnelled"),
    "hop": ("benchmarks.hop", "Hop"),
    "baseline": ("benchmarks.baseline", "Baseline"),
    "zeromq": ("benchmarks.peers.zeromq_side", "ZeroMQ"),
    "zeromq-asyncio": ("benchmarks.peers.zeromq_side", "ZeroMQAsyncio"),
    "zenoh": ("benchmarks.peers.zenoh_side", "Zenoh"),
    "nats": ("benchmarks.peers.nats_side", "NATS"),
    "grpc": ("benchmarks.peers.grpc_side", "GRPC"),
    "websockets": ("benchmarks.peers.websockets_side", "WebSockets"),
}


def side_of(name: SideName) -> Side:
    """Import and return one side. The process doesn't import the others."""
    module, made = SIDES[name]
    side: Side = getattr(import_module(module), made)()
    return side


def say(line: dict[str, Any]) -> None:
    """To the parent process."""
    print(json.dumps(line), flush=True)


async def hear() -> dict[str, Any]:
    """Return the parent's next line. If the parent is gone, the process exits immediately, because
    its state is no longer needed.
    """
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        os._exit(0)
    heard: dict[str, Any] = json.loads(line)
    return heard


async def serve(order: Order) -> None:
    """Report the server's address, then publish on each command of the parent."""
    async with side_of(order.side).serve(order.task) as (info, publish):
        say(info)
        while True:
            asked = await hear()
            say({"sent": await publish(asked["publish"])})


async def work(order: Order, info: dict[str, Any]) -> None:
    """Prepare, wait for the parent's line, measure."""
    async with side_of(order.side).client(order.task, info) as client:
        measure = await WORKS[order.task.work](client, order.task, hear)
        say({"ready": True})
        await hear()
        say(await measure())
        await hear()


def main(text: str) -> None:
    """Run an order, in a process that is set up as by `parley serve`."""
    keep_freed_memory()
    order = Order.from_text(text)
    logging.basicConfig(level=logging.ERROR)  # how connections end is of no interest here
    if order.task.one_core and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    backend = "trio" if order.backend == "trio" else "asyncio"
    options = {"use_uvloop": order.backend == "uvloop"} if backend == "asyncio" else {}
    if order.info is None:
        anyio.run(serve, order, backend=backend, backend_options=options)
    else:
        anyio.run(work, order, order.info, backend=backend, backend_options=options)


if __name__ == "__main__":
    main(sys.argv[1])
