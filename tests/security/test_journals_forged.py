"""Forged journals, made with the node's keys in the right format, that must give a finding (J2,
J3).

The cases of `test_forged_journals_give_a_finding` gave no finding when they were written.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from struct import pack

import pytest

from parley._crypto.ciphers import XChaCha20Poly1305
from parley._crypto.identity import Identity
from parley._crypto.key_schedule import application_secrets, next_secret
from parley._lbm import keys as cells
from parley._lbm.codec import encode
from parley._node.journal import keys
from parley._node.journal.audit.consistency import suite_of
from parley._node.journal.audit.keyring import labels_key
from parley._node.journal.audit.rows import EVENT_COLUMNS, STATUS_AT
from parley._node.journal.record_types import Checkpoint, SegmentHead, SessionEnd
from parley._node.journal.records import Record, encode_record, read_records
from parley._node.protocol import codes
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.node.protocol.pair import ALICE

OF_SESSIONS = range(keys.CHECKPOINT, keys.SESSION_END + 1)
Records = list[Record]


@cache
def journal() -> tuple[str, Records]:
    """Return Alice's journal of two sessions; the first spans three blocks, each sealed before the
    next.
    """
    made = RecordedPair()
    for number in range(5):
        made.pair.b.core.send(1, 0, 64, 1, b"order %d" % number, lbm=False)
        made.pump()
        made.run(0.05)
        if number in (1, 3):
            made.journals[0].roll()
    made.pair.a.core.close(made.pair.now, 0)
    made.run(5)
    made.meet()
    made.pair.b.core.send(1, 0, 64, 1, b"later", lbm=False)
    made.run(0.05)
    made.end()
    [(stem, data)] = made.journals[0].segments.items()
    return stem, list(read_records(data))


def written(records: Records) -> bytes:
    return b"".join(encode_record(record.kind, record.time, record.body) for record in records)


def of(number: int, record: Record) -> bool:
    return record.kind in OF_SESSIONS and record.body[:4] == pack(">I", number)


def numbered(number: int, record: Record) -> Record:
    return record._replace(body=pack(">I", number) + record.body[4:])


def blocks(records: Records) -> list[int]:
    return [at for at, record in enumerate(records) if record.kind == keys.BLOCK]


def beginning_left_out(records: Records) -> Records:
    """Start the session at its first checkpoint."""
    first, second, _ = blocks(records)
    return records[: first + 1] + records[second:]


def middle_left_out(records: Records) -> Records:
    """Lose a connection, then continue with a checkpoint that gives the session another number."""
    _, second, third = blocks(records)
    point = Checkpoint.parse(records[second + 1].body)
    ways = point.received, point.sent
    end = SessionEnd(
        0, -1, False, "", (ways[0].chain, ways[1].chain), (ways[0].place, ways[1].place)
    )
    lost = records[second]._replace(kind=keys.SESSION_END, body=end.encode())
    rest = [numbered(7, record) if of(0, record) else record for record in records[third:]]
    return [*records[:second], lost, *rest]


def told_twice(records: Records) -> Records:
    """Repeat a whole session under another number."""
    copy = [
        numbered(7, record)
        for record in records
        if of(0, record) and record.kind != keys.CHECKPOINT
    ]
    return [*records[:-1], *copy, records[-1]]


def number_taken_again(records: Records) -> Records:
    """Drop an event, and reuse the session's number for another session before the gap shows."""
    dropped = [at for at, record in enumerate(records) if of(0, record)][4]
    kept = [
        record
        for at, record in enumerate(records)
        if at != dropped
        and not (of(0, record) and record.kind in (keys.SESSION_END, keys.CHECKPOINT))
        and record.kind != keys.BLOCK
    ]
    return [numbered(0, record) if of(1, record) else record for record in kept]


