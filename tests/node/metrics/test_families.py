"""Families: buckets, limits on label values, and names."""

import re

from parley._node.metrics.catalogue import CATALOGUE, MOST_NAMES, Histogram, Measure, named
from parley._node.metrics.metrics import MOST_CODES, OTHER, RequestTally
from tests.sweep import sweep


def test_a_histogram_counts_up_to_each_bound_and_beyond_the_last() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert list(histogram.buckets) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert (histogram.count, histogram.sum) == (4, 12.0)


def test_names_beyond_the_limit_are_told_together() -> None:
    measure = Measure("calls", "counter", "Calls.", labels=("topic", "code"))
    samples = [((str(number), "accepted"), 1.0) for number in range(MOST_NAMES + 3)]
    family = named(measure, [*samples, (("0", "rejected"), 1.0)])
    assert len(family.samples) == MOST_NAMES + 2
    assert dict(family.samples)["other", "accepted"] == 3
    assert dict(family.samples)["0", "rejected"] == 1


def test_names_of_two_labels_have_the_limit_together() -> None:
    """A stream with a thousand groups has as many series as a thousand streams."""
    measure = Measure("lag", "gauge", "Lag.", labels=("stream", "group"))
    samples = [(("one stream", str(number)), 1.0) for number in range(MOST_NAMES + 3)]
    family = named(measure, [*samples, (("one stream", "0"), 1.0)], name_size=2)
    assert len(family.samples) == MOST_NAMES + 1
    assert dict(family.samples)["other", "other"] == 3
    assert dict(family.samples)["one stream", "0"] == 2


def test_histograms_beyond_the_limit_are_added() -> None:
    measure, one = Measure("calls", "histogram", "Calls.", labels=("topic",)), Histogram((1.0,))
    one.observe(0.5)
    family = named(measure, [((str(number),), one) for number in range(MOST_NAMES + 2)])
    total = dict(family.samples)["other",]
    assert isinstance(total, Histogram)
    assert (total.counts, total.sum) == ([2, 0], 1.0)
    assert one.counts == [1, 0]


def test_a_tally_has_so_many_codes_and_counts_the_others_as_one() -> None:
    tally = RequestTally()
    for code in (*range(1_000, 1_000 + MOST_CODES + 5), 1_000):
        tally.add(code, 0.1)
    assert len(tally.codes) == MOST_CODES + 1
    assert (tally.codes[OTHER], tally.codes[1_000]) == (5, 2)
    assert tally.by_label == {"other": MOST_CODES + 6}


@sweep("measure", CATALOGUE.values(), ids=lambda measure: measure.name)
def test_each_measure_has_a_name_and_a_sentence(measure: Measure) -> None:
    assert re.fullmatch(r"parley_[a-z][a-z_]*[a-z]", measure.full_name)
    assert measure.help.endswith(".")
    assert measure.unit in ("", "seconds", "bytes")
    assert (measure.full_name.endswith("_total")) is (measure.kind == "counter")
