"""A node's metrics through OpenTelemetry's API, as its SDK reads them."""

from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from parley._crypto.identity import Identity
from parley._node.metrics import otel
from parley._node.metrics.otel import observed
from parley._node.node import Node
from parley._node.testing import connected_nodes
from tests.node.metrics.test_metrics import FAST, offering

Points = dict[str, dict[tuple[Any, ...], Any]]


def points_of(reader: InMemoryMetricReader) -> Points:
    """Return all data points, by instrument and by the values of their attributes."""
    data = reader.get_metrics_data()
    return {
        metric.name: {
            tuple(point.attributes.values()): point.value  # type: ignore[union-attr]  # no histograms
            for point in metric.data.data_points
        }
        for of_resource in (data.resource_metrics if data else ())
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
    }


async def test_instruments_report_the_nodes_metrics(anyio_backend: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with connected_nodes(None, offering()) as made:
        with observed(made.server, provider, {"node": "shop"}):
            await made.peer.call("shop.order", 1)
            points = points_of(reader)
            assert points["parley.calls_received"]["shop", "shop.order", "accepted"] == 1
            assert points["parley.connections"]["shop", "accepted", "open"] == 1
            assert points["parley.call_received.count"]["shop", "shop.order"] == 1
            assert points["parley.call_received.bucket"]["shop", "shop.order", "+Inf"] == 1
            assert points["parley.call_received.sum"]["shop", "shop.order"] > 0
            await made.peer.call("shop.order", 2)
            points = points_of(reader)
            assert points["parley.calls_received"]["shop", "shop.order", "accepted"] == 2
            # As readers of the SDK do: from another thread.
            points = await anyio.to_thread.run_sync(points_of, reader)
            assert points["parley.calls_received"]["shop", "shop.order", "accepted"] == 2
        assert not made.server.metrics.is_watched
        assert points_of(reader) == {}
    provider.shutdown()


async def test_a_stopped_node_reports_no_metrics_to_other_threads(anyio_backend: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with observed(Node(Identity.create(), config=FAST), provider):
        assert await anyio.to_thread.run_sync(points_of, reader) == {}
    provider.shutdown()


async def test_slow_metrics_are_refreshed_for_each_collection(
    anyio_backend: Any, tmp_path: Path
) -> None:
    """Also for the first collection, because no other reader fetches the data."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Node(Identity.create(), config=FAST) as node:
        bus = node.bus(f"sqlite:///{tmp_path / 'bus.db'}")
        await bus.publish("shop.ordered", {"n": 1})
        async with bus.consume("shop.ordered", "mail", batch=1) as events:
            await (await anext(events)).ack()
        await bus.publish("shop.ordered", {"n": 2})
        with observed(node, provider):
            points = await anyio.to_thread.run_sync(points_of, reader)
            assert points["parley.bus_lag"] == {("shop.ordered", "mail"): 1}
    provider.shutdown()


async def test_metrics_that_cannot_be_refreshed_keep_their_values(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "FETCHING", 0.01)

    async def broken() -> None:
        raise KeyError("no such thing")

    async with Node(Identity.create(), config=FAST) as node:
        for refresh in (broken, anyio.sleep_forever):
            reader = InMemoryMetricReader()
            provider = MeterProvider([reader], shutdown_on_exit=False)
            remove = node.metrics.add(list, refresh)
            with observed(node, provider):
                points = await anyio.to_thread.run_sync(points_of, reader)
                assert points["parley.connections_limit"][()] == FAST.max_connections
            remove()
            provider.shutdown()
    assert [vars(record)["event"] for record in caplog.records] == ["metrics.not-fetched"]


async def test_a_loop_that_hangs_is_waited_for_once_in_each_collection(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "PATIENCE", 0.2)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    found: list[Points] = []
    async with Node(Identity.create(), config=FAST) as node:
        with observed(node, provider):
            asking = Thread(target=lambda: found.append(points_of(reader)), daemon=True)
            asking.start()
            asking.join(5.0)  # in the loop's own thread, which is blocked during that time
            assert found == [{}]
            monkeypatch.undo()
            assert "parley.connections_limit" in await anyio.to_thread.run_sync(points_of, reader)
    provider.shutdown()


async def test_a_node_that_ends_lets_its_readers_go(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "FETCHING", 60.0)
    monkeypatch.setattr(otel, "PATIENCE", 60.0)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    fetching = anyio.Event()

    async def long() -> None:
        fetching.set()
        await anyio.sleep_forever()

    node = Node(Identity.create(), config=FAST)
    with anyio.fail_after(20), observed(node, provider):
        async with anyio.create_task_group() as tasks, node:
            node.metrics.add(list, long)
            tasks.start_soon(partial(anyio.to_thread.run_sync, points_of, reader))
            await fetching.wait()
    provider.shutdown()
