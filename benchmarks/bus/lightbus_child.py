"""Publish with Lightbus in a separate environment: Python 3.9, lightbus 1.1.2, aioredis 1.3.1.

`benchmarks.bus` starts this script, which doesn't import this project and uses Lightbus's default
settings. It reads orders as JSON lines from standard input and answers each with a line.
"""

import asyncio
import json
import logging
import os
import sys
from time import perf_counter
from typing import Any

import lightbus
from lightbus.utilities.features import Feature

API = "bench"


def new_bus(url: str) -> Any:
    """Return a bus of one service with one API and its one event."""
    redis = {"redis": {"url": url}}
    transports = ("rpc_transport", "result_transport", "event_transport")
    config = {
        "service_name": "benchmark",
        "process_name": "benchmark",
        "bus": {"schema": {"transport": redis}},
        "apis": {"default": dict.fromkeys(transports, redis)},
    }
    event = lightbus.Event(parameters=[lightbus.Parameter("text", str)])
    meta = type("Meta", (), {"name": API})
    bus = lightbus.create(config, features=[Feature.EVENTS])
    bus.client.register_api(type("BenchApi", (lightbus.Api,), {"measured": event, "Meta": meta})())
    return bus


async def publish(url: str, publishers: int, seconds: float, text: str) -> float:
    """Return events per second; each publisher waits for its event before the next."""
    bus = new_bus(url)
    count = 0

    async def repeat(end: float) -> None:
        nonlocal count
        while perf_counter() < end:
            await bus.bench.measured.fire_async(text=text)
            count += 1

    await bus.client.start_worker()
    try:
        await bus.bench.measured.fire_async(text=text)
        began = perf_counter()
        await asyncio.gather(*(repeat(began + seconds) for _ in range(publishers)))
        return count / (perf_counter() - began)
    finally:
        await bus.client.stop_worker()
        await bus.client.close_async()


def main() -> None:
    """Answer orders until standard input ends."""
    url = sys.argv[1]
    logging.disable(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Lightbus prints a banner to standard output.
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps({"pid": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        found = loop.run_until_complete(publish(url, **json.loads(line)))
        print(json.dumps({"value": found}), file=answers, flush=True)


if __name__ == "__main__":
    main()
