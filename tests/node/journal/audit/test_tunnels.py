"""Tunnels in a journal: what its node says of them, which the audit repeats, unjudged."""

from functools import cache

import pytest

from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import STATUS_AT, EventRow, Finding, TunnelRow
from parley._node.journal.records import Record
from tests.node.journal.joined_tunnels import TRACE, join, server, told
from tests.node.journal.recorded import AUDITOR, NOW, Recorded, records_of

Records = list[tuple[str, Record]]


@cache
def with_tunnels() -> Records:
    """A session with tunnels that were over before, in and behind its blocks and segments."""
    made = Recorded()
    journal = made.journals[1]
    for number in range(12):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        join(journal, told(forward=number))
        if number in (3, 9):
            journal.roll()
        if number == 6:
            journal.next_segment()
        made.run(0.05)
    made.end()
    return records_of(journal.segments)


def audited(records: Records) -> tuple[list[EventRow], list[TunnelRow], list[Finding]]:
    audit = Audit([AUDITOR])
    for stem, record in records:
        audit.record(stem, record)
    audit.finish_pending()
    return audit.take_events(), audit.take_tunnels(), audit.take_findings()


def replaced(records: Records, index: int, body: bytes) -> Records:
    stem, record = records[index]
    return [*records[:index], (stem, record._replace(body=body)), *records[index + 1 :]]


def first_of(records: Records) -> int:
    return next(index for index, (_, one) in enumerate(records) if one.kind == keys.TUNNEL)


def test_they_are_rows_and_no_findings() -> None:
    events, tunnels, findings = audited(with_tunnels())
    assert findings == []
    assert {row[STATUS_AT] for row in events} == {"ok"}
    assert [row.forward for row in tunnels] == list(range(12))
    first = tunnels[0]
    assert (first.trace, first.hop, first.length) == (TRACE.hex(), 1, 3)
    assert (first.before, first.after) == (server(1).text, server(3).text)
    assert (first.began_ns, first.ended_ns, first.back) == (NOW, NOW + 10**9, 70_000)
    stem, record = with_tunnels()[first_of(with_tunnels())]
    assert (first.segment, first.offset, first.time_ns) == (stem, record.offset, record.time)


def test_reading_that_begins_at_a_block_has_those_behind_it() -> None:
    records = with_tunnels()
    blocks = [index for index, (_, one) in enumerate(records) if one.kind == keys.BLOCK]
    for block in blocks[1:]:
        _, tunnels, findings = audited(records[block:])
        assert findings == []
        assert len(tunnels) == sum(one.kind == keys.TUNNEL for _, one in records[block:]) > 0


def test_a_range_that_only_leads_up_to_another_tells_of_none() -> None:
    audit = Audit([AUDITOR])
    for stem, record in with_tunnels():
        audit.record(stem, record, silent=True)
    assert audit.take_tunnels() == []


def test_a_reader_that_does_not_know_them_reads_on() -> None:
    """To such a reader their kind is any that has no meaning."""
    records = with_tunnels()
    unknown = [
        (stem, one._replace(kind=200 if one.kind == keys.TUNNEL else one.kind))
        for stem, one in records
    ]
    events, _, _ = audited(records)
    assert audited(unknown) == (events, [], [])


@pytest.mark.parametrize("body", [b"", bytes(40), b"\xa0"], ids=["none", "not a map", "no cells"])
def test_one_that_is_not_of_the_format_is_a_finding(body: bytes) -> None:
    records = with_tunnels()
    events, tunnels, findings = audited(replaced(records, first_of(records), body))
    assert [finding.kind for finding in findings] == ["malformed-record"]
    assert {row[STATUS_AT] for row in events} == {"ok"}
    assert len(tunnels) == 11
