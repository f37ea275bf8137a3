"""Tunnels in a journal: the claims of its node, which the audit repeats without a verdict."""

from functools import cache

import pytest

from parley._node.journal import keys
from parley._node.journal.audit import Audit
from tests.node.journal.audit.audit_helpers import Audited, Records, first_of, put
from tests.node.journal.joined_tunnels import TRACE, join, server, tunnel_record
from tests.node.journal.memory_journal import AUDITOR, NOW, RecordedPair, records_of


@cache
def with_tunnels() -> Records:
    """Return a session with tunnels that ended before, inside and after its blocks and segments."""
    made = RecordedPair()
    journal = made.journals[1]
    for number in range(12):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        join(journal, tunnel_record(forward=number))
        if number in (3, 9):
            journal.roll()
        if number == 6:
            journal.next_segment()
        made.run(0.05)
    made.end()
    return records_of(journal.segments)


def test_records_become_rows_without_findings() -> None:
    audited = Audited(with_tunnels())
    assert audited.findings == []
    assert set(audited.statuses) == {"ok"}
    tunnels = audited.tunnels
    assert [row.forward for row in tunnels] == list(range(12))
    first = tunnels[0]
    assert (first.trace, first.hop, first.length) == (TRACE.hex(), 1, 3)
    assert (first.before, first.after) == (server(1).text, server(3).text)
    assert (first.began_ns, first.ended_ns, first.back) == (NOW, NOW + 10**9, 70_000)
    stem, record = with_tunnels()[first_of(with_tunnels(), keys.TUNNEL)]
    assert (first.segment, first.offset, first.time_ns) == (stem, record.offset, record.time)


def test_silent_range_reports_no_tunnels() -> None:
    audit = Audit([AUDITOR])
    for stem, record in with_tunnels():
        audit.record(stem, record, silent=True)
    assert audit.take_tunnels() == []


@pytest.mark.parametrize("body", [b"", bytes(40), b"\xa0"], ids=["none", "not a map", "no cells"])
def test_malformed_record_is_a_finding(body: bytes) -> None:
    records = with_tunnels()
    audited = Audited(put(records, first_of(records, keys.TUNNEL), body=body))
    assert audited.kinds == ["malformed-record"]
    assert set(audited.statuses) == {"ok"}
    assert len(audited.tunnels) == 11
