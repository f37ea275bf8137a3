"""What the console shows of a node's counters, levels and times (`Node.metrics`): plain data."""

from collections.abc import Iterable
from typing import Any

from parley._node.metrics.catalogue import Histogram, MetricFamily
from parley._node.web.console.text import shown


def numbers_view(families: Iterable[MetricFamily]) -> list[dict[str, Any]]:
    """All families with their samples. A histogram is its bounds, how many are at most each of
    them and beyond, and the sum."""
    return [
        {
            "name": measure.name,
            "kind": measure.kind,
            "unit": measure.unit,
            "help": measure.help,
            "labels": measure.labels,
            "samples": [
                {"labels": [shown(one) for one in labels], **_value(value)}
                for labels, value in samples
            ],
        }
        for measure, samples in families
    ]


def _value(value: float | Histogram) -> dict[str, Any]:
    if isinstance(value, Histogram):
        return {"bounds": value.bounds, "counts": value.counts, "sum": value.sum}
    return {"value": value}
