"""Key statements in journaled Proofs: which the audit reports, and the sessions of ended IDs."""

from dataclasses import replace
from functools import cache

import pytest

from parley._crypto.identity import Identity
from parley._crypto.key_schedule import application_secrets
from parley._crypto.statements import create_revocation, create_succession
from parley._lbm.codec import decode, encode
from parley._lbm.keys import STATEMENTS
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.consistency import suite_of
from parley._node.journal.audit.ended_ids import SessionBegin, find_ended_ids
from parley._node.journal.audit.presented import Presented, read_presented
from parley._node.journal.audit.rows import StatementRow
from parley._node.journal.record_types import Secret, SessionStart
from tests.node.journal.audit.audit_helpers import Records, first_of, put
from tests.node.journal.memory_journal import AUDITOR, audit_of, records_of
from tests.node.journal.presented_statements import Sessions, Theft

MALFORMED = [Presented("malformed")]
SEAL_AT = 21  # After the stream, the form and the prefix of a sealed event.


@cache
def theft() -> Theft:
    return Theft()


def statements_of(records: Records, *, key: bool = True) -> list[StatementRow]:
    audit = Audit([AUDITOR] if key else [])
    for stem, record in records:
        audit.record(stem, record)
    audit.finish_pending()
    return audit.take_statements()


def test_both_ends_have_the_statement() -> None:
    made = theft()
    alice, heir = made.alice.node_id.text, made.heir.node_id.text
    rows, starts = [], {}
    for node in (made.alice, made.heir):
        audit = audit_of(made.sessions.segments(node), AUDITOR)
        assert audit.take_findings() == []
        rows += audit.take_statements()
        assert audit.take_statements() == []
        for session in audit.take_sessions():
            starts[session.journal, session.session] = session.started_ns
    received, sent = rows
    assert (received.journal, received.direction, received.presenter) == (alice, "received", heir)
    assert (sent.journal, sent.direction, sent.presenter) == (heir, "sent", heir)
    assert received.session == sent.session
    for row in (received, sent):
        assert (row.number, row.status, row.kind) == (0, "ok", "succession")
        assert (row.origin, row.successor) == (made.bob.node_id.text, heir)
        assert (row.by_recovery, row.made_ms) == (True, made.made_ms)
        assert row.time_ns == starts[row.journal, row.session]


def test_offset_is_that_of_the_secret() -> None:
    records = records_of(theft().sessions.segments(theft().alice))
    (row,) = statements_of(records)
    (found,) = [one for stem, one in records if (stem, one.offset) == (row.segment, row.offset)]
    assert found.kind == keys.SECRET


def test_sessions_before_and_after() -> None:
    made = theft()
    audit = audit_of(made.sessions.segments(), AUDITOR)
    sessions = audit.take_sessions()
    begins = [
        SessionBegin(row.journal, row.session, row.remote_node, row.started_ns) for row in sessions
    ]
    (ended,) = find_ended_ids(audit.take_statements(), begins)
    assert (ended.first.journal, ended.first.origin) == (
        made.alice.node_id.text,
        made.bob.node_id.text,
    )
    ordered = [
        row.session
        for row in sessions
        if row.what == "start"
        and (row.journal, row.remote_node) == (ended.first.journal, ended.first.origin)
    ]
    assert (ended.before, ended.after) == (ordered[:1], ordered[1:])
    assert len(ended.after) == 2


def test_no_statements_without_the_key() -> None:
    assert statements_of(records_of(theft().sessions.segments()), key=False) == []


def test_invalid_statements_are_shown_with_the_reason() -> None:
    alice, (bob, recovery) = Identity.create(), Identity.create_recoverable()
    heir, _ = Identity.create_recoverable()
    encoded = create_succession(recovery, heir).encoded
    outer = decode(encoded, keep_noise=True)
    forged = encode({**outer, 67: bytes(64)})
    theirs = create_succession(recovery, Identity.create_recoverable()[0]).encoded
    consent = encode({**outer, 83: decode(theirs, keep_noise=True)[83]})
    sessions = Sessions()
    sessions.meet(bob, alice)
    sessions.meet(heir, alice, [forged, consent, b"no statement"])
    sessions.end()
    audit = audit_of(sessions.segments(alice), AUDITOR)
    assert audit.take_findings() == []
    rows = audit.take_statements()
    assert [(row.number, row.status) for row in rows] == [
        (0, "signature"),
        (1, "consent"),
        (2, "malformed"),
    ]
    assert [row.origin for row in rows] == [bob.node_id.text, bob.node_id.text, None]
    assert find_ended_ids(rows, []) == []


def test_a_chain_and_a_revocation() -> None:
    alice, last = Identity.create(), Identity.create()
    first, second = Identity.create(), Identity.create()
    chain = [create_succession(first, second), create_succession(second, last)]
    sessions = Sessions()
    sessions.meet(last, alice, [one.encoded for one in chain])
    sessions.meet(last, alice, [create_revocation(first).encoded])
    sessions.end()
    rows = audit_of(sessions.segments(alice), AUDITOR).take_statements()
    assert [(row.number, row.status, row.kind) for row in rows] == [
        (0, "ok", "succession"),
        (1, "ok", "succession"),
        (0, "ok", "revocation"),
    ]
    assert (rows[2].successor, rows[2].by_recovery) == (None, False)
    ended = find_ended_ids(rows, [])
    assert [each.first for each in ended] == rows[:2]  # The revocation came second.


