"""The guarantees of journals against operators, thieves and peers (docs/threat-model.md, J1 to
J6).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.errors import DecryptError
from parley._lbm import keys as cells
from parley._lbm.codec import encode
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.content import read_content
from parley._node.journal.audit.rows import EVENT_COLUMNS, MALFORMED, STATUS_AT
from parley._node.journal.record_types import Checkpoint, Secret
from parley._node.journal.records import Record, encode_record, read_records
from parley._node.protocol import codes
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.node.protocol.pair import ALICE

SAID = b"nobody else is to read this"
PAYLOAD_AT = EVENT_COLUMNS.index("payload")
SIZE_AT = EVENT_COLUMNS.index("blob_size")


@cache
def segments() -> dict[str, bytes]:
    """Return Alice's journal of one session, in two segments."""
    made = RecordedPair()
    for number in range(8):
        made.pair.a.core.send(1, 0, 64, 1, SAID, lbm=False)
        made.pair.b.core.send(1, 0, 64, 1, SAID, lbm=False)
        made.pump()
        if number == 4:
            made.journals[0].next_segment()
    made.run(0.05)
    made.end()
    return made.journals[0].segments


def replaced(replace: Callable[[Record], bytes | None]) -> dict[str, bytes]:
    """Return the journal with some bodies replaced; `replace` returns None for unchanged ones."""
    found = {}
    for stem, data in segments().items():
        records = []
        for record in read_records(data):
            body = replace(record)
            records.append(
                encode_record(record.kind, record.time, record.body if body is None else body)
            )
        found[stem] = b"".join(records)
    return found


def payloads(audit: Audit) -> list[bytes]:
    return [row[PAYLOAD_AT] for row in audit.take_events() if row[PAYLOAD_AT] is not None]


def test_the_files_hold_neither_texts_nor_secrets() -> None:
    every = b"".join(segments().values())
    assert SAID not in every
    for key in ALICE.keys:
        assert key.private_bytes() not in every
    boxes = [
        box
        for record in read_records(every)
        if record.kind == keys.SECRET
        for _, box in Secret.parse(record.body).boxes
    ]
    assert boxes
    for box in boxes:
        assert AUDITOR.open(box) not in every
        # The node's own key can't open it either.
        for private in (AuditorPrivateKey.create().private_bytes(), ALICE.keys[0].private_bytes()):
            with pytest.raises(DecryptError):
                AuditorPrivateKey(private[:32]).open(box)


def test_the_auditor_reads_it() -> None:
    audit = audit_of(segments(), AUDITOR)
    assert payloads(audit).count(SAID) == 16
    assert audit.take_findings() == []


def test_each_of_several_auditors_reads_alone_and_a_change_shuts_the_old_one_out() -> None:
    first, second, later = (AuditorPrivateKey.create() for _ in range(3))

    def run(*auditors: AuditorPrivateKey) -> dict[str, bytes]:
        made = RecordedPair(auditors=tuple(auditor.public for auditor in auditors))
        made.pair.a.core.send(1, 0, 64, 1, SAID, lbm=False)
        made.pump()
        made.pair.a.core.rekey(made.pair.now)
        made.run(0.05)
        made.pair.a.core.send(1, 0, 64, 1, SAID, lbm=False)
        made.end()
        return made.journals[0].segments

    before, after = run(first, second), run(second, later)
    for auditor, read in ((first, (2, 0)), (second, (2, 2)), (later, (0, 2))):
        for segments, count in zip((before, after), read, strict=True):
            audit = audit_of(segments, auditor)
            kinds = {finding.kind for finding in audit.take_findings()}
            assert kinds == (set() if count else {"no-secret"})
            rows = audit.take_events()
            assert [row[PAYLOAD_AT] for row in rows].count(SAID) == count
            assert count or {row[STATUS_AT] for row in rows} <= {"ok", "unsealed", "undecryptable"}


@pytest.mark.parametrize("keys_given", [(), (AuditorPrivateKey.create(),)], ids=["none", "another"])
def test_who_has_no_key_of_it_verifies_and_reads_nothing(
    keys_given: tuple[AuditorPrivateKey, ...],
) -> None:
    told, blind = audit_of(segments(), AUDITOR), audit_of(segments(), *keys_given)
    seen, rows = told.take_events(), blind.take_events()
    assert not any(SAID in (row[PAYLOAD_AT] or b"") for row in rows)
    # Except for the sizes, everything is the same as for the auditor.
    assert [row[: SIZE_AT + 1] for row in rows] == [row[: SIZE_AT + 1] for row in seen]
    if not keys_given:
        assert [row[STATUS_AT] for row in rows] == [row[STATUS_AT] for row in seen]
        assert blind.take_findings() == []


def test_another_secret_makes_no_other_text() -> None:
    def another(record: Record) -> bytes | None:
        if record.kind != keys.SECRET:
            return None
        secret = Secret.parse(record.body)
        boxes = tuple((auditor, AUDITOR.public.seal(bytes(32))) for auditor, _ in secret.boxes)
        return Secret(secret.session, secret.generation, boxes).encode()

    audit = audit_of(replaced(another), AUDITOR)
    kinds = Counter(finding.kind for finding in audit.take_findings())
    assert kinds["wrong-secret"] >= 1
    # The checkpoint in the second segment still has the right key; the first segment stays closed.
    assert set(payloads(audit)) <= {SAID, b""} | set(payloads(audit_of(segments(), AUDITOR)))


def test_every_byte_of_an_event_counts() -> None:
    events = [
        (stem, record)
        for stem, data in segments().items()
        for record in read_records(data)
        if record.kind == keys.EVENT
    ]
    stem, chosen = events[3]
    for at in range(4, len(chosen.body)):

        def flip(record: Record, at: int = at) -> bytes | None:
            if (record.offset, record.body) != (chosen.offset, chosen.body):
                return None
            return record.body[:at] + bytes([record.body[at] ^ 1]) + record.body[at + 1 :]

        audit = audit_of({stem: replaced(flip)[stem]})
        assert audit.take_findings(), at


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -1, -(2**64)])
def test_numbers_that_no_table_holds_are_malformed(number: int) -> None:
    """A peer can send such numbers in an event, and an operator can write them into a
    checkpoint.
    """
    for key in (cells.CODE, cells.STREAM, cells.REQUEST):
        content = read_content(1, codes.SIM << 8 | codes.RESULT, encode({key: number}))
        assert content.status == MALFORMED
        assert {content.code, content.opens, content.request} == {None}

    def far(record: Record) -> bytes | None:
        if record.kind != keys.CHECKPOINT:
            return None
        point = Checkpoint.parse(record.body)
        return replace(point, sent=replace(point.sent, place=number)).encode()

    forged = replaced(far)
    for journal in (forged, dict(list(forged.items())[1:])):
        audit = audit_of(journal, AUDITOR)
        assert "malformed-record" in {finding.kind for finding in audit.take_findings()}
        assert all(
            value is None or not isinstance(value, int) or abs(value) < 2**63
            for row in audit.take_events()
            for value in row
        )
