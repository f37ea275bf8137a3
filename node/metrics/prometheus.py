"""Export to Prometheus; requires the package `prometheus-client`."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from parley._node.metrics.catalogue import Histogram, MetricFamily

OPENMETRICS: Final = "application/openmetrics-text"


class FamilyCollector(Collector):
    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for measure, samples in self._families:
            unit = f"_{measure.unit}" if measure.unit else ""
            name, labels = f"parley_{measure.name}{unit}", measure.labels
            if measure.kind == "histogram":
                histogram = HistogramMetricFamily(name, measure.help, labels=labels)
                for values, value in samples:
                    assert isinstance(value, Histogram)
                    histogram.add_metric(values, list(value.buckets), value.sum)
                yield histogram
                continue
            kind = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
            metric = kind(name, measure.help, labels=labels)
            for values, value in samples:
                assert not isinstance(value, Histogram)
                metric.add_metric(values, value)
            yield metric


def prometheus_text(families: Iterable[MetricFamily], accept: str = "") -> tuple[bytes, str]:
    """Return the families as text, and its content type.

    The format is OpenMetrics if the HTTP header `accept` names it, otherwise Prometheus text.

    Example:

        from parley.telemetry import prometheus_text

        body, content_type = prometheus_text(node.metrics.collect())
        print(body.decode())
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FamilyCollector(families))
    ranges = [media_range.partition(";")[0].strip() for media_range in accept.split(",")]
    # Don't pass on the parameters, because the client library raises an error for malformed ones.
    encode, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in ranges else "")
    return encode(registry), content_type