@pytest.mark.parametrize(
    "cell",
    [
        b"text",
        ["text"],
        [b"x"] * 5,
        [bytes(8_193)],
        [bytes(4_096), bytes(4_097)],
    ],
    ids=["bytes", "a text", "five", "8,193 bytes", "8,193 bytes in two"],
)
def test_malformed_cell_is_one_malformed_statement(cell: object) -> None:
    assert read_presented({STATEMENTS: cell}) == MALFORMED  # type: ignore[dict-item]  # any value


def test_limits_of_the_cell() -> None:
    assert read_presented({}) == read_presented({STATEMENTS: []}) == []
    assert read_presented({STATEMENTS: [b"x"] * 4}) == MALFORMED * 4
    assert read_presented({STATEMENTS: [bytes(8_192)]}) == MALFORMED


def test_second_reading_reports_only_new_statements() -> None:
    records = records_of(theft().sessions.segments(theft().alice))
    (row,) = statements_of(records)
    place = next(
        index
        for index, (stem, record) in enumerate(records)
        if (stem, record.offset) == (row.segment, row.offset)
    )
    # A reader that stopped between the session's start and its secret reports it afterwards.
    for stop, expected in ((place, [row]), (place + 1, []), (len(records), [])):
        audit = Audit([AUDITOR])
        for index, (stem, record) in enumerate(records):
            audit.record(stem, record, silent=index < stop)
        assert audit.take_statements() == expected


def only_presenting() -> Records:
    """Return Alice's journal of the session in which she gets the statement, without its events."""
    records = records_of(theft().sessions.segments(theft().alice))
    (row,) = statements_of(records)
    secret = next(
        index
        for index, (stem, record) in enumerate(records)
        if (stem, record.offset) == (row.segment, row.offset)
    )
    return [*records[:2], *records[secret - 1 : secret + 1]]


def audited_start(start: SessionStart) -> tuple[list[StatementRow], list[str]]:
    """Return the statements and the kinds of findings with another start of that session."""
    records = only_presenting()
    changed = put(records, first_of(records, keys.SESSION_START), body=start.encode())
    audit, offset = Audit([AUDITOR]), 0
    for stem, record in changed:
        audit.record(stem, record._replace(offset=offset))
        offset += record.size
    audit.finish_pending()
    return audit.take_statements(), [finding.kind for finding in audit.take_findings()]


def test_altered_proof_presents_nothing() -> None:
    records = only_presenting()
    start = SessionStart.parse(records[first_of(records, keys.SESSION_START)][1].body)
    rows, findings = audited_start(start)
    assert len(rows) == 1
    assert findings == []
    for at in (10, 30, -1):
        altered = bytearray(start.initiator_proof)
        altered[at] ^= 1
        rows, findings = audited_start(replace(start, initiator_proof=bytes(altered)))
        assert rows == []
        assert findings


def test_journal_cannot_attribute_statements_without_the_seal() -> None:
    """A node that knows the session's secret can compute everything except the peer's seal."""
    records = only_presenting()
    start = SessionStart.parse(records[first_of(records, keys.SESSION_START)][1].body)
    (box,) = Secret.parse(records[first_of(records, keys.SECRET)][1].body).boxes
    altered = bytearray(start.initiator_proof)
    altered[SEAL_AT] ^= 1
    hash = suite_of(start.facts).hash_algorithm
    th2 = hash.digest(start.t1 + start.responder_proof + altered)
    session_id = application_secrets(hash, AUDITOR.open(box[1]), th2).session_id
    facts = replace(start.facts, session_id=session_id)
    rows, findings = audited_start(replace(start, facts=facts, initiator_proof=bytes(altered)))
    assert rows == []
    assert findings == ["bad-seal"]


def test_times_and_own_ids() -> None:
    def row(
        journal: str, origin: str, time: int, direction: str = "received", status: str = "ok"
    ) -> StatementRow:
        head = journal, "segment", f"s{time}", 0, time, direction, "heir", 0
        return StatementRow(*head, status, "revocation", origin, None, False, 0)

    statements = [
        row("alice", "bob", 50),
        row("alice", "bob", 40),
        row("alice", "bob", 10, direction="sent"),
        row("alice", "bob", 20, status="signature"),
        row("bob", "bob", 30),
    ]
    sessions = [
        SessionBegin("alice", "1", "bob", 39),
        SessionBegin("alice", "1", "bob", 45),  # a later record of the same session
        SessionBegin("alice", "2", "bob", 40),
        SessionBegin("alice", "3", "carol", 1),
        SessionBegin("carol", "4", "bob", 2),
        SessionBegin("bob", "5", "carol", 29),
        SessionBegin("bob", "6", "alice", 31),
    ]
    own, alice = find_ended_ids(statements, sessions)
    assert (own.first.journal, own.before, own.after) == ("bob", ["5"], ["6"])
    assert (alice.first.time_ns, alice.before, alice.after) == (40, ["1"], ["2"])
