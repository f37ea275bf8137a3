"""What is read of a node: families of samples, in the words of Prometheus and OpenTelemetry.

A family has a name without the prefix `parley_` and without the suffixes of its kind and unit: an
exporter adds what its own side expects.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

# counter: only grows; gauge: a level; histogram: how many observations up to each bound.
Kind = Literal["counter", "gauge", "histogram"]

# Upper bounds in seconds, from what a lone call takes here to what a person waits for.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
SECONDS_BOUNDS: Final = (*SECONDS, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """What a family tells: `help` is a sentence for people, `unit` empty, `seconds` or `bytes`,
    `labels` the names of its labels."""

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """As Prometheus has it, with unit and suffix: `parley_calls_received_total`."""
        unit = f"_{self.unit}" if self.unit else ""
        return f"parley_{self.name}{unit}{'_total' if self.kind == 'counter' else ''}"


class Histogram:
    """Observations by size: how many are at most each bound, and their sum. 17 numbers."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is of those beyond
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """Each upper bound as text, `+Inf` at last, and how many are at most that."""
        count = 0
        bounds = (*map(str, self.bounds), "+Inf")
        for bound, more in zip(bounds, self.counts, strict=True):
            count += more
            yield bound, count

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One number of a family: the values of its labels, and itself."""

    labels: tuple[str, ...]
    value: float | Histogram


class MetricFamily(NamedTuple):
    """A measure, and its samples at this moment."""

    measure: Measure
    samples: tuple[Sample, ...]


def family(measure: Measure, value: float | Histogram) -> MetricFamily:
    """A family of one sample without labels."""
    return MetricFamily(measure, (Sample((), value),))


# Names of one measure that are told; those beyond are told together.
MOST_NAMES: Final = 200
OTHER_NAMES: Final = "other"


def named(
    measure: Measure,
    samples: Iterable[tuple[tuple[str, ...], float | Histogram]],
    *,
    name_size: int = 1,
) -> MetricFamily:
    """A family by the names that begin its labels, of `name_size` labels each. The first 200 are
    told, and those beyond as the sum of them, `other`; samples of equal labels count together."""
    names: set[tuple[str, ...]] = set()
    found: dict[tuple[str, ...], float | Histogram] = {}
    for labels, value in samples:
        name, rest = labels[:name_size], labels[name_size:]
        if len(names) < MOST_NAMES:
            names.add(name)
        elif name not in names:
            name = (OTHER_NAMES,) * name_size
        key = (*name, *rest)
        found[key] = _sum(found[key], value) if key in found else value
    return labelled(measure, found.items())


def labelled(
    measure: Measure, samples: Iterable[tuple[tuple[str, ...], float | Histogram]]
) -> MetricFamily:
    """A family of samples with labels. Lone surrogates, as in paths that aren't UTF-8, are escaped:
    exporters cannot encode them."""
    found = ((tuple(map(_encodable, labels)), value) for labels, value in samples)
    return MetricFamily(measure, tuple(Sample(labels, value) for labels, value in found))


def _encodable(label: str) -> str:
    return label if label.isascii() else label.encode("utf-8", "backslashreplace").decode()


def _sum(one: float | Histogram, other: float | Histogram) -> float | Histogram:
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        total = Histogram(one.bounds)
        total.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
        total.sum = one.sum + other.sum
        return total
    assert not isinstance(one, Histogram)
    assert not isinstance(other, Histogram)
    return one + other
