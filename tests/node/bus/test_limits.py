"""The limits of times and names that a bus chooses itself: delays, closing, and consumer names."""

import socket
from typing import cast

import anyio
import pytest

from parley._node.backoff import Backoff
from parley._node.bus import store_retry as retry
from parley._node.bus.bus import MAX_RETRY_DELAY, Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.consumers import acks as acks
from parley._node.bus.consumers import worker_pool as pool
from parley._node.bus.event import BusEvent
from parley._node.bus.store import Store
from tests.node.bus.buses import GROUP, NAME, a_bus, publish
from tests.node.bus.model_store import ModelStore
from tests.node.network import PATIENCE, eventually, task_scope

FOR_LONG = 1_000  # Consecutive failures.


@pytest.mark.parametrize(
    ("pauses", "first", "longest"), [(retry.PAUSES, 0.1, 10.0), (pool.LONG_PAUSES, 5.0, 300.0)]
)
def test_pauses_grow_up_to_a_bound(pauses: Backoff, first: float, longest: float) -> None:
    assert (pauses.delay(1, 1.0), pauses.delay(2, 1.0)) == (first, 2 * first)
    assert pauses.delay(FOR_LONG, 1.0) == longest


@pytest.mark.anyio
async def test_a_handler_that_fails_for_long_is_called_every_five_minutes(
    anyio_backend: str,
) -> None:
    async with a_bus() as (bus, store):

        @bus.handler(NAME, GROUP, max_attempts=None, retry_delay=299.0)
        async def handle(event: BusEvent) -> None:
            raise ValueError("bad")

        await publish(bus, 1)
        await eventually(lambda: bool(store.asked("nack")))
        assert 299.0 / 2 <= store.asked("nack")[0][4] <= 299.0
        assert Backoff(first=299.0, longest=MAX_RETRY_DELAY).delay(FOR_LONG, 1.0) == 300.0


@pytest.mark.anyio
async def test_handler_that_never_ends_does_not_prevent_closing(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.bus.bus.DRAIN_TIMEOUT", 0.01)
    begun = anyio.Event()
    with anyio.fail_after(PATIENCE):
        async with a_bus() as (bus, store):

            @bus.handler(NAME, GROUP)
            async def handle(event: BusEvent) -> None:
                begun.set()
                await anyio.sleep_forever()

            await publish(bus, 1)
            await begun.wait()
    assert [arguments[-1] for arguments in store.asked("nack")] == ["cancelled"]


@pytest.mark.anyio
async def test_long_host_name_is_shortened(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 250)
    config = BusConfig()
    async with (
        task_scope() as backend,
        Bus(cast(Store, ModelStore(config)), config, loop=lambda: backend) as bus,
        bus.consume(NAME, GROUP),
    ):
        (consumer,) = await bus.consumers(NAME, GROUP)
        assert consumer.name.startswith("h" * 64 + "-")


@pytest.mark.anyio
async def test_dead_letter_lines_are_rate_limited(
    anyio_backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "LINES_PER_SECOND", 0.001)
    async with a_bus() as (bus, _):
        bus.schema(NAME, {"properties": {"n": {"minimum": acks.LINES + 5}}}, validate="consume")
        await publish(bus, acks.LINES + 6)
        async with bus.consume(NAME, GROUP) as events:
            await anext(events)
        assert caplog.text.count("became a dead letter") == acks.LINES
        assert bus.counters.dead_lettered == acks.LINES + 5
