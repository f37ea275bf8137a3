"""Peers and operators that try to stop readers of a journal (docs/threat-model.md, J6)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from parley._node.journal import keys
from parley._node.journal.record_types import Checkpoint, Generation
from parley._node.journal.records import OK, encode_record, read_records
from parley._node.journal.session_log import LONGEST_LABEL
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of

HUGE = 2**20 - 256


def test_labels_of_a_peer_make_no_checkpoint_that_readers_refuse() -> None:
    """70 labels would exceed any record; 20 would exceed the decoding limit of one record."""
    made = RecordedPair()
    opened = made.pair.b.core.open_stream("topic:kept")
    for _ in range(20):
        made.pair.b.core.open_stream("x" * HUGE)
    made.pair.b.core.open_stream("x" * LONGEST_LABEL)
    made.pump()
    made.journals[0].next_segment()
    made.pair.b.core.send(opened, 0, 64, 1, b"after", lbm=False)
    made.pump()
    made.end()
    _, second = made.journals[0].segments.items()
    records = list(read_records(second[1]))
    assert {record.status for record in records} == {OK}
    [checkpoint] = [record for record in records if record.kind == keys.CHECKPOINT]
    assert len(Checkpoint.parse(checkpoint.body).labels or b"") < 2 * LONGEST_LABEL
    audit = audit_of(dict([second]), AUDITOR)
    assert audit.take_findings() == []
    assert "kept" in {row[17] for row in audit.take_events()}


def with_rekey(checkpoint: Checkpoint, size: int) -> Checkpoint:
    box = bytes(AUDITOR.public), AUDITOR.public.seal(bytes(32))
    rekey = Generation(1, (box,), bytes(size), bytes(size), bytes(32))
    return replace(checkpoint, generations=(*checkpoint.generations, rekey))


@pytest.mark.parametrize(
    "forge",
    [
        lambda point: replace(point, th1=bytes(300)),
        lambda point: replace(point, th2=bytes(300)),
        lambda point: replace(point, facts=replace(point.facts, commit=bytes(300))),
        lambda point: replace(point, sent=replace(point.sent, chain=bytes(300))),
        lambda point: with_rekey(point, 200),
        # With one more event after it, or two events summed up, it wouldn't fit into any column.
        lambda point: replace(point, sent=replace(point.sent, place=2**63 - 1)),
    ],
    ids=["th1", "th2", "commit", "chain", "rekey", "place"],
)
def test_sizes_and_counts_that_no_session_has_are_malformed(
    forge: Callable[[Checkpoint], Checkpoint],
) -> None:
    made = RecordedPair()
    made.journals[0].next_segment()
    made.pair.a.core.send(1, 0, 64, 1, b"after", lbm=False)
    made.pump()
    made.end()
    _, (stem, data) = made.journals[0].segments.items()
    forged = b"".join(
        encode_record(
            record.kind,
            record.time,
            forge(Checkpoint.parse(record.body)).encode()
            if record.kind == keys.CHECKPOINT
            else record.body,
        )
        for record in read_records(data)
    )
    audit = audit_of({stem: forged}, AUDITOR)
    assert "malformed-record" in {finding.kind for finding in audit.take_findings()}
