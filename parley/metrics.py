"""What a node counts: the families of samples that `Node.metrics` tells."""

from parley._node.metrics.catalogue import CATALOGUE, Histogram, Measure, MetricFamily, Sample
from parley._node.metrics.metrics import Metrics

__all__ = ["CATALOGUE", "Histogram", "Measure", "MetricFamily", "Metrics", "Sample"]
