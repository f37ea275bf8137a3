"""One metric of a node, by its Prometheus name."""

from parley._node.metrics.catalogue import Histogram
from parley._node.metrics.metrics import Metrics


def read(metrics: Metrics, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels; for histograms, the number of
    observations.
    """
    total = 0.0
    (found,) = [one for one in metrics.collect() if one.measure.full_name == f"parley_{name}"]
    for sample in found.samples:
        its = dict(zip(found.measure.labels, sample.labels, strict=True))
        if labels.items() <= its.items():
            value = sample.value
            total += value.count if isinstance(value, Histogram) else value
    return total
