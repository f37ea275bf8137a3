"""The metrics of a node: the metric families that `Node.metrics` collects."""

from parley._node.metrics.catalogue import CATALOGUE, Histogram, Measure, MetricFamily, Sample
from parley._node.metrics.metrics import Metrics

__all__ = ["CATALOGUE", "Histogram", "Measure", "MetricFamily", "Metrics", "Sample"]
