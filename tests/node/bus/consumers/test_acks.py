"""Acknowledgements are recorded together, soon, and with retries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from parley._node.backoff import Backoff
from parley._node.bus.consumers import acks as ledger_module
from parley._node.bus.consumers.acks import MOST_AT_ONCE, AckBuffer
from parley._node.bus.consumers.options import ConsumerContext, ConsumerOptions
from parley._node.bus.errors import (
    BusClosedError,
    BusDamagedError,
    BusError,
    BusUnavailableError,
    as_bus_error,
)
from parley._node.bus.model import Counters
from parley._node.bus.store_retry import LINES, StoreRetry
from parley._node.errors import ConfigError
from tests.node.network import eventually, started, task_scope

pytestmark = pytest.mark.anyio

TERMS = ConsumerOptions("auth.user", "g", 100, 60.0, 5, "0-0")
QUICK = Backoff(first=0.001, longest=0.002)


class Acks:
    """A store with the one method that an AckBuffer calls."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.errors: list[Exception] = []
        self.gate = anyio.Event()
        self.gate.set()

    async def ack(self, stream: str, group: str, ids: list[str]) -> int:
        self.batches.append(list(ids))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return len(ids)


@asynccontextmanager
async def a_ledger() -> AsyncIterator[tuple[AckBuffer, Acks, list[int]]]:
    store: Any = Acks()
    recorded: list[int] = []
    async with task_scope() as loop:
        context = ConsumerContext(store, loop, TERMS, "c", Counters())
        buffer = AckBuffer(context, StoreRetry(loop, "a test", QUICK), recorded.append)
        yield buffer, store, recorded
        await buffer.end()


async def test_acknowledgements_are_recorded_together_and_soon(anyio_backend: str) -> None:
    async with a_ledger() as (buffer, store, recorded):
        for number in range(5):
            buffer.add(str(number))
        assert store.batches == []
        await eventually(lambda: recorded == [5])  # By the timer.
        assert store.batches == [["0", "1", "2", "3", "4"]]
        for number in range(MOST_AT_ONCE + 1):
            buffer.add(str(number))
        await buffer.wait_for_space(0)
        assert recorded == [5, MOST_AT_ONCE, 1]
        assert len(buffer) == 0


async def test_wait_for_space(anyio_backend: str) -> None:
    async with a_ledger() as (buffer, store, _), anyio.create_task_group() as tasks:
        store.gate = anyio.Event()
        for number in range(3):
            buffer.add(str(number))
        await buffer.wait_for_space(3)
        waiting = await started(tasks, lambda: buffer.wait_for_space(2))
        assert not waiting
        store.gate.set()
        await eventually(lambda: waiting == [None])


async def test_recording_is_retried(anyio_backend: str) -> None:
    async with a_ledger() as (buffer, store, recorded):
        store.errors = [BusUnavailableError("gone"), BusUnavailableError("gone")]
        buffer.add("1")
        buffer.flush()
        await eventually(lambda: recorded == [1])
        assert store.batches == [["1"]] * 3
        store.errors = [BusDamagedError("torn")]
        buffer.add("2")
        with pytest.raises(BusDamagedError):
            await buffer.wait_for_space(0)
        assert (len(buffer), buffer.error is not None) == (1, True)
        buffer.flush()  # There are no further attempts.
        assert len(store.batches) == 4


async def test_nothing_is_recorded_after_the_end(anyio_backend: str) -> None:
    async with a_ledger() as (buffer, store, _):
        buffer.add("1")
        await buffer.end()
        await anyio.sleep(2 * ledger_module.GATHER)
        assert store.batches == []


async def test_dead_letter_log_lines_are_rate_limited(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with task_scope() as loop:
        retry = StoreRetry(loop, "a test", QUICK)
        for _ in range(LINES + 5):
            await retry.wait(BusUnavailableError("line\nbreak"))
        assert caplog.text.count("a test: line\\nbreak") == LINES
        assert retry.failures == LINES + 5


def test_errors_that_end_a_consumer(caplog: pytest.LogCaptureFixture) -> None:
    torn = BusDamagedError("torn")
    assert as_bus_error(torn) is torn
    assert str(as_bus_error(ConfigError("wrong"))) == "wrong"
    assert not caplog.records
    mistake = as_bus_error(KeyError("x"))
    assert type(mistake) is BusError
    assert isinstance(mistake.__cause__, KeyError)
    assert caplog.records


async def test_end_of_the_loop_wakes_waiting_callers(anyio_backend: str) -> None:
    store: Any = Acks()
    store.gate = anyio.Event()
    async with task_scope() as loop, anyio.create_task_group() as tasks:
        context = ConsumerContext(store, loop, TERMS, "c", Counters())
        buffer = AckBuffer(context, StoreRetry(loop, "a test", QUICK), lambda count: None)
        buffer.add("1-0")
        outcome = await started(tasks, partial(buffer.wait_for_space, 0))
        await eventually(lambda: store.batches == [["1-0"]])
        await loop.aclose()  # As a node does with its tasks.
        with anyio.fail_after(1):
            await eventually(lambda: bool(outcome))
    assert isinstance(outcome[0], BusClosedError)
