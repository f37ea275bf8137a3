"""The program of the server and the client process: `python -m benchmarks.child ORDER`.

It speaks in lines of JSON on standard output, is told what to do in lines of JSON on
standard input, and ends when that ends.
"""

import json
import logging
import os
import sys
from importlib import import_module
from typing import Any, Final

import anyio

from benchmarks.clients import WORKS
from benchmarks.sides import Side
from benchmarks.task import Order, SideName
from parley._node.transport.backend import keep_freed_memory

SIDES: Final[dict[SideName, tuple[str, str]]] = {
    "ours": ("benchmarks.ours", "Ours"),
    "baseline": ("benchmarks.baseline", "Baseline"),
    "zeromq": ("benchmarks.peers.zeromq_side", "ZeroMQ"),
    "zeromq-asyncio": ("benchmarks.peers.zeromq_asyncio_side", "ZeroMQAsyncio"),
    "zenoh": ("benchmarks.peers.zenoh_side", "Zenoh"),
    "nats": ("benchmarks.peers.nats_side", "NATS"),
    "grpc": ("benchmarks.peers.grpc_side", "GRPC"),
    "websockets": ("benchmarks.peers.websockets_side", "WebSockets"),
}


def side_of(name: SideName) -> Side:
    """A side. Only this one is imported: a process holds and loads nothing of the others."""
    module, made = SIDES[name]
    side: Side = getattr(import_module(module), made)()
    return side


def say(line: dict[str, Any]) -> None:
    """To the parent process."""
    print(json.dumps(line), flush=True)


async def hear() -> dict[str, Any]:
    """The parent's next line; without one the process ends at once: what it still
    holds is of no use to anybody."""
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        os._exit(0)
    heard: dict[str, Any] = json.loads(line)
    return heard


async def serve(order: Order) -> None:
    """Report where the server is, then publish whenever the parent says so."""
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
