"""The program of the server and the client process: `python -m benchmarks.child ORDER`.

It speaks in lines of JSON on standard output, is told what to do in lines of JSON on
standard input, and ends when that ends.
"""

import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

import anyio

from benchmarks.clients import WORKS, Measure
from benchmarks.sampler import Sampler
from benchmarks.sides import Side
from benchmarks.task import RAW_WORKS, Order, SideName

LAST: Final = 19  # the niceness of a process that only gets what others leave


SIDES: Final[dict[SideName, tuple[str, str]]] = {
    "ours": ("benchmarks.ours", "Ours"),
    "journaled": ("benchmarks.journal", "Journaled"),
    "target": ("benchmarks.tunnelled", "Target"),
    "hop": ("benchmarks.tunnelled", "Hop"),
    "baseline": ("benchmarks.baseline", "Baseline"),
    "events": ("benchmarks.dialects.native", "NativeEvents"),
    "simproto": ("benchmarks.dialects.simproto", "SimProto"),
    "named": ("benchmarks.dialects.named", "Named"),
    "named-typed": ("benchmarks.dialects.named", "TypedNamed"),
    "relay": ("benchmarks.dialects.relay", "RelayServer"),
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
    """Say where; then publish, or say what was sampled, whenever asked to."""
    async with side_of(order.side).serve(order.task) as (info, publish):
        say(info)
        sampler = Sampler(active=order.task.profile)
        with sampler:
            while True:
                asked = await hear()
                if "publish" in asked:
                    say({"sent": await publish(asked["publish"])})
                else:
                    say({"samples": sampler.samples})


async def work(order: Order, info: dict[str, Any]) -> None:
    """Prepare, wait for the word, measure."""
    async with prepared(order, info) as measure:
        say({"ready": True})
        await hear()
        with Sampler(active=order.task.profile) as sampler:
            result = await measure()
        say({**result, "samples": sampler.samples})
        await hear()


@asynccontextmanager
async def prepared(order: Order, info: dict[str, Any]) -> AsyncIterator[Measure]:
    """What an order wants measured, through a client of its side or without one."""
    if order.task.work in RAW_WORKS:
        from benchmarks.dialects.loads import LOADS

        yield LOADS[order.task.work](order.side, order.task, info)
        return
    async with side_of(order.side).client(order.task, info) as client:
        yield await WORKS[order.task.work](client, order.task, hear)


def place(order: Order) -> None:
    """Choose the cores, and who goes first on one that is shared with a hostile client."""
    if order.task.work == "flood" and order.info is not None:
        os.nice(LAST)
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if order.task.one_core:
        os.sched_setaffinity(0, {cores[-1]})
    elif order.task.apart:
        os.sched_setaffinity(0, {cores[0] if order.info is None else cores[-1]})


def main(text: str) -> None:
    """Run an order."""
    order = Order.from_text(text)
    logging.basicConfig(level=logging.ERROR)  # how connections end is of no interest here
    place(order)
    backend = "trio" if order.backend == "trio" else "asyncio"
    options = {"use_uvloop": order.backend == "uvloop"} if backend == "asyncio" else {}
    if order.info is None:
        anyio.run(serve, order, backend=backend, backend_options=options)
    else:
        anyio.run(work, order, order.info, backend=backend, backend_options=options)


if __name__ == "__main__":
    main(sys.argv[1])
