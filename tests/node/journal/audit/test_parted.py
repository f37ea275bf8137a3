"""Suspended and resumed sessions: a node's claims about its transports, without a verdict."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from parley._node.journal import keys
from parley._node.journal.audit.output import LONGEST_TEXT
from parley._node.journal.record_types import SessionParted, SessionResumed
from parley._node.journal.session_log import LONGEST_REASON
from tests.node.journal.audit.audit_helpers import Audited, Records, first_of, put
from tests.node.journal.memory_journal import RecordedPair, records_of

WHY = "the other side does not answer"


@cache
def resumed() -> Records:
    """Return a session with a block, a rekey and a segment's end among its suspensions."""
    made = RecordedPair()
    log, journal = made.logs[1], made.journals[1]
    steps: dict[int, Callable[[], Any]] = {
        5: lambda: log.session_suspended(WHY),
        6: lambda: log.session_resumed(1),
        10: journal.roll,
        11: lambda: log.session_resumed(
            1
        ),  # Its Resumed event was lost, and the old transport seemed alive.
        15: lambda: made.pair.a.core.rekey(made.pair.now),
        16: lambda: log.session_suspended(""),
        17: journal.next_segment,
        18: lambda: log.session_resumed(2),
        24: lambda: log.session_suspended("x" * 9_999),
    }
    for number in range(25):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        steps.get(number, lambda: None)()
        made.run(0.05)
    made.end()
    return records_of(journal.segments)


def test_records_become_rows_without_findings() -> None:
    audited = Audited(resumed())
    assert audited.findings == []
    assert set(audited.statuses) == {"ok"}
    said = [
        (row.what, row.text, row.resumption) for row in audited.sessions if row.what != "key-update"
    ]
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


def test_reading_from_a_block_has_later_tunnels() -> None:
    records = resumed()
    blocks = [index for index, (_, one) in enumerate(records) if one.kind == keys.BLOCK]
    for block in blocks[1:]:
        audited = Audited(records[block:])
        assert audited.findings == []
        behind = [one.kind for _, one in records[block:] if one.kind in (keys.PARTED, keys.RESUMED)]
        reported = [row for row in audited.sessions if row.what in ("parted", "resumed")]
        assert len(reported) == len(behind) > 0


def test_older_reader_skips_unknown_records() -> None:
    """For such a reader, these kinds of records have no meaning."""
    records = resumed()
    later = {keys.PARTED: 200, keys.RESUMED: 201}
    unknown = [(stem, one._replace(kind=later.get(one.kind, one.kind))) for stem, one in records]
    audited = Audited(unknown)
    assert (audited.statuses, audited.findings) == (Audited(records).statuses, [])
    assert {row.what for row in audited.sessions} == {"start", "key-update", "end"}


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
def test_malformed_record_is_a_finding(kind: int, body: bytes) -> None:
    records = resumed()
    audited = Audited(put(records, first_of(records, kind), body=body))
    assert audited.kinds == ["malformed-record"]
    assert set(audited.statuses) == {"ok"}


def test_long_reason_is_shortened() -> None:
    records = resumed()
    body = SessionParted(0, "\x1b" * 100_000).encode()
    audited = Audited(put(records, first_of(records, keys.PARTED), body=body))
    assert audited.findings == []
    assert max(len(row.text or "") for row in audited.sessions) == LONGEST_TEXT
