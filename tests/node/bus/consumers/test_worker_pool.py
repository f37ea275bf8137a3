"""Handlers: failures that are retried, and the end of a handler."""

import asyncio
import logging
from typing import Any

import anyio
import pytest

from parley._node.backoff import Backoff
from parley._node.bus.errors import (
    BusClosedError,
    BusDamagedError,
    BusFullError,
    BusUnavailableError,
)
from parley._node.bus.event import BusEvent
from parley._node.errors import ConfigError, ParleyError
from tests.node.bus.buses import GROUP, NAME, a_bus, attempts, publish
from tests.node.network import eventually

pytestmark = pytest.mark.anyio

SOON: dict[str, Any] = {"retry_delay": 0.01, "max_retry_delay": 0.02}


async def test_failing_handler_continues(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "parley.bus")
    async with a_bus() as (bus, _):
        got: list[tuple[int, int]] = []

        @bus.handler(NAME, GROUP, max_attempts=3, **SOON)
        async def handle(event: BusEvent) -> None:
            got.append((event.data["n"], event.attempt))
            if event.data["n"] == 1:
                raise ValueError("bad")
            if event.data["n"] == 2 and event.attempt == 1:
                await event.nack(0.01, "not now")
                raise ValueError("said already")

        await publish(bus, 4)
        await eventually(lambda: bus.counters.dead_lettered == 1)
        await eventually(lambda: bus.counters.acknowledged == 3)
        assert got[:4] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        assert sorted(got[4:]) == [(1, 2), (1, 3), (2, 2)]
        assert (bus.counters.failed, bus.counters.retried) == (4, 3)
        (letter,) = await bus.dead_letters(NAME)
        assert [one.error for one in letter.history] == ["ValueError: bad"] * 3


async def test_concurrency(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        running, most = 0, 0

        @bus.handler(NAME, GROUP, concurrency=3)
        async def handle(event: BusEvent) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.sleep(0.001)
            running -= 1

        await publish(bus, 30)
        await eventually(lambda: bus.counters.acknowledged == 30)
        assert most == 3


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"]
)  # Trio does not allow code to raise its own cancellation.
async def test_cancellation_raised_by_a_handler_is_a_failure(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        got = []

        @bus.handler(NAME, GROUP, **SOON)
        async def handle(event: BusEvent) -> None:
            got.append(event.attempt)
            if event.attempt == 1:
                raise asyncio.CancelledError

        await publish(bus, 1)
        await eventually(lambda: bus.counters.acknowledged == 1)
        assert got == [1, 2]


async def test_draining(anyio_backend: str) -> None:
    """Running handlers may finish until the timeout; unstarted events are released."""
    async with a_bus() as (bus, store):
        begun = anyio.Event()
        finish = anyio.Event()
        got = []

        @bus.handler(NAME, GROUP)
        async def handle(event: BusEvent) -> None:
            begun.set()
            await finish.wait()
            got.append(event.data["n"])

        await publish(bus, 3)
        await begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.drain, 5.0)
            await eventually(lambda: bool(store.asked("release")))
            finish.set()
        assert got == [0]
        assert bus.counters.acknowledged == 1
        assert await attempts(bus) == [(1, 1), (2, 1)]


async def test_draining_ends(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley._node.bus.consumers.worker_pool.CANCEL_PATIENCE", 0.05)
    async with a_bus() as (bus, store):
        begun: list[int] = []
        ended = anyio.Event()

        @bus.handler(NAME, GROUP, concurrency=2)
        async def handle(event: BusEvent) -> None:
            begun.append(event.data["n"])
            if event.data["n"]:
                with anyio.CancelScope(shield=True):  # Ignores its cancellation.
                    await anyio.sleep(0.2)
                ended.set()
            await anyio.sleep_forever()

        await publish(bus, 2)
        await eventually(lambda: len(begun) == 2)
        await bus.drain(0.01)
        assert not ended.is_set()
        assert {arguments[-1] for arguments in store.asked("nack")} == {"cancelled"}
        assert await attempts(bus) == [(0, 2), (1, 2)]


@pytest.mark.slow
async def test_unreliable_store(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = Backoff(first=0.01, longest=0.02)
    monkeypatch.setattr("parley._node.bus.consumers.worker_pool.LONG_PAUSES", pauses)
    async with a_bus() as (bus, store):
        store.faults["join"] = [BusUnavailableError("gone"), ConfigError("wrong"), OSError("?")]
        store.faults["read"] = [BusFullError("full"), BusUnavailableError("gone")]
        store.faults["ack"] = [BusUnavailableError("gone"), BusDamagedError("torn")]
        got = []

        @bus.handler(NAME, GROUP, reclaim_after=0.05, **SOON)
        async def handle(event: BusEvent) -> None:
            got.append(event.attempt)
            if event.attempt == 1:
                store.faults["nack"] = [BusUnavailableError("gone"), BusDamagedError("torn")]
                raise ValueError("bad")

        await publish(bus, 1)
        await eventually(lambda: bus.counters.acknowledged == 1)
        assert got[:2] == [1, 2]
        text = caplog.text
        for part in ("wrong", "full", "torn", "pausing the handler"):
            assert part in text


async def test_closing_while_there_is_no_store(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        store.faults["join"] = [BusUnavailableError("gone")] * 99

        @bus.handler(NAME, GROUP)
        async def handle(event: BusEvent) -> None:
            """Never called."""

        await eventually(lambda: bool(store.asked("join")))


async def test_logged_failures_are_rate_limited(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("parley._node.bus.consumers.worker_pool.FAILURES", 3)
    async with a_bus() as (bus, _):

        @bus.handler(NAME, GROUP, max_attempts=None, retry_delay=9)
        async def handle(event: BusEvent) -> None:
            raise ValueError("bad")

        await publish(bus, 20)
        await eventually(lambda: bus.counters.failed == 20)
        assert caplog.text.count("the handler of") == 3


async def test_invalid_handlers(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):

        async def handle(event: BusEvent) -> None:
            """Never called."""

        class Handler:
            async def __call__(self, event: BusEvent) -> None:
                """Never called."""

        def not_async(event: BusEvent) -> None:
            """Never called."""

        with pytest.raises(ConfigError, match="coroutine"):
            bus.handler(NAME, GROUP)(not_async)  # type: ignore[type-var] # must be rejected
        wrongs: list[dict[str, Any]] = [
            {"concurrency": 0},
            {"retry_delay": 0},
            {"max_retry_delay": 0.5},
        ]
        for wrong in wrongs:
            with pytest.raises(ConfigError):
                bus.handler(NAME, GROUP, **wrong)
        assert bus.handler(NAME, GROUP)(handle) is handle
        with pytest.raises(ParleyError, match="already"):
            bus.handler(NAME, GROUP)(handle)
        bus.handler(NAME, "another")(Handler())
        await bus.aclose()
        with pytest.raises(BusClosedError):
            bus.handler(NAME, "late")(handle)
