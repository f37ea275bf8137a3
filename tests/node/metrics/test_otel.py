"""A node's numbers through OpenTelemetry's API, as its SDK reads them."""

from typing import Any

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from crypto.identity import Identity
from node.metrics.otel import observed
from node.node import Node
from node.testing import connected_nodes
from tests.node.metrics.test_metrics import FAST, offering

Points = dict[str, dict[tuple[Any, ...], Any]]


def points_of(reader: InMemoryMetricReader) -> Points:
    """All data points, by instrument and by the values of their attributes."""
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


async def test_instruments_tell_what_the_node_counts(anyio_backend: Any) -> None:
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
            # As readers of the SDK do: from a thread of their own.
            points = await anyio.to_thread.run_sync(points_of, reader)
            assert points["parley.calls_received"]["shop", "shop.order", "accepted"] == 2
        assert not made.server.metrics.is_watched
        assert points_of(reader) == {}
    provider.shutdown()


async def test_a_node_that_does_not_run_tells_nothing_to_other_threads(anyio_backend: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with observed(Node(Identity.create(), config=FAST), provider):
        assert await anyio.to_thread.run_sync(points_of, reader) == {}
    provider.shutdown()