@pytest.mark.parametrize(
    "forge", [beginning_left_out, middle_left_out, told_twice, number_taken_again]
)
def test_forged_journals_give_a_finding(forge: Callable[[Records], Records]) -> None:
    stem, records = journal()
    assert audit_of({stem: written(records)}, AUDITOR).take_findings() == []
    for auditors in ((AUDITOR,), ()):
        assert audit_of({stem: written(forge(list(records)))}, *auditors).take_findings()


def test_a_session_with_somebody_else_is_not_the_own_one() -> None:
    """Eve has the journal of Alice's peer, and presents Alice's messages to Bob as messages to
    herself.
    """
    eve = Identity.create()
    stem, records = journal()
    point = blocks(records)[1]
    head = replace(SegmentHead.parse(records[0].body), node_id=eve.node_id)
    forged = [records[0]._replace(body=head.encode())]
    for record in records[point:]:
        if record.kind == keys.CHECKPOINT:
            told = Checkpoint.parse(record.body)
            facts = replace(told.facts, local_keys=eve.cells())
            record = record._replace(body=replace(told, facts=facts).encode())
        if not (record.kind == keys.EVENT and record.body[4] == 1):
            forged.append(record)
    forged = [record for record in forged if not of(1, record)]
    renamed = stem.replace(ALICE.node_id.text, eve.node_id.text)
    audit = audit_of({renamed: written(forged)}, AUDITOR)
    # Besides the `end-mismatch` of the sent events, which Eve could sign herself.
    assert {finding.kind for finding in audit.take_findings()} - {"end-mismatch", "gap"}


def test_labels_that_are_none_are_none() -> None:
    stem, records = journal()

    def labelled(record: Record) -> Record:
        if record.kind != keys.CHECKPOINT:
            return record
        point = Checkpoint.parse(record.body)
        suite, session = suite_of(point.facts), point.facts.session_id
        secret = AUDITOR.open(point.generations[0].boxes[0][1])
        exporter = application_secrets(suite.hash_algorithm, secret, point.th2).exporter
        key = XChaCha20Poly1305(labels_key(suite, exporter, session))
        box = key.encrypt(bytes(24), encode({keys.LABEL_LIST: [[[1], "x"]]}), session)
        return record._replace(body=replace(point, labels=bytes(24) + box).encode())

    cut = beginning_left_out(list(records))
    audit = audit_of({stem: written([labelled(record) for record in cut])}, AUDITOR)
    assert audit.take_events()  # each event had its own row


def test_key_updates_take_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer may send many KeyUpdates, but in the long run only one a second."""
    steps = 0

    def counted(*arguments: object) -> bytes:
        nonlocal steps
        steps += 1
        return next_secret(*arguments)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr("parley._node.journal.audit.keyring.next_secret", counted)
    made = RecordedPair()
    for _ in range(60):
        made.pair.b.core.update_keys(made.pair.now)
        made.run(1.0)
    made.end()
    assert audit_of(made.journals[0].segments, AUDITOR).take_findings() == []
    assert steps < 4 * 60  # it was 60 * 61 / 2 when this test was written


def test_a_peer_does_not_unseal_what_it_sealed() -> None:
    """65 events of 4,096 notes each precede one seal, which covers all of them."""
    made = RecordedPair(seal_events=128)
    notes = encode({cells.NOTES: [b""] * 4_096})
    for _ in range(65):
        made.pair.b.core.send(1, 0, codes.SIM, codes.NOTES, notes, lbm=False)
    made.pump()
    made.run(0.05)
    made.end()
    rows = audit_of(made.journals[0].segments, AUDITOR, payloads=False).take_events()
    assert {row[STATUS_AT] for row in rows} == {"ok"}


def test_a_label_is_not_repeated_with_each_event_at_any_length() -> None:
    made = RecordedPair()
    stream = made.pair.b.core.open_stream("t" * (2**20 - 256))
    made.pair.b.core.send(stream, 0, 64, 1, b"x", lbm=False)
    made.run(0.05)
    made.end()
    rows = audit_of(made.journals[0].segments, AUDITOR).take_events()
    topic = EVENT_COLUMNS.index("topic")
    assert max(len(row[topic] or "") for row in rows) <= 1_024
