"""What grows with the number of something else shows in how many functions are called."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from types import FrameType
from typing import Any

import pytest

from benchmarks import growth
from benchmarks.paths import PACKAGES
from benchmarks.process import most_connections
from parley import Call, Stream
from tests.node.network import meeting

MANY = 40
TOPICS = 1_000
# What the clock adds to some operations and not to others: seals, timers.
BY_THE_CLOCK = 20


async def counted(operate: Callable[[], Awaitable[object]], count: int = 20) -> float:
    """Return the median of the function calls of our packages for one operation, in all nodes of
    this process together."""
    called = 0
    found = []

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal called
        if event == "call":
            called += frame.f_globals["__name__"].partition(".")[0] in PACKAGES

    await operate()
    for _ in range(count):
        called = 0
        sys.setprofile(note)
        try:
            await operate()
        finally:
            sys.setprofile(None)
        found.append(called)
    return median(found)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_has_much_pays_for_what_is_used_alone(anyio_backend: str) -> None:
    """A call, and a note to one subscriber: alone, and with many connections,
    topics, subscriptions and streams."""
    async with meeting() as met, AsyncExitStack() as more:
        topic = met.server.topic("notes")
        met.server.on_call("echo")(_echo)
        met.server.on_stream("idle")(_wait)
        notes = await more.enter_async_context(met.peer.subscribe("notes"))

        async def call() -> None:
            await met.peer.call("echo", b"x")

        async def publish() -> None:
            await topic.publish(b"x")
            await anext(notes)

        alone = [await counted(one) for one in (call, publish)]
        for number in range(TOPICS):
            met.server.topic(f"t{number}")
        address = await met.server.listen("tcp://127.0.0.1:0")
        for number in range(MANY):
            await met.client.connect(address)
            await more.enter_async_context(met.peer.subscribe(f"t{number}"))
            stream = await more.enter_async_context(met.peer.open_stream("idle"))
            await stream.send(b"x")
        among_many = [await counted(one) for one in (call, publish)]
        for before, after in zip(alone, among_many, strict=True):
            assert after < before + BY_THE_CLOCK


async def _echo(call: Call) -> Any:
    return call.data


async def _wait(stream: Stream) -> None:
    async for _ in stream:
        pass


def test_sweeps_go_as_far_as_a_process_may(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_connections() > 100
    asked = []

    def measure(side: str, task: Any, **_: Any) -> Any:
        asked.append(task.count)
        raise StopIteration

    monkeypatch.setattr(growth, "most_connections", lambda: 0)
    monkeypatch.setattr(growth, "measure", measure)
    assert list(growth.grow("accepting", 1.0)) == []
    assert not asked


def test_lines_of_both_kinds() -> None:
    place = {"growth": "g", "at": 1000, "unit": "connections", "side": "ours"}
    assert "2,000 bytes" in growth.line({**place, "bytes": 2000})
    row = {**place, "cpu_us": 1.5, "value": None, "others": 0.0, "lost": 0.0}
    assert "1.50 us" in growth.line(row)
    assert "7/s" in growth.line({**row, "value": 7.0})
