"""Export to OpenTelemetry; requires the package `opentelemetry-api`.

The API has no histogram that is read on collection, and recording each call would cost more than
counting it. A histogram is therefore exported as three counters, as in Prometheus: `.count`,
`.sum`, and `.bucket` with the attribute `le`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event, get_ident, local
from typing import Any, Final, Protocol

import anyio
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from parley._node.errors import ParleyError
from parley._node.metrics.catalogue import CATALOGUE, Histogram, Measure, MetricFamily, Sample
from parley._node.metrics.metrics import Metrics

logger = logging.getLogger("parley.metrics")

# Seconds that a reader's thread waits for all metrics, and the part of it for fetching data.
PATIENCE: Final = 4.0
FETCHING: Final = 3.0
_UNITS: Final = {"": "1", "seconds": "s", "bytes": "By"}
_PARTS: Final = (".count", ".sum", ".bucket")


class FromThread(Protocol):
    """A loop that other threads can call."""

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None: ...

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> object: ...


class Observed(Protocol):
    """A node whose metrics are exported."""

    @property
    def metrics(self) -> Metrics:
        """The node's metrics."""

    @property
    def backend(self) -> FromThread:
        """The node's event loop; raises ParleyError if it isn't running."""


@contextmanager
def observed(
    node: Observed,
    provider: MeterProvider | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Export the metrics of `node` to OpenTelemetry during the block.

    They become instruments of the meter `parley`, with the names in docs/guides/metrics.md, such as
    `parley.calls_received`. `provider` is by default the program's own. `attributes` are added to
    each metric, for example to distinguish several nodes of one process.

    Enter the block in the node's event loop. Readers may run in any thread, and get no data if the
    loop doesn't respond within 4 seconds. A reader in the node's own loop cannot wait: it gets the
    last fetched values of data such as the lag of a bus.

    Example:

        from parley.telemetry import observed

        with observed(node, attributes={"node": "kitchen"}):
            await peer.call("greet", "Ada")
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
            reading.ended = True  # the API cannot remove an instrument


class _Collection(local):
    """The families that one thread collects for all instruments."""

    def __init__(self) -> None:
        self.families: dict[str, MetricFamily] = {}
        self.told: set[str] | None = None


class _Reading:
    """The last collected families of a node."""

    def __init__(self, node: Observed, attributes: Mapping[str, str]) -> None:
        self._node = node
        self._attributes = attributes
        self._thread = get_ident()
        self._collection = _Collection()
        self.ended = False

    def tell(self, measure: Measure, part: str, _: CallbackOptions) -> Iterable[Observation]:
        """Return the observations of one instrument."""
        key, collection = measure.name + part, self._collection
        if collection.told is None or key in collection.told:  # a new collection has begun
            collection.told = set()
            collection.families = {} if self.ended else self._read()
        collection.told.add(key)
        family = collection.families.get(measure.name)
        for sample in () if family is None else family.samples:
            labels = dict(zip(measure.labels, sample.labels, strict=True))
            for value, more in _values(sample, part):
                yield Observation(value, {**self._attributes, **labels, **more})

    def _read(self) -> dict[str, MetricFamily]:
        own_thread = get_ident() == self._thread
        try:
            backend = self._node.backend
        except ParleyError:  # the node isn't running
            return self._collected() if own_thread else {}
        if own_thread:
            backend.spawn(self._fetch)
            return self._collected()
        found: dict[str, MetricFamily] = {}
        done = Event()

        async def read() -> None:
            try:
                await self._fetch()
                found.update(self._collected())
            finally:
                done.set()

        def begin() -> None:
            try:
                self._node.backend.spawn(read)
            except ParleyError:  # the node has stopped in the meantime
                done.set()

        backend.call_soon_threadsafe(begin)
        return found if done.wait(PATIENCE) else {}

    async def _fetch(self) -> None:
        """Refresh the metrics; sources that are slow or fail keep their old values."""
        try:
            with anyio.move_on_after(FETCHING):
                await self._node.metrics.refresh()
        except Exception:
            logger.exception("cannot refresh the metrics", extra={"event": "metrics.not-fetched"})

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
