"""Parted and resumed: what a node says of its transports, which the audit repeats, unjudged."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.output import LONGEST_TEXT
from parley._node.journal.audit.rows import STATUS_AT, EventRow, Finding, SessionRow
from parley._node.journal.bodies import SessionParted, SessionResumed
from parley._node.journal.records import Record
from parley._node.journal.session_log import LONGEST_REASON
from tests.node.journal.recorded import AUDITOR, Recorded, records_of

Records = list[tuple[str, Record]]
WHY = "the other side does not answer"


@cache
def resumed() -> Records:
    """A session with a block, a rekey and a segment's end among its partings."""
    made = Recorded()
    log, journal = made.logs[1], made.journals[1]
    steps: dict[int, Callable[[], Any]] = {
        5: lambda: log.session_parted(WHY),
        6: lambda: log.session_resumed(1),
        10: journal.roll,
        11: lambda: log.session_resumed(1),  # its Resumed was lost; the old one seemed alive
        15: lambda: made.pair.a.core.rekey(made.pair.now),
        16: lambda: log.session_parted(""),
        17: journal.next_segment,
        18: lambda: log.session_resumed(2),
        24: lambda: log.session_parted("x" * 9_999),
    }
    for number in range(25):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        steps.get(number, lambda: None)()
        made.run(0.05)
    made.end()
    return records_of(journal.segments)


def audited(records: Records) -> tuple[list[EventRow], list[SessionRow], list[Finding]]:
    audit = Audit([AUDITOR])
    for stem, record in records:
        audit.record(stem, record)
    audit.finish_pending()
    return audit.take_events(), audit.take_sessions(), audit.take_findings()


def test_they_are_rows_and_no_findings() -> None:
    events, sessions, findings = audited(resumed())
    assert findings == []
    assert {row[STATUS_AT] for row in events} == {"ok"}
    said = [(row.what, row.text, row.resumption) for row in sessions if row.what != "key-update"]
    assert said == [
        ("start", None, None),
        ("parted", WHY, None),
        ("resumed", None, 1),
        ("resumed", None, 1),
        ("parted", "", None),
        ("resumed", None, 2),
        ("parted", "x" * LONGEST_REASON, None),
        ("end", "", None),
    ]


def test_reading_that_begins_at_a_block_has_those_behind_it() -> None:
    records = resumed()
    blocks = [index for index, (_, one) in enumerate(records) if one.kind == keys.BLOCK]
    for block in blocks[1:]:
        _, sessions, findings = audited(records[block:])
        assert findings == []
        behind = [one.kind for _, one in records[block:] if one.kind in (keys.PARTED, keys.RESUMED)]
        told = [row for row in sessions if row.what in ("parted", "resumed")]
        assert len(told) == len(behind) > 0


def test_a_reader_that_does_not_know_them_reads_on() -> None:
    """To such a reader their kinds are any that have no meaning."""
    records = resumed()
    later = {keys.PARTED: 200, keys.RESUMED: 201}
    unknown = [(stem, one._replace(kind=later.get(one.kind, one.kind))) for stem, one in records]
    events, _, _ = audited(records)
    found, sessions, findings = audited(unknown)
    assert (found, findings) == (events, [])
    assert {row.what for row in sessions} == {"start", "key-update", "end"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (keys.PARTED, SessionParted(7, WHY).encode()),
        (keys.RESUMED, SessionResumed(7, 1).encode()),
        (keys.PARTED, bytes(3)),
        (keys.RESUMED, SessionParted(0).encode()),
        (keys.RESUMED, SessionResumed(0, 0).encode()),
    ],
    ids=["unknown session", "unknown session too", "cut", "no number", "number 0"],
)
def test_one_that_is_not_of_the_format_is_a_finding(kind: int, body: bytes) -> None:
    records = resumed()
    index = next(i for i, (_, one) in enumerate(records) if one.kind == kind)
    stem, record = records[index]
    changed = [*records[:index], (stem, record._replace(body=body)), *records[index + 1 :]]
    events, _, findings = audited(changed)
    assert [finding.kind for finding in findings] == ["malformed-record"]
    assert {row[STATUS_AT] for row in events} == {"ok"}


def test_a_long_reason_of_another_writer_is_cut_in_its_row() -> None:
    records = resumed()
    index = next(i for i, (_, one) in enumerate(records) if one.kind == keys.PARTED)
    stem, record = records[index]
    body = SessionParted(0, "\x1b" * 100_000).encode()
    changed = [*records[:index], (stem, record._replace(body=body)), *records[index + 1 :]]
    _, sessions, findings = audited(changed)
    assert findings == []
    assert max(len(row.text or "") for row in sessions) == LONGEST_TEXT
