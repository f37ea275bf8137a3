"""What a node counts: the families of samples that `Node.metrics` tells."""

from node.metrics.catalogue import CATALOGUE
from node.metrics.families import Histogram, Measure, MetricFamily, Sample
from node.metrics.metrics import Metrics

__all__ = ["CATALOGUE", "Histogram", "Measure", "MetricFamily", "Metrics", "Sample"]
