"""The text that Prometheus reads, as its own library parses it."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from parley._node.metrics.catalogue import (
    CALL_RECEIVED_TIME,
    CALLS_RECEIVED,
    CATALOGUE,
    QUEUED,
    SENT,
    Histogram,
    MetricFamily,
    family,
    labelled,
)
from parley._node.metrics.prometheus import prometheus_text


def some() -> list[MetricFamily]:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.05)
    histogram.observe(5.0)
    return [
        family(SENT, 7),
        family(QUEUED, 3),
        labelled(CALLS_RECEIVED, [(('a"b\n', "accepted"), 2)]),
        labelled(CALL_RECEIVED_TIME, [(("x",), histogram)]),
    ]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_both_forms_are_read_back(accept: str) -> None:
    text, content_type = prometheus_text(some(), accept)
    assert ("openmetrics" in content_type) is bool(accept)
    parse = openmetrics if accept else classic
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in parse(text.decode())
        for sample in metric.samples
    }
    assert found["parley_sent_bytes_total",] == 7
    assert found["parley_queued_bytes",] == 3
    code, topic = ("code", "accepted"), ("topic", 'a"b\n')
    assert found["parley_calls_received_total", code, topic] == 2
    name = "parley_call_received_seconds"
    assert found[f"{name}_bucket", ("le", "1.0"), ("topic", "x")] == 1
    assert found[f"{name}_bucket", ("le", "+Inf"), ("topic", "x")] == 2
    assert found[f"{name}_sum", ("topic", "x")] == 5.05


def test_names_are_those_of_the_catalogue() -> None:
    families = [MetricFamily(measure, ()) for measure in CATALOGUE.values()]
    text, _ = prometheus_text(families)
    told = {line.split()[2] for line in text.decode().splitlines() if line.startswith("# HELP")}
    assert told == {measure.full_name for measure in CATALOGUE.values()}


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("application/openmetrics-text; version=x.y", True),
        ("application/openmetrics-text; version", True),
        ("application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.2", True),
        ("text/plain; version=not.a.version", False),
        ("text/plain; version=1.0.0; escaping=\xff", False),
        (",;=,text/plain;;=", False),
        ("*/*", False),
    ],
)
def test_no_accept_header_raises_an_error(accept: str, is_openmetrics: bool) -> None:
    _, content_type = prometheus_text(some(), accept)
    assert ("openmetrics" in content_type) is is_openmetrics
    assert content_type.isascii()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_a_label_that_cannot_be_encoded_is_escaped(accept: str) -> None:
    text, _ = prometheus_text([labelled(CALLS_RECEIVED, [(("a\ud800", "accepted"), 2)])], accept)
    assert rb'topic="a\\ud800"' in text
