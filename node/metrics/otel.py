"""A node's numbers through OpenTelemetry's API; it needs the package `opentelemetry-api`.

The API knows no histogram that is read when asked for, and recording each call would cost more than
the call's own counting. A histogram is therefore three counters: how many (`.count`), their sum
(`.sum`), and how many up to each bound (`.bucket`, attribute `le`), as Prometheus has them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event, get_ident
from typing import Final, Protocol

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from node.errors import ParleyError
from node.metrics.catalogue import CATALOGUE
from node.metrics.families import Histogram, Measure, MetricFamily, Sample
from node.metrics.metrics import Metrics

# Seconds that a reader's thread waits for the node's loop to tell its numbers.
PATIENCE: Final = 1.0
_UNITS: Final = {"": "1", "seconds": "s", "bytes": "By"}
_PARTS: Final = (".count", ".sum", ".bucket")


class FromThread(Protocol):
    """A loop that another thread may ask to call back."""

    def soon_from_thread(self, callback: Callable[[], None]) -> None:
        """Call back in the loop."""


class Observed(Protocol):
    """A node."""

    @property
    def metrics(self) -> Metrics:
        """Its numbers."""

    @property
    def backend(self) -> FromThread:
        """Its loop; ParleyError if it does not run."""


@contextmanager
def observed(
    node: Observed,
    provider: MeterProvider | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """While it lasts, instruments of the meter `parley` tell the numbers of `node`, each under its
    name in docs/howto/metrics.md, as `parley.calls_received`. It is entered in the node's own loop;
    readers may ask from any thread, and get nothing if the loop does not answer in a second.

    `provider` is the program's own by default; `attributes` go with each number, such as a name to
    tell several nodes of one process apart.
    """
    reading = _Reading(node, attributes or {})
    meter = (provider or get_meter_provider()).get_meter("parley")
    for measure in CATALOGUE.values():
        name, unit = f"parley.{measure.name}", _UNITS[measure.unit]
        if measure.kind == "gauge":
            tell = partial(reading.tell, measure, "")
            meter.create_observable_gauge(name, [tell], unit, measure.help)
        for part in _PARTS if measure.kind == "histogram" else ("",):
            if measure.kind != "gauge":
                tell = partial(reading.tell, measure, part)
                counted = unit if part in ("", ".sum") else "1"
                meter.create_observable_counter(name + part, [tell], counted, measure.help)
    with node.metrics.watched():
        try:
            yield
        finally:
            reading.ended = True  # the API cannot take an instrument back


class _Reading:
    """What one collection reads: all families once, and each instrument its own of them."""

    def __init__(self, node: Observed, attributes: Mapping[str, str]) -> None:
        self._node = node
        self._attributes = attributes
        self._thread = get_ident()
        self._families: dict[str, MetricFamily] = {}
        self._told: set[str] = set()
        self.ended = False

    def tell(self, measure: Measure, part: str, _: CallbackOptions) -> Iterable[Observation]:
        """The samples of one instrument."""
        key = measure.name + part
        if key in self._told or not self._families:  # another collection
            self._told.clear()
            self._families = {} if self.ended else self._read()
        self._told.add(key)
        family = self._families.get(measure.name)
        for sample in () if family is None else family.samples:
            labels = dict(zip(measure.labels, sample.labels, strict=True))
            for value, more in _values(sample, part):
                yield Observation(value, {**self._attributes, **labels, **more})

    def _read(self) -> dict[str, MetricFamily]:
        if get_ident() == self._thread:
            return self._collected()
        found: dict[str, MetricFamily] = {}
        done = Event()

        def read() -> None:
            found.update(self._collected())
            done.set()

        try:
            self._node.backend.soon_from_thread(read)
        except ParleyError:
            return {}
        return found if done.wait(PATIENCE) else {}

    def _collected(self) -> dict[str, MetricFamily]:
        return {family.measure.name: family for family in self._node.metrics.collect()}


def _values(sample: Sample, part: str) -> Iterator[tuple[float, Mapping[str, str]]]:
    value = sample.value
    if not isinstance(value, Histogram):
        yield value, {}
    elif part == ".sum":
        yield value.sum, {}
    elif part == ".count":
        yield value.count, {}
    else:
        yield from ((count, {"le": bound}) for bound, count in value.buckets)
