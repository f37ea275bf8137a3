"""Lightbus at work, in an environment of its own: Python 3.9, lightbus 1.1.2, aioredis 1.3.1.

It is started as a script by `lightbus_side.py`, imports nothing of this project, and has
Lightbus's default settings. It is asked by lines of JSON on standard input, and answers each with
one on standard output: how many events took how many seconds, or what each took.
"""

import asyncio
import json
import logging
import os
import sys
from time import perf_counter
from typing import Any
from uuid import uuid4

import lightbus
from lightbus.utilities.features import Feature

API = "bench"
LISTENER = "group"
# Seconds before each event of which the latency is measured, as `sides.py` has it.
PAUSE = 0.005
# Seconds after which consuming counts as failed.
PATIENCE = 60.0


def new_bus(url: str) -> Any:
    """A bus as a process of one service would have it, with one API and its one event."""
    redis = {"redis": {"url": url}}
    transports = ("rpc_transport", "result_transport", "event_transport")
    config = {
        "service_name": "benchmark",
        "process_name": f"process-{uuid4().hex}",
        "bus": {"schema": {"transport": redis}},
        "apis": {"default": dict.fromkeys(transports, redis)},
    }
    event = lightbus.Event(parameters=[lightbus.Parameter("text", str)])
    meta = type("Meta", (), {"name": API})
    bus = lightbus.create(config, features=[Feature.EVENTS])
    bus.client.register_api(type("BenchApi", (lightbus.Api,), {"measured": event, "Meta": meta})())
    return bus


class Work:
    """As many buses as there are consumers; the first one publishes."""

    def __init__(self, url: str, count: int) -> None:
        self._buses = [new_bus(url) for _ in range(count)]
        self._arrived = asyncio.Event()
        self._seen = 0
        self._first = 0.0
        self._wanted = 1

    async def publish(self, publishers: int, seconds: float, text: str) -> list[float]:
        """Each publisher has one event on its way."""
        await self._buses[0].client.start_worker()
        await self._fire(text)
        began = perf_counter()
        tasks = (self._publish_until(began + seconds, text) for _ in range(publishers))
        count = sum(await asyncio.gather(*tasks))
        return [count, perf_counter() - began]

    async def consume(self, count: int, text: str) -> list[float]:
        """From the first event that is handed out to the last."""
        self._wanted = count
        self._listen()
        for _ in range(count):
            await self._fire(text)
        for bus in self._buses:
            await bus.client.start_worker()
        await asyncio.wait_for(self._arrived.wait(), PATIENCE)
        return [self._seen - 1, perf_counter() - self._first]

    async def latencies(self, count: int, text: str) -> list[float]:
        """From the call that publishes until the listener is called, one event at a time."""
        found = []
        self._listen()
        await self._buses[0].client.start_worker()
        for number in range(count + 1):
            await asyncio.sleep(PAUSE)
            self._arrived.clear()
            self._seen = 0
            began = perf_counter()
            await self._fire(text)
            await asyncio.wait_for(self._arrived.wait(), PATIENCE)
            if number:
                found.append(self._first - began)
        return found

    async def aclose(self) -> None:
        """End the workers that began, and the buses."""
        for bus in self._buses:
            await bus.client.stop_worker()
            await bus.client.close_async()

    def _listen(self) -> None:
        for bus in self._buses:
            bus.bench.measured.listen(
                self._receive, listener_name=LISTENER, bus_options={"since": "0"}
            )

    async def _receive(self, event: Any, text: str) -> None:
        if not self._seen:
            self._first = perf_counter()
        self._seen += 1
        if self._seen == self._wanted:
            self._arrived.set()

    async def _fire(self, text: str) -> None:
        await self._buses[0].bench.measured.fire_async(text=text)

    async def _publish_until(self, end: float, text: str) -> int:
        count = 0
        while perf_counter() < end:
            await self._fire(text)
            count += 1
        return count


async def answer(url: str, order: dict[str, Any]) -> list[float]:
    """What an order found."""
    work = Work(url, order["consumers"])
    try:
        if order["what"] == "publish":
            return await work.publish(order["publishers"], order["seconds"], order["text"])
        if order["what"] == "consume":
            return await work.consume(order["count"], order["text"])
        return await work.latencies(order["count"], order["text"])
    finally:
        await work.aclose()


def main() -> None:
    """Answer orders until there are no more."""
    url = sys.argv[1]
    logging.disable(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # What Lightbus prints when it begins is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps({"pid": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        found = loop.run_until_complete(answer(url, json.loads(line)))
        print(json.dumps({"found": found}), file=answers, flush=True)


if __name__ == "__main__":
    main()
