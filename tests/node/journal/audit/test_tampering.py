"""Every manipulation of a journal is found where it was made, without false reports."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import Finding
from parley._node.journal.record_types import EVENT, EVENT_HEAD, SessionEnd, SessionStart
from tests.node.journal.audit.audit_helpers import (
    PREFIX_AT,
    Audited,
    Records,
    first_of,
    put,
    received,
)
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, records_of

Tamper = Callable[[Records], Records]
SEAL_AT = EVENT_HEAD + 21


@cache
def recorded(sealing: str = "chain") -> Records:
    """Return a journal of three blocks, of which the last two are in their own segment."""
    algorithms = {"kex": ("x25519",), "sealing": (sealing,)}
    rec = RecordedPair(algorithms=algorithms)
    for number in range(240):
        rec.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pair.b.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pump()
        if number % 9 == 0:
            rec.run(0.05)
        if number == 80:
            rec.journals[0].next_segment()
        if number == 160:
            rec.journals[0].roll()
    rec.run(0.05)
    rec.end("until tomorrow")
    return records_of(rec.journals[0].segments)


def closed_by_the_other_side() -> Records:
    rec = RecordedPair()
    rec.end("until tomorrow")
    return records_of(rec.journals[1].segments)


def flipped_bit(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def audited(records: Records) -> tuple[Counter[str], list[Finding]]:
    """Return the statuses of events, and the findings."""
    made = Audited(records)
    return made.statuses, made.findings


def test_an_honest_journal_has_no_findings() -> None:
    for sealing in ("chain", "each"):
        statuses, findings = audited(recorded(sealing))
        assert findings == []
        assert set(statuses) == {"ok"}


def flip_blob(records: Records) -> Records:
    index = received(records)[99]
    return put(records, index, body=flipped_bit(records[index][1].body, -1))


def flip_prefix(records: Records) -> Records:
    index = received(records)[99]
    return put(records, index, body=flipped_bit(records[index][1].body, PREFIX_AT))


def drop(records: Records) -> Records:
    index = received(records)[99]
    return records[:index] + records[index + 1 :]


def drop_three(records: Records) -> Records:
    gone = set(received(records)[99:102])
    return [record for index, record in enumerate(records) if index not in gone]


def swap(records: Records) -> Records:
    one, two = received(records)[99:101]
    records = list(records)
    records[one], records[two] = records[two], records[one]
    return records


def move_back(records: Records) -> Records:
    one, *_, five = received(records)[99:104]
    records = list(records)
    records.insert(five + 1, records[one])
    del records[one]
    return records


def copy(records: Records) -> Records:
    index = received(records)[99]
    return [*records[: index + 5], records[index], *records[index + 5 :]]


def alien(records: Records) -> Records:
    """Return a forged event: another blob with an invented chain value."""
    index = received(records)[99]
    stem, record = records[index]
    body = record.body[:PREFIX_AT] + bytes(16) + bytes(len(record.body) - PREFIX_AT - 16)
    return [*records[:index], (stem, record._replace(body=body)), *records[index:]]


@pytest.mark.parametrize(
    ("tamper", "kind", "places", "count"),
    [
        (flip_blob, "bad-chain", {100}, None),
        (flip_prefix, "bad-chain", {100}, 1),
        (drop, "gap", {100}, 1),
        (drop_three, "gap", {100}, 3),
        (swap, "reordered", {100}, 1),
        (move_back, "reordered", {100}, 4),
        (copy, "duplicate", {100}, 1),
        (alien, "bad-chain", {100}, 1),
    ],
)
def test_manipulation_is_found_at_its_event(
    tamper: Tamper, kind: str, places: set[int], count: int | None
) -> None:
    _, findings = audited(tamper(recorded()))
    assert [finding.kind for finding in findings] == [kind]
    (finding,) = findings
    assert finding.direction == "received"
    assert finding.place in places
    assert count is None or finding.count == count


def test_foreign_seal_affects_no_other_event() -> None:
    records = recorded()
    index = next(i for i in received(records)[60:] if records[i][1].body[EVENT_HEAD + 4] == 1)
    place = received(records).index(index) + 1
    body = records[index][1].body
    foreign = Identity.create().keys[0].sign(b"anything")
    statuses, findings = audited(
        put(records, index, body=body[:SEAL_AT] + foreign + body[SEAL_AT + 64 :])
    )
    assert [(finding.kind, finding.place) for finding in findings] == [("bad-seal", place)]
    assert statuses["bad-seal"] == 1
    assert set(statuses) == {"ok", "bad-seal"}


def test_run_of_events_ends_at_the_first_wrong_seal() -> None:
    records = recorded()
    first, *places = received(records)
    stop = next(at for at in range(first, len(records)) if records[at][1].kind != keys.EVENT)
    sealed = [at for at in places if at < stop and records[at][1].body[EVENT_HEAD + 4] == 1]
    wrong = sealed[len(sealed) // 2]
    body = records[wrong][1].body
    altered = put(records, wrong, body=body[:SEAL_AT] + bytes(64) + body[SEAL_AT + 64 :])
    for some, end in ((records, stop), (altered, wrong)):
        audit = Audit((AUDITOR,))
        for stem, record in some[:first]:
            audit.record(stem, record)
        run = [record for _, record in some]
        taken = audit.events_in_sequence(
            some[first][0],
            first,
            stop,
            [record.offset for record in run],
            [record.size for record in run],
            [record.time for record in run],
            [record.body for record in run],
        )
        assert taken == end


def test_sealing_each_distinguishes_wrong_seals_from_altered_blobs() -> None:
    records = recorded("each")
    index = received(records)[99]
    body = records[index][1].body
    statuses, findings = audited(put(records, index, body=flipped_bit(body, EVENT_HEAD + 10)))
    assert [(finding.kind, finding.place) for finding in findings] == [("bad-seal", 100)]
    assert statuses["bad-seal"] == 1
    _, findings = audited(put(records, index, body=flipped_bit(body, -1)))
    assert [(finding.kind, finding.place) for finding in findings] == [("bad-chain", 100)]


def test_foreign_seal_before_a_checkpoint_is_distinguished_from_an_altered_blob() -> None:
    records = recorded("each")
    block = [i for i, (_, record) in enumerate(records) if record.kind == keys.BLOCK][1]
    index = max(i for i in received(records) if i < block)
    place = received(records).index(index) + 1
    body = records[index][1].body
    statuses, findings = audited(put(records, index, body=flipped_bit(body, EVENT_HEAD + 10)))
    assert [(finding.kind, finding.place) for finding in findings] == [("bad-seal", place)]
    assert statuses["bad-seal"] == 1


def test_a_missing_event_before_a_key_update_is_one_gap() -> None:
    rec = RecordedPair()
    for number in range(60):
        rec.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pump()
        if number == 30:
            rec.pair.a.core.update_keys(rec.pair.now)
        if number == 50:
            rec.journals[1].roll()
    rec.run(0.05)
    rec.end()
    records = records_of(rec.journals[1].segments)
    index = received(records)[19]
    _, findings = audited(records[:index] + records[index + 1 :])
    assert [(finding.kind, finding.place) for finding in findings] == [("gap", 20)]


def test_events_cut_off_before_the_end_are_missing() -> None:
    records = recorded()
    index = first_of(records, keys.SESSION_END)
    last = received(records)[-1]
    _, findings = audited([*records[:last], *records[last + 1 : index], *records[index:]])
    assert [finding.kind for finding in findings] == ["gap"]


def test_a_missing_segment_is_found() -> None:
    records = recorded()
    first = records[0][0]
    _, findings = audited([pair for pair in records if pair[0] != first])
    assert findings == []  # Earlier records may have been pruned.
    rec = RecordedPair()
    for _ in range(3):
        rec.pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
        rec.pump()
        rec.journals[0].next_segment()
    rec.end()
    stems = sorted(rec.journals[0].segments)
    _, findings = audited(
        [pair for pair in records_of(rec.journals[0].segments) if pair[0] != stems[1]]
    )
    assert [finding.kind for finding in findings] == ["missing-segment"]


def test_damaged_record_and_unverifiable_events_are_reported() -> None:
    records = recorded()
    index = received(records)[99]
    body = flipped_bit(records[index][1].body, -1)
    _, findings = audited(put(records, index, body=body, status="bad-crc"))
    assert [(finding.kind, finding.place) for finding in findings] == [
        ("bad-crc", 100),
        ("bad-chain", 100),
    ]
    assert findings[1].count > 1
    assert "at place 100: from here to the next checkpoint" in findings[1].evidence


def test_late_finding_names_its_own_segment() -> None:
    records = recorded()
    index = received(records)[60]
    stem, record = records[index]
    _, (finding,) = audited(put(records, index, body=flipped_bit(record.body, -1)))
    assert (finding.kind, finding.place, finding.segment) == ("bad-chain", 61, stem)


def test_session_that_begins_twice_is_found() -> None:
    records = recorded()
    start = first_of(records, keys.SESSION_START)
    again = received(records)[39]
    statuses, findings = audited([*records[:again], records[start], *records[again:]])
    assert {"session-twice", "malformed-record"} <= {finding.kind for finding in findings}
    events = sum(record.kind == keys.EVENT for _, record in records)
    assert statuses.total() == events + 4  # The Proofs are there twice.


def test_a_lost_checkpoint_is_found() -> None:
    records = recorded()
    index = first_of(records, keys.CHECKPOINT)
    _, findings = audited(records[:index] + records[index + 1 :])
    assert [finding.kind for finding in findings] == ["missing-checkpoint"]


def test_events_of_no_session_are_rows_and_one_finding() -> None:
    records = recorded()
    index = received(records)[99]
    stem, record = records[index]
    foreign = record._replace(body=EVENT.pack(77, 0) + record.body[EVENT_HEAD:])
    statuses, findings = audited([*records[: index + 1], (stem, foreign), *records[index + 1 :]])
    assert [finding.kind for finding in findings] == ["no-session"]
    assert statuses["gap"] == 1


def test_an_identity_that_the_proof_does_not_show_is_found() -> None:
    """Mallory can bind Bob's key to her own: the signature is valid, but the identity differs."""
    rec = RecordedPair()
    rec.end()
    records = records_of(rec.journals[0].segments)
    index = first_of(records, keys.SESSION_START)
    start = SessionStart.parse(records[index][1].body)
    assert len(start.facts.remote_keys) > 1
    facts = replace(start.facts, remote_keys=start.facts.remote_keys[:1])
    _, findings = audited(put(records, index, body=replace(start, facts=facts).encode()))
    assert [finding.kind for finding in findings] == ["bad-proof"]


def test_ends_that_contradict_the_sealed_close_are_found() -> None:
    for made in (recorded(), closed_by_the_other_side()):
        index = first_of(made, keys.SESSION_END)
        end = SessionEnd.parse(made[index][1].body)
        assert end.text == "until tomorrow"
        for altered in (replace(end, text=""), replace(end, remote=not end.remote)):
            _, findings = audited(put(made, index, body=altered.encode()))
            assert [finding.kind for finding in findings] == ["end-mismatch"], altered
