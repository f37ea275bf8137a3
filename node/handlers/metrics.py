"""Metrics of handlers and topics."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parley._node.handlers.registry import Entry, Handlers
from parley._node.handlers.topic import Topic
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, named


def handler_families(
    handlers: Handlers, topics: Mapping[str, Topic[Any]]
) -> Iterator[MetricFamily]:
    """Yield metrics of handlers, labelled with the registered name or pattern, and of topics."""
    calls = list(handlers.calls.entries())
    yield named(catalogue.CALLS_RECEIVED, _codes(calls))
    yield named(catalogue.CALL_RECEIVED_TIME, (((one.name,), one.tally.seconds) for one in calls))
    slots = ((one.name, one.slots) for one in calls)
    queued = (((name,), those.waiting) for name, those in slots if those is not None)
    yield named(catalogue.CALLS_QUEUED, queued)
    events = (one for registry in handlers.events.values() for one in registry.entries())
    yield named(catalogue.EVENTS_RECEIVED, _codes(events))
    told = list(topics.values())
    counts = [topic.counts for topic in told]
    for measure, place in (
        (catalogue.SUBSCRIBERS, 0),
        (catalogue.NOTES_PUBLISHED, 1),
        (catalogue.NOTES_DELIVERED, 2),
        (catalogue.NOTES_LOST, 3),
        (catalogue.NOTES_WAITING, 4),
    ):
        samples = ((topic.name, count[place]) for topic, count in zip(told, counts, strict=True))
        yield named(measure, (((name,), value) for name, value in samples))


def _codes(entries: Iterable[Entry[Any]]) -> Iterator[tuple[tuple[str, ...], float]]:
    for entry in entries:
        for code, count in entry.tally.by_label.items():
            yield (entry.name, code), count
