"""What is told of a journal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parley._node.metrics import catalogue
from parley._node.metrics.families import MetricFamily, family

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal


def journal_families(journal: "Journal") -> Iterator[MetricFamily]:
    """What its run has done so far."""
    done = journal.metrics
    yield family(catalogue.JOURNAL_RECORDS, done.records)
    yield family(catalogue.JOURNAL_WRITTEN, done.size)
    yield family(catalogue.JOURNAL_WAITING, done.waiting)
    yield family(catalogue.JOURNAL_LIMIT, journal.settings.buffer_size)
    yield family(catalogue.JOURNAL_SEGMENTS, done.segments)
    yield family(catalogue.JOURNAL_SESSIONS, done.sessions)
    yield family(catalogue.JOURNAL_FAILED, int(journal.failed is not None))
